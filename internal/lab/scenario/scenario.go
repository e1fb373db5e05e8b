// Package scenario reads what the simulator is to play from YAML files: nodes, pods, and their load over time. It brings a
// catalogue of them along.
//
// What it promises, each a test of the same name:
//   - StrictFiles: whatever is wrong with a file is said at once, each with file, line and field, and how to put it right.
//   - SchemaIsTheStructs: schema.json names the fields that files may have, and no others.
//   - TracesOfAnyPath: recorded load of the three formats is played at the figures and times of its file.
//   - CatalogueRuns: every scenario that ships runs under every kind of policy.
//   - SetupBySeed: the same node and seed give the same set-up; other ones give other load.
package scenario

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Scenario is one file.
type Scenario struct {
	// Name is lower-case letters, digits and dashes.
	Name string `yaml:"name"`
	// Description says what it shows, in one sentence or more.
	Description string `yaml:"description"`
	Node        Node   `yaml:"node"`
	// Nodes is how many such nodes there are, each with the same pods and load of its own; 0: 1.
	Nodes int `yaml:"nodes"`
	// Length is the simulated time.
	Length time.Duration `yaml:"length"`
	// WarmUp is how much of the begin is not measured: estimates fill, queues form.
	WarmUp time.Duration `yaml:"warmUp"`
	Pods   []Pod         `yaml:"pods"`
	// LoadSteps are times at which load rises at once. They are found in the profiles; where the file names any, these count instead.
	LoadSteps []time.Duration `yaml:"loadSteps"`
	// Reference is the name of the scenario in which this one's liars tell the truth, and all else is the same.
	Reference string `yaml:"reference"`
	// Quotas and Outages concern MBCAS; the policies that it is compared with ignore them.
	Quotas  []Quota  `yaml:"quotas"`
	Outages []Outage `yaml:"outages"`
}

// Quota is a ResourceQuota of a namespace.
type Quota struct {
	Namespace string `yaml:"namespace"`
	// Limits is the sum of the CPU limits that it allows.
	Limits cpu.Milli `yaml:"limits"`
}

// Outage is a time in which the agent of every node does not run.
type Outage struct {
	At     time.Duration `yaml:"at"`
	Length time.Duration `yaml:"length"`
}

// Node is a machine.
type Node struct {
	Cores int `yaml:"cores"`
	// Allocatable is what Kubernetes may give to pods; 0: all cores.
	Allocatable cpu.Milli `yaml:"allocatable"`
	// SystemUsage is what runs outside of pods uses, on average, in requests of 2 ms.
	SystemUsage cpu.Milli `yaml:"systemUsage"`
}

// Pod is a pod, or several that differ in their number only.
type Pod struct {
	// Name is unique in the scenario; replicas are Name-1, Name-2 and so on.
	Name string `yaml:"name"`
	// Namespace is "default" where it is empty.
	Namespace string `yaml:"namespace"`
	// Workload is what the pod is a replica of, for policies that scale out. A pod that serves requests is a workload of its own
	// where it is empty.
	Workload string    `yaml:"workload"`
	Role     Role      `yaml:"role"`
	Request  cpu.Milli `yaml:"request"` // 0: none
	Limit    cpu.Milli `yaml:"limit"`   // as declared; 0: none
	Priority int32     `yaml:"priority"`
	// Replicas is how many such pods there are; 0: 1.
	Replicas int `yaml:"replicas"`
	// Parallelism is how many requests it works on at a time, its threads; 0: one per core.
	Parallelism int `yaml:"parallelism"`
	// OptOut leaves its limit alone.
	OptOut bool `yaml:"optOut"`
	// Start and End are when it comes and goes; End 0: it stays.
	Start time.Duration `yaml:"start"`
	End   time.Duration `yaml:"end"`
	// StartInterval is how much later than the one before it each replica comes and goes.
	StartInterval time.Duration `yaml:"startInterval"`
	// Stagger is how much later than that of the one before it each replica's load changes.
	Stagger time.Duration `yaml:"stagger"`
	Load    Load          `yaml:"load"`

	// Constraints are what Kubernetes objects demand of its limit. Policies that MBCAS is compared with ignore them.
	Constraints Constraints `yaml:"constraints"`
	// ReadyTimeout is that of a readiness probe, which fails while a request waits longer; 0: no probe. Three failures, 10 s
	// apart, make the pod not Ready.
	ReadyTimeout time.Duration `yaml:"readyTimeout"`
	// ExternalChanges are limits that another writer sets.
	ExternalChanges []ExternalChange `yaml:"externalChanges"`
}

// Constraints are what Kubernetes objects demand of the limit of a pod.
type Constraints struct {
	Floor   cpu.Milli `yaml:"floor"`   // such as that of an HPA; 0: none
	Ceiling cpu.Milli `yaml:"ceiling"` // such as that of a LimitRange; 0: none
	// NoDecrease keeps the limit at least as declared, as an HPA does by default, or a PDB that allows no disruption.
	NoDecrease bool `yaml:"noDecrease"`
	// HPA says that an HPA watches the pod: its limit is decreased every five minutes at most.
	HPA bool `yaml:"hpa"`
}

// ExternalChange is a limit that another writer sets at a time.
type ExternalChange struct {
	At    time.Duration `yaml:"at"`
	Limit cpu.Milli     `yaml:"limit"`
}

// Role is what a pod stands for in the results.
type Role string

const (
	Service Role = "service" // its latency counts
	Batch   Role = "batch"   // its throughput counts
	Honest  Role = "honest"  // it may lose by liars
	Liar    Role = "liar"    // it uses more CPU than it has work for, or splits up, to get more
	Other   Role = "other"   // it is there, and nothing about it counts
)

// Roles are all roles.
var Roles = []Role{Service, Batch, Honest, Liar, Other}

// Load is what a pod has to do. A pod with both is busy beyond its work: a liar.
type Load struct {
	Requests *Requests `yaml:"requests"`
	// Spin is how many threads do nothing but use CPU, rounded.
	Spin *Profile `yaml:"spin"`
}

// Requests is a stream of requests whose clients do not wait for answers before they send the next one.
type Requests struct {
	// Rate is requests per second.
	Rate Profile `yaml:"rate"`
	// ServiceTime is the mean CPU time of a request.
	ServiceTime time.Duration `yaml:"serviceTime"`
	// Distribution is how CPU times lie around their mean: fixed or exponential; empty: exponential.
	Distribution Distribution `yaml:"distribution"`
	// EvenlySpaced requests come at equal distances; otherwise at random ones (a Poisson process).
	EvenlySpaced bool `yaml:"evenlySpaced"`
}

// Distribution is a distribution of CPU times.
type Distribution string

const (
	Fixed       Distribution = "fixed"
	Exponential Distribution = "exponential"
)
