package division

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// resizer carries out targets through the API, with the plan of the actuator that MBCAS ships:
// bounds, dead band, steps and cooldowns are its own.
type resizer struct {
	cfg   actuator.Config
	pods  map[int]*resizedPod
	draws *rand.Rand // of delays; by the seed of the node
}

// resizedPod is what the API knows of one pod.
type resizedPod struct {
	limit                  cpu.Milli
	doneAt                 time.Duration
	lastUp, lastDown, last time.Time
}

func newResizer(cfg actuator.Config) *resizer {
	return &resizer{cfg: cfg, pods: map[int]*resizedPod{}}
}

// singleStep goes to the target in one step, unless it is less than 10 % away.
func singleStep() actuator.Config {
	return actuator.Config{DeadBand: 0.10, MaxDecreaseFactor: math.Inf(1)}
}

// target is the limit that a policy wants for a pod.
type target struct {
	pod   *sim.PodSnapshot
	cores float64
}

// epoch is the begin of simulated time.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// container is the name of the one container of a simulated pod.
const container = "main"

func (z *resizer) pod(p *sim.PodSnapshot) *resizedPod {
	known := z.pods[p.ID]
	if known == nil {
		known = &resizedPod{limit: p.Limit}
		z.pods[p.ID] = known
	}
	return known
}

// resize returns the moves that are allowed now.
func (z *resizer) resize(r *sim.Snapshot, targets []target) []sim.Action {
	now := epoch.Add(r.Now)
	pods := make([]actuator.Pod, len(targets))
	for i, w := range targets {
		known := z.pod(w.pod)
		pods[i] = actuator.Pod{
			InFlight: r.Now < known.doneAt, LastDecrease: known.lastDown, LastIncrease: known.lastUp,
			Containers: []actuator.Container{{
				Name: container, Limit: known.limit, Declared: w.pod.Spec.Limit,
				Floor: demand.Entitlement(w.pod.Request, w.pod.Spec.Limit), Ceiling: r.Allocatable,
				Desired: max(cpu.Quantum, cpu.FromCores(w.cores).RoundDown(cpu.Quantum)),
			}},
		}
	}
	if z.draws == nil {
		z.draws = sim.Draws(r.Seed)
	}
	var actions []sim.Action
	for _, step := range actuator.Plan(z.cfg, now, false, pods) {
		if step.Move == nil {
			continue
		}
		p := targets[step.Pod].pod
		known := z.pod(p)
		known.limit, known.doneAt, known.last = step.Move.Changes[0].To, r.Now+sim.ResizeDone.Draw(z.draws), now
		if step.Move.Lowers() {
			known.lastDown = now
		} else {
			known.lastUp = now
		}
		actions = append(actions, sim.Action{Pod: p.ID, Limit: known.limit, Delay: sim.ResizeDelay})
	}
	return actions
}
