package division

import (
	"time"

	"github.com/mbcas/mbcas/internal/lab/sim"
)

// equalInterval is the time between two samples: that of the kind of controller that would do this.
const equalInterval = 15 * time.Second

// Equal gives all managed pods the same limit, whatever they request or use. A limit can't go below
// a request, so the limits may add up to more than there is. Changes below 10 % are not worth a
// resize.
type Equal struct {
	rest    bool // it shares what unmanaged pods leave, not the whole node among all pods
	sensor  *sensor
	resizer *resizer
}

// NewEqual shares what unmanaged pods leave among managed ones, or the whole node among all pods,
// used or not. It is our own rule.
func NewEqual(rest bool) *Equal {
	return &Equal{rest: rest, sensor: newSensor(), resizer: newResizer(singleStep())}
}

// Decide implements sim.Policy.
func (e *Equal) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	estimates, _ := e.sensor.update(r)
	left, sharers := r.Allocatable.Cores(), len(r.Pods)
	if e.rest {
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
	for p := range r.Managed() {
		all = append(all, target{p, max(0, left) / float64(sharers)})
	}
	return e.resizer.resize(r, all), r.Now + equalInterval
}
