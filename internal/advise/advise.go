// Package advise derives CPU requests and limits from recordings: percentiles of the demand of each second, of all
// pods of a workload together.
//
// In a second in which a container was hindered by nothing its demand is its usage, which is measured. In one in which it
// was throttled or waited for a CPU its demand is an estimate, the one that the market uses. The advice says which share of the
// time that was, and between which values the percentile lies in the fifths of the time: how far it depends on when it was
// recorded.
//
// Promises:
//   - A percentile is that of the sorted demands, and hindered seconds count with their estimate: TestPercentiles.
//   - A container that was throttled at its limit is advised a higher one, however much it was throttled: TestHindered.
//   - The class of service of a pod stays, and a limit is never below its request: TestKeepsClass, TestUnmanaged.
//   - Without enough time there is no advice, and the reason is given: TestTooShort.
package advise

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/sense"
)

// Config is how advice is derived.
type Config struct {
	// RequestPercentile and LimitPercentile are those of the demand of a second, in percent. Higher reserves more;
	// lower leaves more seconds without their demand.
	RequestPercentile, LimitPercentile float64
	// Headroom is added as a share. More protects from growth and from bursts shorter than a second; less packs tighter.
	Headroom float64
	// Least is the time that a container must have been seen. Longer is safer.
	Least time.Duration
}

// DefaultConfig reserves what nine of ten seconds need, and limits one of a hundred.
func DefaultConfig() Config {
	return Config{RequestPercentile: 90, LimitPercentile: 99, Headroom: 0.15, Least: 10 * time.Minute}
}

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var errs []error
	for name, p := range map[string]float64{"request": c.RequestPercentile, "limit": c.LimitPercentile} {
		if !(p > 0 && p <= 100) {
			errs = append(errs, fmt.Errorf("the %s percentile is %v: want more than 0 and at most 100", name, p))
		}
	}
	if !(c.Headroom >= 0 && c.Headroom <= 10) {
		errs = append(errs, fmt.Errorf("the headroom is %v: want 0 to 10", c.Headroom))
	}
	if c.Least < 0 {
		errs = append(errs, fmt.Errorf("the least time is %v: want 0 or more", c.Least))
	}
	return errors.Join(errs...)
}

// Workload names the workload of a pod, such as Deployment/cart; false: it is left out.
type Workload func(record.Name) (name string, ok bool)

// Key is a container of a workload.
type Key struct {
	Namespace string `json:"namespace"`
	Workload  string `json:"workload"`
	Container string `json:"container"`
}

// Amounts are a request and a limit; 0: none.
type Amounts struct {
	Request cpu.Milli `json:"request"`
	Limit   cpu.Milli `json:"limit"`
}

// Range is the lowest and the highest of the values in the fifths of the time, without headroom.
type Range struct {
	Low  cpu.Milli `json:"low"`
	High cpu.Milli `json:"high"`
}

// Advice is that for a container.
type Advice struct {
	Key
	Pods int `json:"pods"`
	// Covered is the time with counters, of all pods together, and Hindered the share of it with an estimated demand.
	Covered  time.Duration `json:"covered"`
	Hindered float64       `json:"hindered"`
	// Declared is what the pod has now.
	Declared Amounts `json:"declared"`
	// Advised is absent where Reason says why.
	Advised *Amounts `json:"advised,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	// Burstable are the request and limit by the percentiles of a container whose request and limit are equal, or whose pod
	// has neither: MBCAS manages no Guaranteed and no BestEffort pod. It is absent for others.
	Burstable *Amounts `json:"burstable,omitempty"`
	// Requests and Limits are the ranges of the two percentiles.
	Requests Range `json:"requests"`
	Limits   Range `json:"limits"`
}

// Seen are the demands of containers, as far as recordings were added.
type Seen struct {
	// From and To are the time that the recordings cover.
	From, To time.Time
	// Unknown counts the pods whose workload is not known.
	Unknown int

	containers map[Key]*container
}

// container is what was seen of the containers of that name of a workload.
type container struct {
	pods     map[string]bool // by UID
	demands  []sample
	covered  time.Duration
	hindered time.Duration
	declared Amounts
	managed  bool      // declared is what MBCAS knows as declared
	bare     bool      // no container of the pod has a CPU request or limit
	last     time.Time // of declared
}

type sample struct {
	at     time.Time
	demand cpu.Milli
}

// Add adds the recording of a node.
func (s *Seen) Add(rec *record.Recording, of Workload) error {
	if s.containers == nil {
		s.containers = map[Key]*container{}
	}
	a := adding{Seen: s, of: of, estimates: map[string]demand.Estimate{}, unknown: map[string]bool{}}
	sum, err := replay.Play(rec, func(f *replay.Frame) error {
		a.frame(f)
		return nil
	})
	if err != nil {
		return fmt.Errorf("recording of node %s: %w", rec.About.Node, err)
	}
	if s.From.IsZero() || sum.From.Before(s.From) {
		s.From = sum.From
	}
	if sum.To.After(s.To) {
		s.To = sum.To
	}
	s.Unknown += len(a.unknown)
	return nil
}

// adding adds the rounds of one recording.
type adding struct {
	*Seen
	of        Workload
	last      *kernel.Sample
	estimates map[string]demand.Estimate // by container ID
	unknown   map[string]bool            // pods, by UID
}

// frame adds the time since the round before.
func (a *adding) frame(f *replay.Frame) {
	if f.Round == nil {
		return
	}
	before := a.last
	if a.last = &f.Round.Sample; before == nil {
		return
	}
	rates := sense.Compare(*before, f.Round.Sample, f.Config.LongestGap)
	for i := range f.Round.Pods {
		pod := &f.Pods[i]
		workload, ok := a.of(pod.Name)
		if !ok {
			a.unknown[pod.UID] = true
			continue
		}
		for j, c := range pod.Containers {
			if j < len(rates.Pods[i].Containers) && c.ID != "" {
				a.container(f, pod, Key{pod.Namespace, workload, c.Name}, c, rates.Pods[i].Containers[j])
			}
		}
	}
}

func (a *adding) container(f *replay.Frame, pod *replay.Pod, key Key, c demand.Container, r sense.Rate) {
	e := f.Config.Demand.Next(a.estimates[c.ID], r, 0)
	a.estimates[c.ID] = e
	if r.Validity != sense.Valid {
		return
	}
	of := a.containers[key]
	if of == nil {
		of = &container{pods: map[string]bool{}}
		a.containers[key] = of
	}
	of.pods[pod.UID] = true
	of.covered += r.Elapsed
	of.declares(pod, c, f.At())
	seen := sample{f.At(), r.Usage}
	if r.ThrottleRatio > f.Config.Demand.SaturationThreshold ||
		r.Pressure.Known && r.Pressure.Value > f.Config.Demand.StarvationThreshold {
		of.hindered += r.Elapsed
		seen.demand = max(seen.demand, e.LatestDemand())
	}
	of.demands = append(of.demands, seen)
}

// declares takes over what a container of a pod has, unless another recording has what is newer. A recording has the
// declared limits of managed pods only. Of an unmanaged pod it is the limit in its spec, unless it was managed before:
// then that may be one of MBCAS.
func (c *container) declares(pod *replay.Pod, in demand.Container, at time.Time) {
	managed := in.Declared > 0
	if at.Before(c.last) || c.managed && !managed {
		return
	}
	c.declared, c.managed, c.last = Amounts{in.Request, cmp.Or(in.Declared, in.Limit)}, managed, at
	c.bare = !slices.ContainsFunc(pod.Containers, func(c demand.Container) bool { return c.Request > 0 || c.Limit > 0 })
}

// Advise gives the advice for each container, by namespace, workload and name.
func (s *Seen) Advise(cfg Config) []Advice {
	advice := make([]Advice, 0, len(s.containers))
	for _, key := range slices.SortedFunc(maps.Keys(s.containers), compare) {
		c := s.containers[key]
		a := Advice{
			Key: key, Pods: len(c.pods), Covered: c.covered, Declared: c.declared,
			Hindered: float64(c.hindered) / float64(c.covered),
			Requests: c.span(cfg.RequestPercentile), Limits: c.span(cfg.LimitPercentile),
		}
		switch d := c.declared; {
		case c.covered < cfg.Least:
			a.Reason = fmt.Sprintf("seen for %v only; at least %v are needed", c.covered.Round(time.Second), cfg.Least)
		case c.bare:
			a.Reason, a.Burstable = "its pod has no CPU request and no CPU limit, and one could change the QoS class", c.burstable(cfg)
		default:
			if a.Advised = c.advised(cfg); d.Limit > 0 && d.Request == d.Limit {
				a.Burstable = c.burstable(cfg)
			}
		}
		advice = append(advice, a)
	}
	return advice
}

func compare(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload),
		cmp.Compare(a.Container, b.Container))
}

// advised are the percentiles with headroom. The QoS class of the pod stays: a container without a limit gets none; where
// request and limit are equal both become the limit, and where they differ the limit stays above the request.
func (c *container) advised(cfg Config) *Amounts {
	a := c.burstable(cfg)
	switch {
	case c.declared.Limit == 0:
		a.Limit = 0
	case c.declared.Request == c.declared.Limit:
		a.Limit = max(c.covering(cfg, cfg.RequestPercentile), c.covering(cfg, cfg.LimitPercentile))
		a.Request = a.Limit
	}
	return a
}

// burstable are the percentiles with headroom, with a limit above the request: equal ones could make the pod Guaranteed.
func (c *container) burstable(cfg Config) *Amounts {
	request, limit := c.covering(cfg, cfg.RequestPercentile), c.covering(cfg, cfg.LimitPercentile)
	return &Amounts{Request: request, Limit: max(limit, request+cpu.Quantum)}
}

// covering is a percentile with headroom.
func (c *container) covering(cfg Config, p float64) cpu.Milli {
	m := cpu.FromCores(percentile(c.demands, p).Cores() * (1 + cfg.Headroom))
	return max(cpu.Quantum, m.RoundUp(cpu.Quantum))
}

// parts is into how many parts the time is divided for a Range.
const parts = 5

// span is the range of a percentile over equal parts of the time.
func (c *container) span(p float64) (r Range) {
	first, last := c.demands[0].at, c.demands[0].at
	for _, d := range c.demands {
		first, last = minTime(first, d.at), maxTime(last, d.at)
	}
	part := last.Sub(first)/parts + 1
	groups := make([][]sample, parts)
	for _, d := range c.demands {
		i := int(d.at.Sub(first) / part)
		groups[i] = append(groups[i], d)
	}
	begun := false
	for _, g := range groups {
		if len(g) == 0 {
			continue
		}
		m := percentile(g, p)
		if !begun {
			r, begun = Range{m, m}, true
		}
		r.Low, r.High = min(r.Low, m), max(r.High, m)
	}
	return r
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func maxTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// percentile is the least demand that p percent of the seconds do not exceed.
func percentile(of []sample, p float64) cpu.Milli {
	sorted := slices.SortedFunc(slices.Values(of), func(a, b sample) int { return cmp.Compare(a.demand, b.demand) })
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(1, rank)-1].demand
}
