package experiment

import (
	"cmp"
	"slices"

	"github.com/mbcas/mbcas/internal/lab/scenario"
)

// Series is the time series of a node, thinned.
type Series struct {
	Step  float64 // seconds between two points
	Cores float64
	Pods  []PodSeries
	Price []float64 // empty where the policy has none
	Idle  []float64 // share of the cores
}

// PodSeries is that of one pod. Limit is 0 where it has none; a point is -1 where the pod does not
// run.
type PodSeries struct {
	Pod          string
	Role         scenario.Role
	Usage, Limit []float64 // cores
}

// maxPoints and maxPods bound what is plotted.
const (
	maxPoints = 240
	maxPods   = 4
)

// series thins the run: each point is the mean of several intervals, so that at most maxPoints
// remain.
func (n *Node) series() *Series {
	all := len(n.Result.Idle)
	step := max(1, (all+maxPoints-1)/maxPoints)
	s := &Series{Step: float64(step) * n.every().Seconds(), Cores: n.cores()}
	for k := 0; k < all; k += step {
		to := min(k+step, all)
		s.Idle = append(s.Idle, meanIn(k, to, func(i int) float64 { return n.Result.Idle[i] }))
		if len(n.Result.Price) > 0 {
			s.Price = append(s.Price, meanIn(k, min(to, len(n.Result.Price)), func(i int) float64 { return float64(n.Result.Price[i]) }))
		}
	}
	for _, p := range n.plottedPods() {
		c := PodSeries{Pod: p.Spec.Name, Role: p.role}
		for k := 0; k < all; k += step {
			to := min(k+step, all)
			if !p.runs(k) || !p.runs(to-1) {
				c.Usage, c.Limit = append(c.Usage, -1), append(c.Limit, -1)
				continue
			}
			c.Usage = append(c.Usage, meanIn(k, to, func(i int) float64 { return p.Points[i].Usage.Cores() }))
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

// plottedPods are those with the highest demand: one of each role first, then any.
func (n *Node) plottedPods() []*pod {
	want := func(p *pod) (sum float64) {
		for k := range n.intervals(p) {
			sum += p.need(k)
		}
		return sum
	}
	var pods, rest []*pod
	for i := range n.pods {
		pods = append(pods, &n.pods[i])
	}
	slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(want(b), want(a)) })
	var first []*pod
	seen := map[scenario.Role]bool{}
	for _, p := range pods {
		if seen[p.role] || p.role == scenario.Other {
			rest = append(rest, p)
			continue
		}
		seen[p.role] = true
		first = append(first, p)
	}
	first = append(first, rest...)
	return first[:min(maxPods, len(first))]
}
