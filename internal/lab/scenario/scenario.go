// Package scenario reads simulations from YAML files: nodes, pods, and their load over time. It has
// a catalogue of them.
//
// What it promises, each a test of the same name:
//   - StrictFiles: everything that is wrong with a file is reported at once, with file, line, field
//     and a hint.
//   - SchemaIsTheStructs: the schema names every field that files may have, explains it, and has its
//     bounds and words.
//   - TracesOfAnyPath: recorded load of the three formats has the values and times of its file.
//   - RecordedLoad: the path of such a file is a scenario.
//   - CatalogueRuns: every scenario that ships runs under every kind of policy.
//   - SetupBySeed: the same node and seed give the same set-up; another one gives other load.
package scenario

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
)

// Scenario is one file.
type Scenario struct {
	// Name is lower-case letters, digits and dashes.
	Name string `yaml:"name" want:"required name"`
	// Description is one sentence or more.
	Description string `yaml:"description" want:"required"`
	// Node is the machine.
	Node Node `yaml:"node" want:"required"`
	// Nodes is how many such nodes there are, each with the same pods and load of its own; 0: 1.
	Nodes int `yaml:"nodes" want:"default=1 min=1 max=10000"`
	// Length is the simulated time.
	Length time.Duration `yaml:"length" want:"required above=0s"`
	// WarmUp is the time at the start that is not measured: estimates fill, queues form.
	WarmUp time.Duration `yaml:"warmUp"`
	// Pods are those of each node.
	Pods []Pod `yaml:"pods" want:"required"`
	// LoadSteps are times at which load steps up. Without any they are found in the profiles.
	LoadSteps []time.Duration `yaml:"loadSteps"`
	// Reference is the name of the scenario to compare with: the same, but its liars are honest.
	Reference string `yaml:"reference" want:"name"`
	// Quotas are ResourceQuotas of namespaces. Policies other than MBCAS ignore them.
	Quotas []Quota `yaml:"quotas"`
	// Outages are times in which the agents of MBCAS do not run.
	Outages []Outage `yaml:"outages"`
}

// Quota is a ResourceQuota of a namespace.
type Quota struct {
	Namespace string `yaml:"namespace" want:"required name"` // that it belongs to
	// Limits is the sum of the CPU limits that it allows.
	Limits cpu.Milli `yaml:"limits" want:"required above=0"`
}

// Outage is a time in which the agent of every node does not run.
type Outage struct {
	At       time.Duration `yaml:"at"`                              // start
	Duration time.Duration `yaml:"length" want:"required above=0s"` // how long it lasts
}

// Node is a machine.
type Node struct {
	Cores int `yaml:"cores" want:"required min=1 max=1024"` // of the CPU
	// Allocatable is what Kubernetes may give to pods; 0: all cores.
	Allocatable cpu.Milli `yaml:"allocatable"`
	// SystemUsage is the mean CPU usage outside of pods, in requests of 2 ms.
	SystemUsage cpu.Milli `yaml:"systemUsage"`
	// ResizeCost is the CPU time that a resize by a policy takes outside of pods, as that of kubelet and container runtime.
	// Cgroups that a policy writes itself cost nothing.
	ResizeCost time.Duration `yaml:"resizeCost"`
}

// Pod is a pod, or several replicas of it.
type Pod struct {
	// Name is unique in the scenario; replicas are Name-1, Name-2 and so on.
	Name string `yaml:"name" want:"required name"`
	// Namespace is "default" where it is empty.
	Namespace string `yaml:"namespace" want:"default=default name"`
	// Workload is the workload of the pod, for policies that scale out. A pod that serves requests
	// is a workload of its own where it is empty.
	Workload string    `yaml:"workload" want:"name"`
	Role     Role      `yaml:"role" want:"required oneof=service,batch,honest,liar,other"` // in the results
	Request  cpu.Milli `yaml:"request"`                                                    // 0: none
	Limit    cpu.Milli `yaml:"limit"`                                                      // as declared; 0: none
	Priority int32     `yaml:"priority"`                                                   // value of its PriorityClass
	// Replicas is the number of such pods; 0: 1.
	Replicas int `yaml:"replicas" want:"default=1 min=1 max=10000"`
	// Parallelism is the number of requests in progress at a time, its threads; 0: one per core.
	Parallelism int `yaml:"parallelism" want:"min=0 max=4096"`
	// OptOut makes it unmanaged.
	OptOut bool          `yaml:"optOut"`
	Start  time.Duration `yaml:"start"` // of its life
	End    time.Duration `yaml:"end"`   // of its life; 0: it runs to the end
	// StartInterval is how much later each replica starts and ends than the previous one.
	StartInterval time.Duration `yaml:"startInterval"`
	// Stagger is how much later each replica's load changes than the previous one's.
	Stagger time.Duration `yaml:"stagger"`
	// Load is its load; without any it is idle.
	Load Load `yaml:"load"`

	// Constraints are what Kubernetes objects demand of its limit. Policies that MBCAS is compared
	// with ignore them.
	Constraints Constraints `yaml:"constraints"`
	// ReadyTimeout is that of a readiness probe, which fails while a request waits longer; 0: no
	// probe. Three failures, 10 s apart, make the pod not Ready.
	ReadyTimeout time.Duration `yaml:"readyTimeout"`
	// ExternalChanges are limits that another writer sets.
	ExternalChanges []ExternalChange `yaml:"externalChanges"`
}

// Constraints are what Kubernetes objects demand of the limit of a pod.
type Constraints struct {
	Floor   cpu.Milli `yaml:"floor"`   // such as that of an HPA; 0: none
	Ceiling cpu.Milli `yaml:"ceiling"` // such as that of a LimitRange; 0: none
	// NoDecrease keeps the limit at least as declared, as an HPA does by default, or a PDB that
	// allows no disruption.
	NoDecrease bool `yaml:"noDecrease"`
	// HPA says that an HPA watches the pod: its limit is decreased every five minutes at most.
	HPA bool `yaml:"hpa"`
}

// ExternalChange is a limit that another writer sets at a time.
type ExternalChange struct {
	At    time.Duration `yaml:"at"`                    // when
	Limit cpu.Milli     `yaml:"limit" want:"required"` // from then on
}

// Role is the role of a pod in the results.
type Role string

const (
	Service Role = "service" // its latency counts
	Batch   Role = "batch"   // its throughput counts
	Honest  Role = "honest"  // it may lose to liars
	Liar    Role = "liar"    // it uses CPU without work, or splits its request, to get more
	Other   Role = "other"   // it does not count
)

// Load is the load of a pod. With both kinds it also uses CPU that serves no request: a liar.
type Load struct {
	Requests *Requests `yaml:"requests"` // from outside
	// Spin is the number of threads that use CPU without requests, rounded.
	Spin *Profile `yaml:"spin" want:"max=4096"`
}

// Requests is a stream of requests whose clients do not wait for answers before they send the next
// one.
type Requests struct {
	// Rate is requests per second.
	Rate Profile `yaml:"rate" want:"required max=1e6"`
	// ServiceTime is the mean CPU time of a request.
	ServiceTime time.Duration `yaml:"serviceTime" want:"required min=1us max=1m"`
	// Distribution is that of CPU times: fixed or exponential; empty: exponential.
	Distribution load.Distribution `yaml:"distribution" want:"default=exponential oneof=fixed,exponential"`
	// EvenlySpaced requests arrive at equal intervals; otherwise they are a Poisson process.
	EvenlySpaced bool `yaml:"evenlySpaced"`
}
