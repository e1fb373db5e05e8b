package baseline

import (
	"time"

	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Named is a policy that can be asked for by name.
type Named struct {
	Name, About string
	// New is a policy that has seen nothing: each node of each run gets its own.
	New func() sim.Policy
}

// All are the rivals, in the order in which reports show them.
func All() []Named {
	return []Named{
		{"static", "limits as declared", func() sim.Policy { return Static{} }},
		{"no-limits", "no limits: the kernel's weights alone", func() sim.Policy { return &NoLimits{} }},
		{"equal", "an equal share of the node", func() sim.Policy { return NewEqual(DefaultEqual()) }},
		{"equal-left", "an equal share of what unmanaged pods leave", func() sim.Policy { return NewEqual(EqualOfRest()) }},
		{"strict", "strict partition by peak need", func() sim.Policy { return NewStrict(DefaultStrict()) }},
		{"seed-rule", "bid = weight x demand, limit = its share, every 15 s", func() sim.Policy { return NewSeedRule(DefaultSeedRule()) }},
		{"max-min", "weighted max-min of demand, no market", func() sim.Policy { return NewMaxMin(DefaultMaxMin()) }},
		{"max-min-1.5", "weighted max-min of 1.5 x demand, no market", func() sim.Policy { return NewMaxMin(DefaultMaxMin().withRoom(1.5)) }},
		{"karma", "Karma: max-min with credits", func() sim.Policy { return NewKarma(DefaultKarma()) }},
		{"karma-1.5", "Karma on 1.5 x demand", func() sim.Policy { return NewKarma(DefaultKarma().withRoom(1.5)) }},
		{"captain-0.02", "Autothrottle's Captain, throttle target 2 %", captain(0.02)},
		{"captain-0.06", "Autothrottle's Captain, throttle target 6 %", captain(0.06)},
		{"captain-0.10", "Autothrottle's Captain, throttle target 10 %", captain(0.10)},
		{"captain-0.20", "Autothrottle's Captain, throttle target 20 %", captain(0.20)},
		{"k8s-cpu-0.5", "limit = use / 0.5, highest of 300 s, every 15 s", k8sCPU(SlowK8sCPU(0.5))},
		{"k8s-cpu-0.7", "limit = use / 0.7, highest of 300 s, every 15 s", k8sCPU(SlowK8sCPU(0.7))},
		{"k8s-cpu-fast-0.5", "limit = use / 0.5, highest of 20 s, every second", k8sCPU(FastK8sCPU(0.5))},
		{"k8s-cpu-fast-0.7", "limit = use / 0.7, highest of 20 s, every second", k8sCPU(FastK8sCPU(0.7))},
		{"kondense", "Kondense: a resize each second towards use / 0.8", func() sim.Policy { return NewKondense(DefaultKondense()) }},
		{"gitpod", "Gitpod: a burst limit for the throttled while there is room, every 15 s", func() sim.Policy { return NewGitpod(DefaultGitpod()) }},
		{"vpa", "VPA in place, without a history", vpa(0)},
		{"vpa-1h", "VPA in place, after an hour of steady use", vpa(time.Hour)},
		{"vpa-8d", "VPA in place, after eight days of steady use", vpa(8 * 24 * time.Hour)},
		{"hpa", "HPA: replicas, 80 % of the requests used", func() sim.Policy { return NewHPA(DefaultHPAConfig()) }},
		{"koordinator", "Koordinator: x1.2 for the throttled while the node is idle, every second", koordinator(-1)},
		{"koordinator-60s", "Koordinator, a burst lasts 60 s at most", koordinator(time.Minute)},
		{"rubik", "Rubik's quotaTurbo: quota lent to the throttled, every 100 ms", func() sim.Policy { return NewQuotaTurbo(DefaultQuotaTurboConfig()) }},
	}
}

func captain(target float64) func() sim.Policy {
	return func() sim.Policy { return NewCaptain(DefaultCaptain(target)) }
}

func k8sCPU(cfg K8sCPUConfig) func() sim.Policy {
	return func() sim.Policy { return NewK8sCPU(cfg) }
}

// vpa is VPA for pods without replicas, too: as it ships it never changes these.
func vpa(history time.Duration) func() sim.Policy {
	cfg := DefaultVPAConfig()
	cfg.IgnoreBudget, cfg.History = true, history
	return func() sim.Policy { return NewVPA(cfg) }
}

func koordinator(burst time.Duration) func() sim.Policy {
	cfg := DefaultKoordinatorConfig()
	cfg.Burst = burst
	return func() sim.Policy { return NewKoordinator(cfg) }
}

// Entitles says whether the policy of that name changes requests or replicas: more of either is more of the node, for as long as
// nobody else asks for it.
func Entitles(name string) bool {
	return name == "hpa" || name == "vpa" || name == "vpa-1h" || name == "vpa-8d"
}
