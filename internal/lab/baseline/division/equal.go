package division

import (
	"time"

	"github.com/mbcas/mbcas/internal/lab/sim"
)

// EqualConfig is an equal share for every pod.
type EqualConfig struct {
	// Interval is the time between two samples.
	Interval time.Duration
	// Rest shares what unmanaged pods leave among managed ones. Otherwise the whole node
	// is shared among all pods, used or not.
	Rest bool
}

// DefaultEqual shares the node. It is our own rule; 15 s is the interval of the kind of controller
// that would do this.
func DefaultEqual() EqualConfig { return EqualConfig{Interval: 15 * time.Second} }

// EqualOfRest shares what others leave.
func EqualOfRest() EqualConfig { return EqualConfig{Interval: 15 * time.Second, Rest: true} }

// Equal gives all managed pods the same limit, whatever they request or use. A limit can't go below
// a request, so the limits may add up to more than there is. Changes below 10 % are not worth a
// resize.
type Equal struct {
	cfg     EqualConfig
	sensor  *sensor
	resizer *resizer
}

// NewEqual has seen nothing.
func NewEqual(cfg EqualConfig) *Equal {
	return &Equal{cfg: cfg, sensor: newSensor(), resizer: newResizer(singleStep())}
}

// Decide implements sim.Policy.
func (e *Equal) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	estimates, _ := e.sensor.update(r)
	left, sharers := r.Allocatable.Cores(), len(r.Pods)
	if e.cfg.Rest {
		sharers = 0
		left -= max(0, e.sensor.node.System.Cores()-(float64(r.Cores)-left))
		for i, p := range r.Pods {
			if p.Spec.Managed() {
				sharers++
			} else {
				left -= estimates[i].Mean
			}
		}
	}
	var all []target
	for i := range r.Pods {
		if p := &r.Pods[i]; p.Spec.Managed() {
			all = append(all, target{p, max(0, left) / float64(sharers)})
		}
	}
	return e.resizer.resize(r, all), r.Now + e.cfg.Interval
}
