package plan

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Important is the PriorityClass of services whose importance is told; its value and policy are those
// of the demo.
const (
	Important      = "evaluation-important"
	ImportantValue = 1_000_000
)

// Names of policies.
const (
	Declared    = "declared"
	None        = "none"
	Static      = "static"
	MBCAS       = "mbcas"
	Weights     = "mbcas-weights"
	VPAInPlace  = "vpa-in-place"
	VPATuned    = "vpa-tuned"
	VPARecreate = "vpa-recreate"
	HPA         = "hpa"
	HPAMBCAS    = "hpa-mbcas"
)

const (
	seed    = 1
	repeats = 5
	length  = 30 * time.Second
	event   = 5 * time.Second
	// watched is the length of the situation that shows convergence, which is promised within 60 s: it has the event,
	// the promised time, and 10 s in which nothing may change.
	watched = 75 * time.Second
	// learning has an interval of the VPA's recommender and of its updater (1 min each); tuning one of the
	// recommender with a short history (10 s), two samples of metrics-server (15 s) and one of the updater. scaling
	// has two samples, two syncs of the HPA (15 s) and the start of a pod.
	learning = 122 * time.Second
	tuning   = 102 * time.Second
	scaling  = 62 * time.Second
)

// Allocatable is what requests of a situation must fit: the allocatable CPU of the local cluster on two cores, less
// what MBCAS requests there.
const Allocatable = cpu.Milli(1400)

var (
	basic = []string{Declared, None, MBCAS}
	// beside are those that are played where a batch job saturates the node.
	beside = []string{Declared, None, Static, MBCAS, Weights}
	// scaled are those that are played where importance is told and requests do not suffice, and rivals has the VPA as
	// well. Of the two VPAs the tuned one is the stronger.
	scaled = []string{Declared, None, Static, MBCAS, Weights, HPA}
	rivals = []string{Declared, None, Static, MBCAS, Weights, VPATuned, HPA}
)

// Default is the evaluation that `make evaluation` runs; quick leaves out repeats and what takes longest, and more adds
// what there is no time for in three hours.
func Default(quick, more bool) Plan {
	p := Plan{Quick: quick, Seed: seed, Repeats: repeats, Policies: policies(), Situations: situations()}
	if !more {
		p.Situations = slices.DeleteFunc(p.Situations, func(s Situation) bool { return s.Extra })
	}
	for i := range p.Situations {
		if s := &p.Situations[i]; more {
			s.Policies = slices.Concat(s.Policies, s.More)
		}
	}
	if quick {
		p.Repeats = 1
		for i := range p.Situations {
			s := &p.Situations[i]
			s.Policies = slices.DeleteFunc(slices.Clone(s.Policies), func(name string) bool {
				x, _ := p.Policy(name)
				return x.Learning > 0 || !more && slices.Contains(s.Slow, name)
			})
		}
	}
	return p
}

func policies() []Policy {
	const vpa = "VPA 1.8.1 on every workload: recommender and updater every minute as shipped, minReplicas 1 so that " +
		"single replicas are updated, CPU only"
	const shipped = vpa + ", maxAllowed 1000m, requests and limits in proportion as shipped, histograms that halve " +
		"in a day as shipped"
	const tuned = vpa + "; a recommender of its own every 10 s, whose histograms halve in a minute and whose bounds " +
		"trust a minute (--cpu-histogram-decay-half-life, --confidence-interval-cpu); controlledValues RequestsOnly; " +
		"maxAllowed of services so that all requests fit the node, and 100m for batch jobs; updateMode " +
		"InPlaceOrRecreate"
	const hpa = "HPA of Kubernetes with its default windows: 70 % of the request, 1 to 4 replicas, " +
		"metrics-server every 15 s"
	return []Policy{
		{Name: Declared, Title: "declared limits", Settings: "the limits of the tables, never changed"},
		{
			Name: None, Title: "no CPU limits", NoLimits: true,
			Settings: "requests and priorities as declared; the kernel divides CPU by requests",
		},
		{
			Name: Static, Title: "static cap", NoLimits: true, Cap: true,
			Settings: "only the batch job has a limit: two cores less what the services use after the event, less " +
				"200m for the system, by hand; it knows the load in advance, and no other cap was tried",
		},
		{
			Name: MBCAS, Title: "MBCAS", MBCAS: true,
			Settings: "declared limits at the start; the installation's default settings, with the component " +
				"weights, which the cell's namespace does not allow",
		},
		{
			Name: Weights, Title: "MBCAS with weights", MBCAS: true, Weights: true,
			Settings: "as MBCAS, in a namespace that allows weights (mbcas.io/weights=allow); the program that " +
				"writes them runs as root on the node, in all cells",
		},
		{
			Name: VPAInPlace, Title: "VPA, as shipped", VPA: "InPlaceOrRecreate", Learning: learning,
			Settings: shipped + "; updateMode InPlaceOrRecreate",
		},
		{Name: VPATuned, Title: "VPA, tuned", VPA: "InPlaceOrRecreate", Tuned: true, Learning: tuning, Settings: tuned},
		{
			Name: VPARecreate, Title: "VPA, as shipped, Recreate", VPA: "Recreate", Learning: learning,
			Settings: shipped + "; updateMode Recreate",
		},
		{Name: HPA, Title: "HPA, declared limits", HPA: true, Learning: scaling, Settings: hpa},
		{
			Name: HPAMBCAS, Title: "HPA and MBCAS", HPA: true, MBCAS: true, Learning: scaling,
			Settings: hpa + "; MBCAS with its default settings",
		},
	}
}

// service is a service whose load steps at the event; it has no PriorityClass.
func service(kind string, request, limit cpu.Milli, before, after float64) Workload {
	return Workload{
		Name: kind, Kind: kind, Request: request, Limit: limit, Load: []Step{{0, before}, {event, after}},
	}
}

// important is a service of which a PriorityClass tells that it matters.
func important(kind string, request, limit cpu.Milli, before, after float64) Workload {
	w := service(kind, request, limit, before, after)
	w.Class = Important
	return w
}

// batch is a job that works on more threads than the node has cores. Its declared limit is most of the node, and static
// is what a static cap sets.
func batch(kind string, request, static cpu.Milli) Workload {
	return Workload{Name: kind, Kind: kind, Request: request, Limit: 1800, Threads: 4, Cap: static}
}

func situations() []Situation { return append(usual(), extra()...) }

// usual are the situations that three hours have time for.
func usual() []Situation {
	return []Situation{
		{
			Name: "step", Title: "The load steps up, CPU is idle", Tells: true, Length: length, Event: event,
			Question: "Two services step to nine tenths of their declared limits while half of the node is idle.",
			Workloads: []Workload{
				service("web", 200, 500, 0.10, 0.45), service("nginx", 200, 500, 0.10, 0.45),
			},
			Policies: basic, More: []string{VPAInPlace, VPATuned, VPARecreate, HPA, HPAMBCAS},
		},
		{
			Name: "requests-tell", Title: "A saturating neighbour; requests and priorities tell", Tells: true,
			Length: length, Event: event,
			Question: "A compression job saturates the node. The services request what they use and have a priority.",
			Workloads: []Workload{
				important("web", 350, 600, 0.30, 0.30), important("postgres", 350, 600, 0.30, 0.30),
				batch("xz", 200, 1200),
			},
			Policies: beside, More: []string{VPAInPlace, VPATuned, VPARecreate, HPA, HPAMBCAS},
			Slow: []string{Weights},
		},
		{
			Name: "requests-mislead", Title: "A saturating neighbour; requests mislead, priorities tell",
			Tells: true, Length: length, Event: event,
			Question: "The job requests six times as much as a service. Only the PriorityClass tells what matters.",
			Workloads: []Workload{
				important("web", 100, 500, 0.30, 0.30), important("redis", 100, 500, 0.20, 0.20),
				batch("gcc", 600, 1300),
			},
			Policies: rivals, More: []string{VPAInPlace, VPARecreate, HPAMBCAS},
		},
		{
			Name: "no-priority", Title: "A saturating neighbour; nothing tells", Length: watched, Event: event,
			Question: "As before, without a PriorityClass: no policy can know that the services are important.",
			Workloads: []Workload{
				service("web", 100, 500, 0.30, 0.30), service("redis", 100, 500, 0.20, 0.20),
				batch("gcc", 600, 1300),
			},
			Policies: []string{None, MBCAS},
			More:     []string{Static, Weights, VPAInPlace, VPATuned, VPARecreate, HPA, HPAMBCAS},
		},
		{
			Name: "everybody-bursts", Title: "Everybody bursts at once", Tells: true, Length: length, Event: event,
			Question: "Three services and a matrix job want more than the node has. Services have a priority.",
			Workloads: []Workload{
				important("web", 200, 500, 0.10, 0.42), important("nginx", 200, 500, 0.10, 0.42),
				important("postgres", 200, 500, 0.10, 0.42), batch("matrix", 200, 540),
			},
			Policies: scaled, More: []string{VPAInPlace, VPATuned, VPARecreate, HPAMBCAS},
			Slow: []string{Weights},
		},
	}
}

// extra are those that they have not.
func extra() []Situation {
	return []Situation{
		{
			Name: "scale-out", Title: "The load outgrows a replica", Tells: true,
			Length: 100 * time.Second, Event: event, Extra: true, Cold: true,
			Question: "The load steps to twice the declared limit of a replica; an HPA adds replicas. Autoscalers " +
				"are not played the load before: what it shows is the reaction.",
			Workloads: []Workload{service("web", 200, 400, 0.10, 0.80)},
			Policies:  []string{Declared, None, MBCAS, HPA, HPAMBCAS},
		},
		{
			Name: "rolling-update", Title: "A rolling update under load, beside a neighbour", Tells: true,
			Length: length, Event: event, Rollout: "web", Extra: true,
			Question: "A Deployment replaces its pod while it serves, and a compiler saturates the node.",
			Workloads: []Workload{
				important("web", 200, 500, 0.25, 0.25), important("redis", 200, 500, 0.20, 0.20),
				batch("gcc", 200, 1350),
			},
			Policies: beside,
		},
	}
}
