package experiment

import (
	"cmp"
	"slices"
)

// Series is the course of a node's run, thinned.
type Series struct {
	Step  float64 // seconds between two points
	Cores float64
	Warm  float64 // seconds at the begin that are not measured
	Pods  []Course
	Price []float64 // empty where the policy knows none
	Idle  []float64 // share of the cores
}

// Course is that of one pod. Limit is 0 where it has none; a point is -1 where the pod does not run.
type Course struct {
	Pod               string
	Role              Role
	Use, Limit, Wants []float64 // cores
}

// mostPoints and mostPods bound what is drawn.
const (
	mostPoints = 240
	mostPods   = 4
)

// series thins the run: each point is the mean of so many intervals that at most mostPoints remain.
func (n *Node) series() *Series {
	all := len(n.Result.Idle)
	step := max(1, (all+mostPoints-1)/mostPoints)
	s := &Series{Step: float64(step) * n.every().Seconds(), Cores: n.cores(), Warm: n.Setup.Warm.Seconds()}
	for k := 0; k < all; k += step {
		to := min(k+step, all)
		s.Idle = append(s.Idle, meanIn(k, to, func(i int) float64 { return n.Result.Idle[i] }))
		if len(n.Result.Price) > 0 {
			s.Price = append(s.Price, meanIn(k, min(to, len(n.Result.Price)), func(i int) float64 { return float64(n.Result.Price[i]) }))
		}
	}
	for _, p := range n.shown() {
		c := Course{Pod: p.Spec.Name, Role: p.role}
		for k := 0; k < all; k += step {
			to := min(k+step, all)
			if !p.runs(k) || !p.runs(to-1) {
				c.Use, c.Limit, c.Wants = append(c.Use, -1), append(c.Limit, -1), append(c.Wants, -1)
				continue
			}
			c.Use = append(c.Use, meanIn(k, to, func(i int) float64 { return p.Points[i].Use.Cores() }))
			c.Wants = append(c.Wants, meanIn(k, to, p.need))
			c.Limit = append(c.Limit, p.Points[to-1].Limit.Cores())
		}
		s.Pods = append(s.Pods, c)
	}
	return s
}

func meanIn(from, to int, of func(int) float64) float64 {
	sum := 0.0
	for i := from; i < to; i++ {
		sum += of(i)
	}
	return sum / float64(max(1, to-from))
}

// shown are the pods whose course is kept: of each role the one that wants most, then whoever wants most.
func (n *Node) shown() []*pod {
	from, to := n.measured()
	want := func(p *pod) float64 {
		sum := 0.0
		for k := from; k < to; k++ {
			if p.runs(k) {
				sum += p.need(k)
			}
		}
		return sum
	}
	var pods, rest []*pod
	for i := range n.pods {
		pods = append(pods, &n.pods[i])
	}
	slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(want(b), want(a)) })
	var first []*pod
	seen := map[Role]bool{}
	for _, p := range pods {
		if seen[p.role] || p.role == Other {
			rest = append(rest, p)
			continue
		}
		seen[p.role] = true
		first = append(first, p)
	}
	first = append(first, rest...)
	return first[:min(mostPods, len(first))]
}
