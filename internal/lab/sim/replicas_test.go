package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/load"
)

// scalingPolicy scales the first pod's workload at given times, and records which pods it sees.
type scalingPolicy struct {
	want map[int]int                // replicas, by second
	seen map[time.Duration][]string // names, with a minus where the pod is terminating
}

func scaling(want map[int]int) *scalingPolicy {
	return &scalingPolicy{want, map[time.Duration][]string{}}
}

func (s *scalingPolicy) Decide(r *Snapshot) ([]Action, time.Duration) {
	var names []string
	for _, p := range r.Pods {
		name := p.Spec.Name
		if p.Terminating {
			name = "-" + name
		}
		names = append(names, name)
	}
	s.seen[r.Now] = names
	if want := s.want[int(r.Now/time.Second)]; want > 0 {
		return []Action{{Pod: r.Pods[0].ID, Replicas: want}}, r.Now + time.Second
	}
	return nil, r.Now + time.Second
}

// web is so many replicas of a service at 100 requests of 1 ms per second each.
func web(n int, more ...PodSpec) Setup {
	s := Setup{Machine: Machine{Cores: 4}, Length: 100 * time.Second, Seed: 7}
	for i := range n {
		s.Pods = append(s.Pods, PodSpec{
			Name: []string{"web-1", "web-2", "web-3"}[i], Namespace: "shop", Workload: "web", Request: 200, Limit: 400,
			Requests: load.Requests{Rate: load.Constant(100), ServiceTime: time.Millisecond},
		})
	}
	s.Pods = append(s.Pods, more...)
	return s
}

// offered is the sum of the load a pod was given between two seconds, in 1m for a second.
func offered(p *PodResult, from, to int) float64 {
	var sum float64
	for _, pt := range p.Points[from:to] {
		sum += float64(pt.Offered)
	}
	return sum
}

func near(got, want, share float64) bool { return got >= want*(1-share) && got <= want*(1+share) }

func TestReplicasComeShareAndDrain(t *testing.T) {
	s := scaling(map[int]int{20: 4, 60: 1})
	r := Run(web(2), s)
	count := func(at time.Duration) int { return len(s.seen[at]) }
	// StartDelay is 10 s: two come at 30 s.
	if count(29*time.Second) != 2 || count(31*time.Second) != 4 {
		t.Errorf("saw %v at 29 s and %v at 31 s, want 2 and 4 pods", s.seen[29*time.Second], s.seen[31*time.Second])
	}
	// 200 requests of 1 ms per second are 100m for each of two, and 50m for each of four: 2000 and
	// 1000 in 20 s.
	for _, name := range []string{"web-1", "web-2"} {
		if got := offered(r.Pod(name), 0, 20); !near(got, 2000, 0.1) {
			t.Errorf("%s was offered %v in the first 20 s, want 2000", name, got)
		}
	}
	for _, name := range []string{"web-1", "web-2", "web-3", "web-4"} {
		if got := offered(r.Pod(name), 35, 55); !near(got, 1000, 0.15) {
			t.Errorf("%s was offered %v from 35 s to 55 s, want 1000", name, got)
		}
	}
	// At 60 s all but the oldest drain for 30 s: they are seen, get nothing, and end without work
	// left.
	if got := s.seen[61*time.Second]; len(got) != 4 || got[0] != "web-1" || got[1] != "-web-2" || got[3] != "-web-4" {
		t.Errorf("saw %v at 61 s, want web-1 and three that terminate", got)
	}
	if got := s.seen[91*time.Second]; len(got) != 1 || got[0] != "web-1" {
		t.Errorf("saw %v at 91 s, want web-1 alone", got)
	}
	for _, name := range []string{"web-2", "web-3", "web-4"} {
		p := r.Pod(name)
		if got := offered(p, 61, 100); got != 0 || p.Backlog != 0 {
			t.Errorf("%s was offered %v after it was scaled in, and left %v undone; want none", name, got, p.Backlog)
		}
	}
	if got := offered(r.Pod("web-1"), 62, 82); !near(got, 4000, 0.1) {
		t.Errorf("web-1 was offered %v in 20 s alone, want all 4000", got)
	}
}

func TestReplicasWithoutScalingChangeNoLoad(t *testing.T) {
	// A replica that starts later and one that ends earlier have their own load only, as pods
	// without a workload.
	apart, together := web(3), web(3)
	for _, s := range []*Setup{&apart, &together} {
		s.Pods[1].Start, s.Pods[2].End = 40*time.Second, 60*time.Second
	}
	for i := range apart.Pods {
		apart.Pods[i].Workload = ""
	}
	a, b := Run(apart, noChanges{}), Run(together, noChanges{})
	for _, name := range []string{"web-1", "web-2", "web-3"} {
		if x, y := offered(a.Pod(name), 0, 100), offered(b.Pod(name), 0, 100); x == 0 || x != y {
			t.Errorf("%s was offered %v as a pod and %v as a replica", name, x, y)
		}
	}
}

// TestScaling: replicas on their way are taken back, end with their workload, and those of another
// namespace stay.
func TestScaling(t *testing.T) {
	ending := web(2, PodSpec{Name: "other", Namespace: "shop", Request: 100, Limit: 200})
	ending.Pods[0].End, ending.Pods[1].End = 50*time.Second, 50*time.Second
	for _, c := range []struct {
		setup Setup
		scale map[int]int
		at    time.Duration
		want  []string
	}{
		{web(2), map[int]int{20: 4, 25: 2}, 50 * time.Second, []string{"web-1", "web-2"}},
		{ending, map[int]int{20: 4, 45: 6}, 70 * time.Second, []string{"other"}},
		{
			web(2, PodSpec{Name: "web-9", Namespace: "bank", Workload: "web", Request: 200, Limit: 400}),
			map[int]int{20: 1}, 60 * time.Second, []string{"web-1", "web-9"},
		},
	} {
		s := scaling(c.scale)
		Run(c.setup, s)
		if got := s.seen[c.at]; !slices.Equal(got, c.want) {
			t.Errorf("scaled to %v: saw %v at %v, want %v", c.scale, got, c.at, c.want)
		}
	}
}

func TestAQuietReplicaEnds(t *testing.T) {
	setup := web(1)
	setup.Pods[0].Requests.Rate = load.Burst{High: 10, Length: time.Second}
	r := Run(setup, scaling(map[int]int{20: 2}))
	if len(r.Pods) != 2 {
		t.Errorf("%d pods, want 2", len(r.Pods))
	}
}
