// Package baseline lists the policies that MBCAS is compared with: published CPU controllers,
// written anew from their algorithms, and simple rules. Each is one file, and its constants have a
// source.
//
//   - division: policies that divide a node's CPU among its pods
//   - feedback: controllers that set each pod's limit from its own usage or throttling
//   - autoscaler: Kubernetes' vertical and horizontal autoscalers
//
// A baseline gets the actuation that it has in the field: a program that writes cgroups itself
// takes a millisecond, one that uses the API takes as long as a measured resize.
//
// What it promises, each a test of the same name:
//   - KeepsUnmanagedPods: no policy changes a pod that is not managed. No limit is below 10m, and
//     none that is set through the API is one that a Burstable pod may not have.
//   - NewPolicyHasNoState: a run depends on its seed alone; two policies of the same name share
//     nothing.
package baseline

import (
	"time"

	"github.com/mbcas/mbcas/internal/lab/baseline/autoscaler"
	"github.com/mbcas/mbcas/internal/lab/baseline/division"
	"github.com/mbcas/mbcas/internal/lab/baseline/feedback"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Policy is a policy with a name.
type Policy struct {
	Name, Description string
	// New is a policy without state: each node of each run gets its own.
	New func() sim.Policy
}

// Policies are the baselines, in the order of reports.
func Policies() []Policy {
	return []Policy{
		{"static", "limits as declared", func() sim.Policy { return Static{} }},
		{"no-limits", "no limits: the kernel's weights alone", func() sim.Policy { return NoLimits{map[int]bool{}} }},
		{"equal", "an equal share of the node", func() sim.Policy { return division.NewEqual(false) }},
		{"equal-left", "an equal share of what unmanaged pods leave", func() sim.Policy { return division.NewEqual(true) }},
		{"strict", "strict partition by peak need", func() sim.Policy { return division.NewStrict() }},
		{"proportional-bids", "bid = weight x demand, limit = its share, every 15 s", func() sim.Policy { return division.NewProportionalBids() }},
		{"max-min", "weighted max-min of demand, no market", func() sim.Policy { return division.NewMaxMin(1) }},
		{"max-min-1.5", "weighted max-min of 1.5 x demand, no market", func() sim.Policy { return division.NewMaxMin(1.5) }},
		{"karma", "Karma: max-min with credits", func() sim.Policy { return division.NewKarma(1) }},
		{"karma-1.5", "Karma on 1.5 x demand", func() sim.Policy { return division.NewKarma(1.5) }},
		{"captain-0.02", "Autothrottle's Captain, throttle target 2 %", func() sim.Policy { return feedback.NewCaptain(0.02) }},
		{"captain-0.06", "Autothrottle's Captain, throttle target 6 %", func() sim.Policy { return feedback.NewCaptain(0.06) }},
		{"captain-0.10", "Autothrottle's Captain, throttle target 10 %", func() sim.Policy { return feedback.NewCaptain(0.10) }},
		{"captain-0.20", "Autothrottle's Captain, throttle target 20 %", func() sim.Policy { return feedback.NewCaptain(0.20) }},
		{"k8s-cpu-0.5", "limit = usage / 0.5, highest of 300 s, every 15 s", func() sim.Policy { return feedback.NewK8sCPU(0.5, false) }},
		{"k8s-cpu-0.7", "limit = usage / 0.7, highest of 300 s, every 15 s", func() sim.Policy { return feedback.NewK8sCPU(0.7, false) }},
		{"k8s-cpu-fast-0.5", "limit = usage / 0.5, highest of 20 s, every second", func() sim.Policy { return feedback.NewK8sCPU(0.5, true) }},
		{"k8s-cpu-fast-0.7", "limit = usage / 0.7, highest of 20 s, every second", func() sim.Policy { return feedback.NewK8sCPU(0.7, true) }},
		{"kondense", "Kondense: a resize each second towards usage / 0.8", func() sim.Policy { return feedback.NewKondense() }},
		{"gitpod", "Gitpod: a burst limit for throttled pods while there is room, every 15 s", func() sim.Policy { return feedback.NewGitpod() }},
		{"vpa", "VPA in place, without a history", func() sim.Policy { return autoscaler.NewVPA(0) }},
		{"vpa-1h", "VPA in place, after an hour of steady usage", func() sim.Policy { return autoscaler.NewVPA(time.Hour) }},
		{"vpa-8d", "VPA in place, after eight days of steady usage", func() sim.Policy { return autoscaler.NewVPA(8 * 24 * time.Hour) }},
		{"hpa", "HPA: replicas, 80 % of the requests used", func() sim.Policy { return autoscaler.NewHPA() }},
		{"koordinator", "Koordinator: x1.2 for throttled pods while the node is idle, every second", func() sim.Policy { return feedback.NewKoordinator(-1) }},
		{"koordinator-60s", "Koordinator, a burst lasts 60 s at most", func() sim.Policy { return feedback.NewKoordinator(time.Minute) }},
		{"rubik", "Rubik's quotaTurbo: quota lent to throttled pods, every 100 ms", func() sim.Policy { return feedback.NewQuotaTurbo() }},
	}
}

// ChangesRequestsOrReplicas says whether the policy of that name changes what a workload is
// entitled to: more requests or replicas are more of the node.
func ChangesRequestsOrReplicas(name string) bool {
	return name == "hpa" || name == "vpa" || name == "vpa-1h" || name == "vpa-8d"
}
