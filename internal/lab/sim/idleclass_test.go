package sim

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/internal/lab/load"
)

// classes sets classes once, at half a second.
type classes map[int]Class

func (c classes) Decide(r *Snapshot) (actions []Action, next time.Duration) {
	if r.Now < 500*time.Millisecond {
		return nil, 500 * time.Millisecond
	}
	for id, class := range c {
		actions = append(actions, Action{Pod: id, Class: &class})
	}
	return actions, r.Now + time.Hour
}

// TestIdleClassYields: beside pods in the idle class requests take little longer than alone, and the former get all
// that is left.
func TestIdleClassYields(t *testing.T) {
	service := PodSpec{Name: "service", Request: 500, Threads: 8, Requests: load.Requests{
		Rate: load.Constant(60), ServiceTime: 10 * time.Millisecond, Distribution: load.Fixed,
	}}
	hog := PodSpec{Name: "hog", Request: 500, Spin: load.Constant(4)}
	setup := func(pods ...PodSpec) Setup {
		return Setup{Machine: Machine{Cores: 2}, Length: 62 * time.Second, WarmUp: 2 * time.Second, Seed: 1, Pods: pods}
	}
	const seconds = 60
	p99 := func(r Result) time.Duration { return r.Pods[0].Latency.Quantile(0.99) }
	alone := Run(setup(service), noChanges{})
	beside := Run(setup(service, hog), noChanges{})
	idle := Run(setup(service, hog), classes{1: {Idle: true}})
	if p99(idle) > alone.Pods[0].Latency.Quantile(0.99)*13/10 || p99(beside) < 2*p99(idle) {
		t.Errorf("p99 alone %v, beside the hog %v, beside it in the idle class %v: want at most 1.3 times alone, and half of beside",
			p99(alone), p99(beside), p99(idle))
	}
	left := 2 - idle.Pods[0].Usage.Seconds()/seconds
	if got := idle.Pods[1].Usage.Seconds() / seconds; got < 0.99*left {
		t.Errorf("in the idle class the hog uses %.2f cores of the %.2f that are left", got, left)
	}
	// Members share equally, whatever their requests are, and a pod that leaves the class has its weight again.
	large := PodSpec{Name: "large", Request: 1500, Spin: load.Constant(4)}
	both := Run(setup(service, hog, large), classes{1: {Idle: true}, 2: {Idle: true}})
	a, b := both.Pods[1].Usage.Seconds()/seconds, both.Pods[2].Usage.Seconds()/seconds
	if a < 0.9*b || b < 0.9*a {
		t.Errorf("two members use %.2f and %.2f cores: want about the same", a, b)
	}
	weighted := Run(setup(hog, large), classes{0: {Shares: 1024}, 1: {Shares: 1024}})
	a, b = weighted.Pods[0].Usage.Seconds()/seconds, weighted.Pods[1].Usage.Seconds()/seconds
	if a < 0.95*b || b < 0.95*a {
		t.Errorf("with equal shares two pods use %.2f and %.2f cores", a, b)
	}
}

// randomClasses changes classes at random.
type randomClasses struct{ next uint64 }

func (p *randomClasses) Decide(r *Snapshot) (actions []Action, next time.Duration) {
	for _, pod := range r.Pods {
		if p.next = p.next*6364136223846793005 + 1442695040888963407; p.next>>62 == 0 {
			actions = append(actions, Action{Pod: pod.ID, Class: &Class{Idle: p.next>>40&1 == 0, Shares: float64(p.next >> 41 % 4096)}})
		}
	}
	return actions, r.Now + 70*time.Millisecond
}

// TestIdleClassIsWorkConserving: with classes that change no CPU idles while a thread waits, and CPU time is conserved.
func TestIdleClassIsWorkConserving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSetup(t)
		for i := range s.Pods {
			s.Pods[i].Limit = 0
		}
		r := Start(s, &randomClasses{next: s.Seed})
		for at := 13 * time.Millisecond; at < s.Length; at += 13 * time.Millisecond {
			r.RunUntil(at)
			idle, waiting := 0, 0
			for i := range r.node.cores {
				c := &r.node.cores[i]
				if c.current == nil {
					idle++
				}
				for _, e := range c.queue {
					waiting += len(e.threads)
				}
				if c.current != nil {
					waiting--
				}
			}
			if idle > 0 && waiting > 0 {
				t.Fatalf("at %v %d cores idle while %d threads wait", at, idle, waiting)
			}
		}
		r.RunUntil(s.Length)
		out := r.Result()
		used := out.IdleTime
		for _, p := range out.Pods {
			used += p.Usage
		}
		if want := time.Duration(s.Machine.Cores) * s.Length; used != want {
			t.Fatalf("usage and idle time are %v, want %v", used, want)
		}
	})
}
