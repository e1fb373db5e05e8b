package baseline

import (
	"math"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// resizer carries wishes out through the API, with the plan of the actuator that MBCAS ships: bounds, dead band,
// steps and cooldowns are its own.
type resizer struct {
	cfg  actuator.Config
	pods map[int]*resized
}

// resized is what the API knows of one pod.
type resized struct {
	limit                  cpu.Milli
	doneAt                 time.Duration
	lastUp, lastDown, last time.Time
}

func newResizer(cfg actuator.Config) *resizer {
	return &resizer{cfg: cfg, pods: map[int]*resized{}}
}

// atOnce goes to the wish in one step, unless it is less than 10 % away.
func atOnce() actuator.Config {
	return actuator.Config{DeadBand: 0.10, MaxDecreaseFactor: math.Inf(1)}
}

// wish is the limit that a policy wants for a pod.
type wish struct {
	pod   *sim.PodReading
	cores float64
}

// epoch is the begin of simulated time.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// container is the name of the one container of a simulated pod.
const container = "main"

func (z *resizer) of(p *sim.PodReading) *resized {
	known := z.pods[p.ID]
	if known == nil {
		known = &resized{limit: p.Limit}
		z.pods[p.ID] = known
	}
	return known
}

// resize returns the moves that are allowed now.
func (z *resizer) resize(r *sim.Reading, wishes []wish) []sim.Action {
	now := epoch.Add(r.Now)
	pods := make([]actuator.Pod, len(wishes))
	for i, w := range wishes {
		known := z.of(w.pod)
		pods[i] = actuator.Pod{
			InFlight: r.Now < known.doneAt, LastDecrease: known.lastDown, LastIncrease: known.lastUp,
			Containers: []actuator.Container{{
				Name: container, Limit: known.limit, Declared: w.pod.Spec.Limit,
				Floor: demand.Floor(w.pod.Request, w.pod.Spec.Limit), Ceiling: r.Allocatable,
				Desired: max(cpu.Quantum, cpu.FromCores(w.cores).RoundDown(cpu.Quantum)),
			}},
		}
	}
	var actions []sim.Action
	for _, step := range actuator.Plan(z.cfg, now, false, pods) {
		if step.Move == nil {
			continue
		}
		p := wishes[step.Pod].pod
		known := z.of(p)
		known.limit, known.doneAt, known.last = step.Move.Changes[0].To, r.Now+2*sim.ResizeDelay, now
		if step.Move.Lowers() {
			known.lastDown = now
		} else {
			known.lastUp = now
		}
		actions = append(actions, sim.Action{Pod: p.ID, Limit: known.limit, After: sim.ResizeDelay})
	}
	return actions
}

// write is a limit that a program writes to the cgroup itself. The kernel takes no quota below 1 ms, 10m.
func write(p *sim.PodReading, cores float64) (a sim.Action, changes bool) {
	limit := max(cpu.Quantum, cpu.FromCores(cores))
	return sim.Action{Pod: p.ID, Limit: limit, After: sim.DirectDelay}, limit != p.Limit
}
