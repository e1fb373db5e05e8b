package script

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mbcas/mbcas/test/internal/traffic"
)

// Step is a phase, or a turn of one, at its place in a run.
type Step struct {
	Phase
	From, To time.Duration // from the start of the run
}

// Plan is the steps of a run in order.
type Plan []Step

// Plan is what a run plays.
func (s *Script) Plan(run string, full bool, seed uint64) (plan Plan) {
	var at time.Duration
	add := func(p Phase, length time.Duration) {
		plan = append(plan, Step{p, at, at + length})
		at += length
	}
	for _, p := range s.Phases {
		length := p.Short
		if full {
			length = p.Full
		}
		switch {
		case length == 0 || !p.plays(run):
		case p.Moving == nil:
			add(p, length)
		default:
			for _, rates := range s.turns(p.Moving, length, seed) {
				p.Rates = rates
				add(p, p.Moving.Every)
			}
		}
	}
	return plan
}

// plays says whether a run plays the phase.
func (p *Phase) plays(run string) bool { return len(p.Runs) == 0 || slices.Contains(p.Runs, run) }

// turns are the rates of every workload in every turn.
func (s *Script) turns(m *Moving, length time.Duration, seed uint64) (all []map[string]float64) {
	rng := rand.New(rand.NewPCG(seed, 0x6d6f76696e67)) // a stream of its own
	group := s.group(m.Workload)
	for range int(length / m.Every) {
		rates := map[string]float64{}
		for _, w := range group {
			rates[w.Name] = m.IdleRate
		}
		for _, i := range rng.Perm(len(group))[:m.Busy] {
			rates[group[i].Name] = m.BusyRates[rng.IntN(len(m.BusyRates))]
		}
		all = append(all, rates)
	}
	return all
}

// Length is how long the plan takes.
func (p Plan) Length() time.Duration {
	if len(p) == 0 {
		return 0
	}
	return p[len(p)-1].To
}

// Phase is the phase of that name; not ok where there is none.
func (p Plan) Phase(name string) (Step, bool) {
	all := p.Phases()
	i := slices.IndexFunc(all, func(s Step) bool { return s.Name == name })
	if i < 0 {
		return Step{}, false
	}
	return all[i], true
}

// Phases has each phase once.
func (p Plan) Phases() (all []Step) {
	for _, s := range p {
		if n := len(all); n > 0 && all[n-1].Name == s.Name {
			all[n-1].To = s.To
		} else {
			all = append(all, s)
		}
	}
	return all
}

// At is the step at a time from the start; the last one does not end.
func (p Plan) At(at time.Duration) Step {
	for _, s := range p {
		if at < s.To {
			return s
		}
	}
	return p[len(p)-1]
}

// Services are the workloads that get requests, sorted.
func (p Plan) Services() (names []string) {
	for _, s := range p {
		for name, rate := range s.Rates {
			if rate > 0 && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Arrivals are the requests to one service.
func (p Plan) Arrivals(seed uint64, service string) []time.Duration {
	segments := make([]traffic.Segment, len(p))
	for i, s := range p {
		segments[i] = traffic.Segment{For: s.To - s.From, Rate: s.Rates[service]}
	}
	h := fnv.New64a()
	h.Write([]byte(service)) // services do not share arrivals
	return traffic.Arrivals(seed^h.Sum64(), segments)
}

// Spans are the times at which a hog spins; adjacent ones are joined.
func (p Plan) Spans(hog string) (spans [][2]time.Duration) {
	for _, s := range p {
		if !slices.Contains(s.Spin, hog) {
			continue
		}
		if n := len(spans); n > 0 && spans[n-1][1] == s.From {
			spans[n-1][1] = s.To
		} else {
			spans = append(spans, [2]time.Duration{s.From, s.To})
		}
	}
	return spans
}
