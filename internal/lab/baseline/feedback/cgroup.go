// Package feedback holds controllers that set each pod's limit from its own usage or throttling:
// Autothrottle's Captain and its K8s-CPU baselines, Gitpod, Kondense, Koordinator, and Rubik's
// quotaTurbo. Most write cgroups themselves.
package feedback

import (
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// setCgroupLimit is a limit that a program writes to the cgroup itself. The kernel accepts no quota
// below 1 ms, 10m.
func setCgroupLimit(p *sim.PodSnapshot, cores float64) (a sim.Action, changes bool) {
	limit := max(cpu.Quantum, cpu.FromCores(cores))
	return sim.Action{Pod: p.ID, Limit: limit, Delay: sim.DirectDelay}, limit != p.Limit
}
