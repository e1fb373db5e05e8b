// Package whatif answers what the market would have decided, on what it saw, with other settings. It runs the rounds of a
// recording twice: as they were, and changed.
//
// The answer is about decisions. The counters stay those recorded, and so do the limits in force that they were measured
// under: what the pods would have done with other limits is not played. Both runs leave out the looks between rounds and
// the pods that join between them, so they compare like with like.
//
// Promises:
//   - Without a change both runs are equal: TestNoChange.
//   - A change that gives a pod more budget, or the market more to sell, withholds no more in sum: TestChanges.
package whatif

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
)

// Change is what is otherwise.
type Change struct {
	// Reserve replaces the reserve of the agent; nil: as recorded.
	Reserve *float64
	// Off: MBCAS is off, and every pod has its declared limits.
	Off  bool
	Pods []PodChange
}

// PodChange is what is otherwise about the pods of a pattern.
type PodChange struct {
	// Pattern is NAMESPACE/NAME, with * for any characters, as path.Match has it.
	Pattern string
	// Priority is the value of a PriorityClass; nil: as recorded.
	Priority *int32
	// Request and MaxCPU are of the pod; 0: as recorded.
	Request, MaxCPU cpu.Milli
	// OptOut: MBCAS does not manage the pods.
	OptOut bool
}

// Validate returns every fault, joined.
func (c Change) Validate() error {
	var errs []error
	for _, p := range c.Pods {
		if _, err := path.Match(p.Pattern, "a/b"); err != nil {
			errs = append(errs, fmt.Errorf("pattern %q: %w", p.Pattern, err))
		}
		if p.Request < 0 || p.MaxCPU < 0 {
			errs = append(errs, fmt.Errorf("pattern %q: CPU is below 0", p.Pattern))
		}
	}
	cfg := round.DefaultConfig()
	c.config(&cfg)
	return errors.Join(append(errs, cfg.Validate())...)
}

func (c Change) config(cfg *round.Config) {
	if c.Reserve != nil {
		cfg.Reserve = *c.Reserve
	}
}

// Run is what one of the two runs gives.
type Run struct {
	// Scarce is the time with a price.
	Scarce time.Duration `json:"scarce"`
	// Price and Supply are means over the time.
	Price  float64   `json:"price"`
	Supply cpu.Milli `json:"supply"`
	// Withheld is the demand above the limits decided, times the time, of all pods.
	Withheld time.Duration `json:"withheld"`
}

// Pod is a pod in both runs.
type Pod struct {
	Pod    string `json:"pod"`
	Before PodRun `json:"before"`
	After  PodRun `json:"after"`
}

// PodRun is a pod in one run.
type PodRun struct {
	// Limit is the mean of the limits decided, or of its declared limits where MBCAS is off or does not manage it.
	Limit cpu.Milli `json:"limit"`
	// Withheld is its demand above that limit, times the time.
	Withheld time.Duration `json:"withheld"`
	// Published counts decisions to publish.
	Published int `json:"published"`
	// OptedOut: the change takes it out of the market, so nothing estimates its demand.
	OptedOut bool `json:"optedOut,omitempty"`
}

// Comparison is a recording as it was, and changed.
type Comparison struct {
	Node    string        `json:"node"`
	From    time.Time     `json:"from"`
	To      time.Time     `json:"to"`
	Covered time.Duration `json:"covered"`
	Matched int           `json:"matched"` // pods that a pattern of the change matches
	Before  Run           `json:"before"`
	After   Run           `json:"after"`
	// Pods are those whose limits differ, the one that loses most first.
	Pods []Pod `json:"pods"`
}

// Decide runs a recording as it was and changed.
func Decide(rec *record.Recording, change Change) (Comparison, error) {
	c := Comparison{Node: rec.About.Node}
	if err := change.Validate(); err != nil {
		return c, err
	}
	if n := len(rec.Minutes); n > 0 {
		c.From, c.To = rec.Minutes[0].From, rec.Minutes[n-1].To
	}
	before, after := newPass(Change{}), newPass(change)
	var running sync.WaitGroup
	errs := make([]error, 2)
	for i, p := range []*pass{before, after} {
		running.Go(func() { errs[i] = p.play(rec) })
	}
	if running.Wait(); errs[0] != nil { // both read the same
		return c, errs[0]
	}
	c.Covered, c.Matched = before.covered, len(after.matched)
	c.Before, c.After = before.run(), after.run()
	for _, name := range slices.Sorted(maps.Keys(before.pods)) {
		b, a := before.pods[name], after.pods[name]
		if a == nil || b.mean() == a.mean() && b.Withheld == a.Withheld {
			continue
		}
		c.Pods = append(c.Pods, Pod{name, b.run(), a.run()})
	}
	slices.SortStableFunc(c.Pods, func(x, y Pod) int { return cmp.Compare(x.After.Limit-x.Before.Limit, y.After.Limit-y.Before.Limit) })
	return c, nil
}

// pass is one run over a recording.
type pass struct {
	change    Change
	cfg       round.Config
	state     round.State
	published map[string]round.Published // by UID
	last      time.Time

	covered time.Duration
	scarce  time.Duration
	price   float64 // times seconds
	supply  float64
	pods    map[string]*podSums // by name
	matched map[string]bool
}

type podSums struct {
	PodRun
	limit  float64 // times seconds
	lasted time.Duration
}

func newPass(c Change) *pass {
	return &pass{change: c, published: map[string]round.Published{}, pods: map[string]*podSums{}, matched: map[string]bool{}}
}

// play runs all minutes. The state goes on from one to the next, as it is another than the recorded one.
func (p *pass) play(rec *record.Recording) error {
	seq := uint64(0)
	for _, m := range rec.Minutes {
		goesOn := seq > 0 && m.Seq == seq+1
		seq = m.Seq
		err := replay.Read(m, func(k *record.Keyframe) error {
			p.cfg = k.Config
			if p.change.config(&p.cfg); !goesOn {
				p.state, p.published, p.last = k.State, map[string]round.Published{}, time.Time{}
			}
			return nil
		}, func(e *record.Event) error {
			if e.Round != nil {
				p.round(e)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) round(e *record.Event) {
	in := *e.Round
	in.Pods = slices.Clone(in.Pods)
	for i := range in.Pods {
		pod := &in.Pods[i]
		if i < len(e.Names) {
			p.changePod(e.Names[i], pod)
		}
		if was, known := p.published[pod.UID]; known {
			pod.Published = was
		}
	}
	var out round.Output
	p.state, out = round.Run(p.cfg, p.state, in)
	elapsed := in.Now.Sub(p.last)
	counts := !p.last.IsZero() && elapsed > 0 && elapsed <= p.cfg.LongestGap
	p.last = in.Now
	for i := range out.Decisions {
		p.decided(e, in.Now, &out.Decisions[i])
	}
	if counts {
		p.count(e, in, &out, elapsed)
	}
}

// changePod applies what the change says of a pod.
func (p *pass) changePod(name record.Name, pod *round.PodInput) {
	for _, c := range p.change.Pods {
		text := name.Namespace + "/" + name.Name
		if ok, _ := path.Match(c.Pattern, text); !ok || pod.Unmanaged {
			continue
		}
		p.matched[text] = true
		pod.Unmanaged = pod.Unmanaged || c.OptOut
		if c.MaxCPU > 0 {
			if pod.Ceiling == 0 || c.MaxCPU < pod.Ceiling {
				pod.Ceiling = c.MaxCPU
			}
		}
		if c.Priority != nil {
			pod.PriorityPercent = int32(math.Round(100 * demand.PriorityMultiplier(*c.Priority)))
		}
		if c.Request > 0 {
			pod.Containers = withRequest(pod.Containers, c.Request)
		}
		pod.Budget = pod.Weights.Budget(requestOf(pod.Containers))
	}
}

func requestOf(containers []demand.Container) (sum cpu.Milli) {
	for _, c := range containers {
		sum += c.Request
	}
	return sum
}

// withRequest divides a request of the pod in proportion to those of its containers. Their bounds follow, where no
// constraint sets them higher.
func withRequest(containers []demand.Container, request cpu.Milli) []demand.Container {
	sum, out := requestOf(containers), slices.Clone(containers)
	for i := range out {
		c := &out[i]
		before := *c
		if c.Request = request / cpu.Milli(len(out)); sum > 0 {
			c.Request = cpu.Milli(math.Round(float64(before.Request) * float64(request) / float64(sum)))
		}
		if !c.Limited() {
			continue
		}
		floor := before.Floor
		if floor <= before.Within(0, before.Ceiling).Floor { // that of the request
			floor = 0
		}
		*c = c.Within(floor, c.Ceiling)
	}
	return out
}

// decided takes in a decision as the controller and the agent's next rounds would.
func (p *pass) decided(e *record.Event, now time.Time, d *round.Decision) {
	if !d.Publish {
		return
	}
	limits := make(map[string]cpu.Milli, len(d.Containers))
	for _, c := range d.Containers {
		limits[c.Name] = c.Limit
	}
	p.published[d.UID] = round.Published{
		At: now, Limits: limits, Demand: d.Demand, Price: d.Price, Bound: d.Bound, ThrottleRatio: d.ThrottleRatio,
	}
	if d.Pod < len(e.Names) {
		p.of(e.Names[d.Pod]).Published++
	}
}

func (p *pass) of(n record.Name) *podSums {
	name := n.Namespace + "/" + n.Name
	if p.pods[name] == nil {
		p.pods[name] = &podSums{}
	}
	return p.pods[name]
}

// count adds a round up.
func (p *pass) count(e *record.Event, in round.Input, out *round.Output, elapsed time.Duration) {
	seconds := elapsed.Seconds()
	p.covered += elapsed
	p.supply += seconds * out.Node.Supply.Cores()
	if !p.change.Off {
		p.price += seconds * float64(out.Node.Price)
		if out.Node.Price > 0 {
			p.scarce += elapsed
		}
	}
	add := func(i int, limit, wants cpu.Milli) {
		if i >= len(e.Names) {
			return
		}
		s := p.of(e.Names[i])
		s.limit += seconds * limit.Cores()
		s.lasted += elapsed
		s.Withheld += time.Duration(max(0, wants-limit).Cores() * float64(elapsed))
	}
	for i := range out.Decisions {
		d := &out.Decisions[i]
		limit := d.Limit
		if was, known := p.published[d.UID]; known {
			limit = 0
			for _, l := range was.Limits {
				limit += l
			}
		}
		if p.change.Off {
			limit = declaredOf(in.Pods[d.Pod].Containers)
		}
		add(d.Pod, limit, d.Demand)
	}
	for i := range in.Pods {
		if pod, was := &in.Pods[i], &e.Round.Pods[i]; pod.Unmanaged && !was.Unmanaged { // it has opted out
			if add(i, declaredOf(pod.Containers), 0); i < len(e.Names) {
				p.of(e.Names[i]).OptedOut = true
			}
		}
	}
}

func declaredOf(containers []demand.Container) (sum cpu.Milli) {
	for _, c := range containers {
		if c.Limited() {
			sum += c.Declared
		}
	}
	return sum
}

func (p *pass) run() Run {
	r := Run{Scarce: p.scarce}
	for _, s := range p.pods {
		r.Withheld += s.Withheld
	}
	if seconds := p.covered.Seconds(); seconds > 0 {
		r.Price, r.Supply = p.price/seconds, cpu.FromCores(p.supply/seconds)
	}
	return r
}

func (s *podSums) mean() cpu.Milli {
	if s.lasted == 0 {
		return 0
	}
	return cpu.FromCores(s.limit / s.lasted.Seconds())
}

func (s *podSums) run() PodRun {
	r := s.PodRun
	r.Limit = s.mean()
	return r
}
