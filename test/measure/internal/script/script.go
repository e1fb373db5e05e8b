// Package script is what a measurement plays: workloads, runs, phases of load, and the figures and
// targets drawn from them. It is read from YAML. Every run plays the same load, so that runs differ
// in their limits alone.
//
// Promises:
//   - A script with an unknown field, name or figure is refused, with the place of the mistake:
//     TestMistakes.
//   - The same seed gives every workload the same requests in every run:
//     TestArrivalsDependOnSeedAlone.
//   - The scripts that ship are valid, and the short demo leaves time for the cluster:
//     TestShippedScripts.
package script

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Script is one file.
type Script struct {
	Name  string `yaml:"name"`
	Title string `yaml:"title"`
	// RequestCPU is the CPU time of one request.
	RequestCPU time.Duration `yaml:"requestCPU"`
	// Addons of the local cluster that it needs.
	Addons     []string `yaml:"addons"`
	Namespaces []string `yaml:"namespaces"`
	// Classes are PriorityClasses and their values. None of them preempts.
	Classes   map[string]int32 `yaml:"priorityClasses"`
	Quota     *Quota           `yaml:"quota"`
	NewPods   *NewPods         `yaml:"newPods"`
	Workloads []Workload       `yaml:"workloads"`
	// Service and Hog are the pods that a phase is about, where it does not name its own.
	Service string    `yaml:"service"`
	Hog     string    `yaml:"hog"`
	Runs    []Run     `yaml:"runs"`
	Phases  []Phase   `yaml:"phases"`
	React   *Reaction `yaml:"reaction"`
	// Restore: at the end every pod returns to its declared limits, and that is checked.
	Restore  bool     `yaml:"restore"`
	Headline Headline `yaml:"headline"`
	Rows     []Row    `yaml:"rows"`
	Charts   []Chart  `yaml:"charts"`
	Targets  []Target `yaml:"targets"`
}

// Kinds of workloads.
const (
	Serve = "serve" // works on requests
	Spin  = "spin"  // uses CPU in some phases
)

// Workload is one Deployment of pods with one container, or Count of them.
type Workload struct {
	Name      string    `yaml:"name"`
	Count     int       `yaml:"count"` // 0: one; else they are Name-1, Name-2 and so on
	Namespace string    `yaml:"namespace"`
	Kind      string    `yaml:"kind"`    // Serve where it is empty
	Threads   int       `yaml:"threads"` // that spin all the time
	Request   cpu.Milli `yaml:"request"` // 0: none
	Limit     cpu.Milli `yaml:"limit"`   // as declared; 0: none
	Class     string    `yaml:"priorityClass"`
	MaxCPU    cpu.Milli `yaml:"maxCPU"` // annotation mbcas.io/max-cpu; 0: none
	OptOut    bool      `yaml:"optOut"`
	// Untouched is the reason for which MBCAS must never change its pods.
	Untouched string `yaml:"untouched"`
	HPA       *HPA   `yaml:"hpa"`

	group string
}

// Managed says whether MBCAS may change the limit.
func (w Workload) Managed() bool { return w.Untouched == "" }

// Group is the name in the file, which Count workloads share.
func (w Workload) Group() string { return w.group }

// HPA scales a workload on the utilization of its CPU request, in percent.
type HPA struct {
	Utilization     int32         `yaml:"utilization"`
	MaxReplicas     int32         `yaml:"maxReplicas"`
	ScaleDownWindow time.Duration `yaml:"scaleDownWindow"`
}

// Quota is a ResourceQuota on limits.cpu. MBCAS leaves Headroom percent of it free.
type Quota struct {
	Namespace string    `yaml:"namespace"`
	LimitsCPU cpu.Milli `yaml:"limitsCPU"`
	Headroom  int64     `yaml:"headroom"`
}

// Mark is the most that MBCAS may use of the quota.
func (q Quota) Mark() cpu.Milli { return q.LimitsCPU - q.LimitsCPU*cpu.Milli(q.Headroom)/100 }

// NewPods come and go during the phases.
type NewPods struct {
	Namespace string        `yaml:"namespace"`
	First     time.Duration `yaml:"first"`
	Every     time.Duration `yaml:"every"`
	Stay      time.Duration `yaml:"stay"`
	Request   cpu.Milli     `yaml:"request"`
	Limit     cpu.Milli     `yaml:"limit"`
}

// Run plays the phases once.
type Run struct {
	Name  string `yaml:"name"`
	Title string `yaml:"title"`
	// Mode of MBCAS in the namespaces.
	Mode string `yaml:"mode"`
	// NoLimits: workloads that MBCAS may manage have no CPU limit.
	NoLimits bool `yaml:"noLimits"`
	// KeepPods plays with the pods of the run before.
	KeepPods bool `yaml:"keepPods"`
	// MinAge is how old the youngest pod is before the run begins: MBCAS lowers no limit in a pod's
	// first minute.
	MinAge time.Duration `yaml:"minAge"`
}

// Phase is a time in which the load does not change.
type Phase struct {
	Name string `yaml:"name"`
	// Short and Full are its length in the short and the full version; 0: it is left out.
	Short time.Duration `yaml:"short"`
	Full  time.Duration `yaml:"full"`
	// Runs that play it; empty: all.
	Runs  []string           `yaml:"runs"`
	Rates map[string]float64 `yaml:"rates"` // requests per second by workload
	Spin  []string           `yaml:"spin"`  // workloads that spin
	// Service and Hog are the pods that the phase is about.
	Service string  `yaml:"service"`
	Hog     string  `yaml:"hog"`
	Moving  *Moving `yaml:"moving"`
}

// Moving is load of which other workloads of a group get much in each turn.
type Moving struct {
	Workload  string        `yaml:"workload"`
	Every     time.Duration `yaml:"every"`
	Busy      int           `yaml:"busy"` // busy workloads in each turn
	BusyRates []float64     `yaml:"busyRates"`
	IdleRate  float64       `yaml:"idleRate"`
}

// Kinds of reactions.
const (
	// Freed: a hog stops as the load of a pod steps up.
	Freed = "freed"
	// OwnDecrease: the limit of the hog was lowered in the last two seconds, and what took its CPU stops.
	OwnDecrease = "own decrease"
	// OtherDecrease: the load of a pod steps up while a decrease of the hog is in flight.
	OtherDecrease = "other's decrease"
	// NewPodUnderLoad: a pod starts that needs more than its declared limit, and the node has room.
	NewPodUnderLoad = "new pod"
)

// Reaction measures the time from a step of the load to the kernel's quota.
type Reaction struct {
	Short int      `yaml:"short"` // how often, of each kind
	Full  int      `yaml:"full"`
	Kinds []string `yaml:"kinds"`
	// Hog fills the node. Where its own limit is measured it has HogLimit, and MBCAS does not raise it above that.
	Hog      string    `yaml:"hog"`
	HogLimit cpu.Milli `yaml:"hogLimit"`
	// Beside takes CPU from the hog, so that its limit is lowered.
	Beside string `yaml:"beside"`
	// Pod is what starts for each step at its declared limit, and of which Threads spin from the step on.
	Pod Workload `yaml:"pod"`
}

// Steps is how often it is measured, of each kind.
func (r *Reaction) Steps(full bool) int {
	switch {
	case r == nil:
		return 0
	case full:
		return r.Full
	}
	return r.Short
}

// Where is a service in a phase.
type Where struct {
	Service string `yaml:"service"`
	Phase   string `yaml:"phase"`
}

// Headline names what the first keys of summary.json are about.
type Headline struct {
	P99       Where  `yaml:"p99"`
	Throttled Where  `yaml:"throttled"`
	Steady    string `yaml:"steady"` // the phase of steady load
}

// Row is a line of the table: one figure in every run.
type Row struct {
	Title  string `yaml:"title"`
	Figure string `yaml:"figure"`
	Where  `yaml:",inline"`
}

// Chart is one panel of the picture.
type Chart struct {
	Kind  string `yaml:"kind"`
	Title string `yaml:"title"`
	Run   string `yaml:"run"` // for kinds that draw one run
}

// Target is what a figure is to be. A target without a bound is about something that must never
// happen.
type Target struct {
	Title  string `yaml:"title"`
	Figure string `yaml:"figure"`
	Where  `yaml:",inline"`
	Phases []string `yaml:"phases"`
	Run    string   `yaml:"run"`
	// Over is the run to compare with.
	Over   string   `yaml:"over"`
	AtMost *float64 `yaml:"atMost"`
	Below  *float64 `yaml:"below"`
	Above  *float64 `yaml:"above"`
	Unit   string   `yaml:"unit"`
	// Full: the short phases are too short for it.
	Full bool `yaml:"full"`
}

// Find is the workload of that name.
func (s *Script) Find(name string) (Workload, bool) {
	for _, w := range s.Workloads {
		if w.Name == name {
			return w, true
		}
	}
	return Workload{}, false
}
