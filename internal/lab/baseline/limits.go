package baseline

import (
	"time"

	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Static keeps the declared limits.
type Static struct{}

// Decide implements sim.Policy.
func (Static) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) { return nil, r.Now + time.Hour }

// NoLimits removes the limits of all managed pods, so that the kernel's weights alone share the
// node.
type NoLimits struct{ done map[int]bool }

// Decide implements sim.Policy.
func (p NoLimits) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	var actions []sim.Action
	for pod := range r.Managed() {
		if !p.done[pod.ID] {
			p.done[pod.ID] = true
			actions = append(actions, sim.Action{Pod: pod.ID})
		}
	}
	return actions, r.Now + time.Second
}
