// Package plan is what the evaluation runs, as data: situations, the policies that they are played
// under, and the cells that follow, in an order in which neighbours are different policies.
//
// Promises:
//   - Every situation fits the node, and names policies that exist: TestPlanIsSound.
//   - Cells of one repeat alternate between policies, and each repeat has another order:
//     TestInterleaved.
//   - The whole takes at most three hours, and the quick version 30 minutes, with a tenth of that to spare: TestTakes.
//   - The parts of the estimate are all of it: TestPartsAreAll.
//   - Where requests mislead, the tuned VPA and the HPA are played, and where all burst the HPA. MORE=1 plays every
//     rival in both: TestRivalsArePlayed.
//   - MBCAS with weights is played in every situation with a saturating neighbour, where nothing tells with MORE=1:
//     TestWeightsArePlayed.
//   - A static cap leaves the services what they use: TestCapsFit.
package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Step is load from a time on: CPU in cores that the requests need in the mean.
type Step struct {
	At    time.Duration `json:"at_ns"`
	Cores float64       `json:"cores"`
}

// Workload is one Deployment of a situation.
type Workload struct {
	Name    string    `json:"name"`
	Kind    string    `json:"kind"` // what mbcas-workload runs
	Request cpu.Milli `json:"request_m"`
	Limit   cpu.Milli `json:"limit_m"`
	// Class is its PriorityClass; "": none.
	Class string `json:"class,omitempty"`
	// Load is the load of a service, from the start of the measured time. The warm-up has the first step.
	Load []Step `json:"load,omitempty"`
	// Threads of a batch job work from the event to the end of the measured time.
	Threads int `json:"threads,omitempty"`
	// Cap is the limit of a batch job under a static cap: what the services leave of the node.
	Cap cpu.Milli `json:"cap_m,omitempty"`
}

// Batch reports whether it is a batch job, whose throughput counts. Else it is a service, whose latency
// counts.
func (w Workload) Batch() bool { return w.Threads > 0 }

// Situation is workloads and what happens to them.
type Situation struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	Question string `json:"question"`
	// Tells: requests or priorities tell which workload is important, so that a policy can know it.
	Tells bool `json:"tells"`
	// Length is measured; the event, a step of the load or the start of a batch job, is at Event.
	Length    time.Duration `json:"length_ns"`
	Event     time.Duration `json:"event_ns"`
	Workloads []Workload    `json:"workloads"`
	// Rollout is the service whose pods are replaced from the event on, by a rolling update; "": none.
	Rollout string `json:"rollout,omitempty"`
	// Cold: it is about the reaction to the event, so no policy sees the load before.
	Cold bool `json:"cold,omitempty"`
	// Extra: there is no time for it in three hours.
	Extra bool `json:"-"`
	// Policies are the names of those that it is played under; More are those that it is played under as well if
	// there is time, and Slow those of Policies that the quick version has no time for.
	Policies []string `json:"-"`
	More     []string `json:"-"`
	Slow     []string `json:"-"`
}

// Policy sets limits, requests or replicas.
type Policy struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Settings say how it is configured, for the page.
	Settings string `json:"settings"`
	// NoLimits: containers have no CPU limit. With Cap only batch jobs have one, their Cap.
	NoLimits bool `json:"no_limits,omitempty"`
	Cap      bool `json:"cap,omitempty"`
	// MBCAS is managing the pods. It is installed and off otherwise.
	MBCAS bool `json:"mbcas,omitempty"`
	// Weights: the cell's namespace allows MBCAS to write CPU classes and weights. The component for that runs in all
	// cells.
	Weights bool `json:"weights,omitempty"`
	// VPA is the update mode of a VerticalPodAutoscaler for each workload; "": none.
	VPA string `json:"vpa,omitempty"`
	// Tuned: the VPA has the recommender with a short history, changes requests only, keeps requests where they fit
	// the node together, and those of batch jobs low.
	Tuned bool `json:"tuned,omitempty"`
	// HPA: each service has a HorizontalPodAutoscaler.
	HPA bool `json:"hpa,omitempty"`
	// Learning is how long the situation's load after the event is played before the measured time, instead of the
	// warm-up: for policies that learn from history, or take long.
	Learning time.Duration `json:"learning_ns,omitempty"`
}

// Acts reports whether a controller of the policy watches the pods. Else there is only the kernel, which knows no age.
func (p Policy) Acts() bool { return p.MBCAS || p.HPA || p.VPA != "" }

// Plan is the whole evaluation.
type Plan struct {
	Quick bool `json:"quick"`
	// OnlyOf is the one situation that it is of; "": all.
	OnlyOf     string      `json:"only,omitempty"`
	Seed       uint64      `json:"seed"`
	Repeats    int         `json:"repeats"`
	Situations []Situation `json:"situations"`
	Policies   []Policy    `json:"policies"`
}

// Cell is one run.
type Cell struct {
	Situation Situation
	Policy    Policy
	Repeat    int
}

const (
	// MinAge is how old the pods of a policy that acts are at least at the event, from which on there are figures:
	// MBCAS lowers no limit in the first minute of a pod, and autoscalers distrust a young one.
	MinAge = 62 * time.Second
	// Warm is how long services have their first load before the measured time begins, unless the policy learns. The
	// time from there to the event has it too, and no figures.
	Warm = 15 * time.Second
	// overhead is about how long a cell takes beside what Before and Length say.
	overhead = 10 * time.Second
	// sessionTakes is about how long cluster, images and calibration take.
	sessionTakes = 4 * time.Minute
)

// Name is the name of the cell's files.
func (c Cell) Name() string {
	return fmt.Sprintf("%s--%s--%d", c.Situation.Name, c.Policy.Name, c.Repeat)
}

// Learning is how long the load after the event is played before the measured time.
func (c Cell) Learning() time.Duration {
	if c.Situation.Cold {
		return 0
	}
	return c.Policy.Learning
}

// Load is how long there is load before the measured time: the warm-up, or what the policy learns from.
func (c Cell) Load() time.Duration {
	if l := c.Learning(); l > 0 {
		return l
	}
	return Warm
}

// Age is how old the pods are at least when the measured time begins; at the event they are older by its Event.
func (c Cell) Age() time.Duration {
	if c.Policy.Acts() {
		return max(MinAge-c.Situation.Event, c.Load())
	}
	return c.Load()
}

// Takes is about how long the cell takes.
func (c Cell) Takes() time.Duration { return overhead + c.Age() + c.Situation.Length }

// Key changes when anything does that the cell's result depends on: its situation, policy and seed, whether it is
// of a part of the evaluation, and what the caller adds, such as versions, machine, calibration and the settings of the
// policy. It does not depend on what is said about them.
func (p Plan) Key(c Cell, more any) string {
	c.Situation.Title, c.Situation.Question, c.Policy.Title, c.Policy.Settings = "", "", "", ""
	text, err := json.Marshal([]any{c.Situation, c.Policy, c.Repeat, p.Seed, p.Quick, p.OnlyOf, more})
	if err != nil {
		panic(err) // plain values
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))[:16]
}

// SeedOf is the seed of the arrivals of a service: the same for every policy.
func (p Plan) SeedOf(c Cell, workload string) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %d %s", p.Seed, c.Situation.Name, c.Repeat, workload))
	var v uint64
	for _, b := range sum[:8] {
		v = v<<8 | uint64(b)
	}
	return v
}

// Policy is the one with the name.
func (p Plan) Policy(name string) (Policy, bool) {
	i := slices.IndexFunc(p.Policies, func(x Policy) bool { return x.Name == name })
	if i < 0 {
		return Policy{}, false
	}
	return p.Policies[i], true
}

// Only leaves the situation with the name, and the policies that it has; false: there is none.
func (p *Plan) Only(name string) bool {
	p.OnlyOf = name
	p.Situations = slices.DeleteFunc(p.Situations, func(s Situation) bool { return s.Name != name })
	p.Policies = slices.DeleteFunc(p.Policies, func(x Policy) bool {
		return len(p.Situations) == 0 || !slices.Contains(p.Situations[0].Policies, x.Name)
	})
	return len(p.Situations) > 0
}

// Cells are all runs in their order: repeat by repeat, so that an evaluation that stops early has whole
// repeats. Within a repeat situations are in a random order by the seed, and the policies of a situation follow
// each other in one too, so that drift of the machine hits all of them alike.
func (p Plan) Cells() (all []Cell) {
	rng := rand.New(rand.NewPCG(p.Seed, 0x706c616e))
	for repeat := 1; repeat <= p.Repeats; repeat++ {
		for _, i := range rng.Perm(len(p.Situations)) {
			s := p.Situations[i]
			order := rng.Perm(len(s.Policies))
			first := Cell{Situation: s, Policy: Policy{Name: s.Policies[order[0]]}, Repeat: repeat - 1}
			if n := len(all); n > 0 && all[n-1].Name() == first.Name() {
				order = append(order[1:], order[0]) // else a cell would follow its own repeat
			}
			for _, j := range order {
				policy, _ := p.Policy(s.Policies[j])
				all = append(all, Cell{Situation: s, Policy: policy, Repeat: repeat})
			}
		}
	}
	return all
}

// Takes is about how long everything takes.
func (p Plan) Takes() time.Duration {
	total := sessionTakes
	for _, c := range p.Cells() {
		total += c.Takes()
	}
	return total
}

// Part is a situation, a policy, or the rest of the plan, with about how long it takes in all repeats.
type Part struct {
	Name  string
	Cells int
	Takes time.Duration
}

// Parts split the estimate by a name of the cells, such as that of their policy, the longest part first. The last one
// is the cluster, the images and the calibration.
func (p Plan) Parts(name func(Cell) string) (all []Part) {
	for _, c := range p.Cells() {
		i := slices.IndexFunc(all, func(x Part) bool { return x.Name == name(c) })
		if i < 0 {
			i, all = len(all), append(all, Part{Name: name(c)})
		}
		all[i].Cells, all[i].Takes = all[i].Cells+1, all[i].Takes+c.Takes()
	}
	slices.SortStableFunc(all, func(a, b Part) int { return cmp.Compare(b.Takes, a.Takes) })
	return append(all, Part{Name: "cluster, images, calibration", Takes: sessionTakes})
}

// Kinds are the services that need a calibration, sorted.
func (p Plan) Kinds() (kinds []string) {
	for _, s := range p.Situations {
		for _, w := range s.Workloads {
			if !w.Batch() {
				kinds = append(kinds, w.Kind)
			}
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// WhyNot says why a situation is not played under a policy; "": it is.
func (p Plan) WhyNot(s Situation, name string) string {
	x, _ := p.Policy(name)
	batch := slices.ContainsFunc(s.Workloads, Workload.Batch)
	switch {
	case slices.Contains(s.Policies, name):
		return ""
	case x.Cap && !batch:
		return "there is no batch job to cap"
	case x.Weights && !batch:
		return "CPU is not scarce, so no pod gets a class or a weight"
	case s.Name == "no-priority" && name == Declared:
		return "the kernel knows no PriorityClass, so it is as where requests mislead"
	case x.Learning > 0 && p.Quick:
		return "QUICK=1 leaves out policies that are played the load before"
	case slices.Contains(s.Slow, name) && p.Quick:
		return "left out so that everything takes at most 30 minutes; without QUICK=1 it is played"
	case slices.Contains(s.More, name) && p.Quick:
		return "left out so that everything takes at most 30 minutes; MORE=1 without QUICK=1 plays it"
	case slices.Contains(s.More, name):
		return "left out so that everything takes at most three hours; MORE=1 plays it"
	}
	return "left out so that everything takes at most three hours"
}
