package loads

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/kernel"
)

// TestStatistics: over a day, loads have about the mean that was asked for, with bursts of up to three
// times as much on top, and the noise from one second to the next is left to four fifths.
func TestStatistics(t *testing.T) {
	for seed := range uint64(6) {
		l, sum, highest, lag, square := New(1, nil, seed), 0.0, 0.0, 0.0, 0.0
		for i := range 24 * 3600 {
			at, before := time.Duration(i)*time.Second, l.noise
			want := l.Want(at)
			sum, highest = sum+want, max(highest, want)
			lag, square = lag+before*l.noise, square+l.noise*l.noise
		}
		mean, kept := sum/(24*3600), lag/square
		if mean < 0.95 || mean > 1.2 || highest < 2 || highest > 6 || math.Abs(kept-rho) > 0.02 {
			t.Errorf("seed %d: mean %.2f, highest %.2f, %.2f of the noise left in the next second", seed, mean, highest, kept)
		}
		again := New(1, nil, seed)
		if a, b := again.Want(0), New(1, nil, seed).Want(0); a != b {
			t.Errorf("seed %d: %v and %v in its first second", seed, a, b)
		}
	}
}

// TestTraces: a trace is read in multiples of its mean, and a load follows it.
func TestTraces(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cpu-usage-1.csv"), []byte("ts,value\n0,1\n60,3\n120,2\n180,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := Read(dir)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	follows := list[0].window(0)
	for at, want := range map[time.Duration]float64{0: 0.5, 30 * time.Second: 1, time.Minute: 1.5, 4 * time.Minute: 0.5} {
		if got := follows(at); math.Abs(got-want) > 1e-9 {
			t.Errorf("at %v: %v, want %v", at, got, want)
		}
	}
	if l := New(1, list[0], 1); l.Want(0) <= 0 {
		t.Error("a load with a trace wants nothing")
	}
}

// TestNode: containers get their part by weight, no more than their quota; one that wants more is throttled.
func TestNode(t *testing.T) {
	now := time.Unix(0, 0)
	n := &Node{Cores: 4, System: 1, Now: func() time.Time { return now }}
	add := func(id string, c *Container) { n.Set(id, c.Limit, func() *Container { return c }) }
	add("light", &Container{Load: Constant(0.5), Request: 100, Limit: 1000})
	add("capped", &Container{Load: Constant(2), Request: 100, Limit: 500})
	add("heavy", &Container{Load: Constant(9), Request: 300})
	add("other", &Container{Load: Constant(9), Request: 100})
	targets := []kernel.Target{{Pod: "p", Containers: []string{"light", "capped", "heavy", "other", "none"}}}
	n.Read(targets)
	now = now.Add(10 * time.Second)
	s := n.Read(targets).Pods[0].Containers
	for i, want := range []float64{0.5, 0.5, 1.5, 0.5} {
		if got := s[i].Stat.Usage.Seconds() / 10; math.Abs(got-want) > 1e-6 {
			t.Errorf("container %d uses %v, want %v", i, got, want)
		}
	}
	if s[1].Stat.Throttled == 0 || s[0].Stat.Throttled > 0 || s[1].Quota.Limit != 50*time.Millisecond || s[4].Found {
		t.Errorf("%+v", s)
	}
	n.Keep(map[string]bool{"light": true})
	if n.Read(targets).Pods[0].Containers[1].Found {
		t.Error("a container that ended is found")
	}
}

// TestReadsChangeNothing: a node that is read often runs the same load as one that is read rarely.
func TestReadsChangeNothing(t *testing.T) {
	used := func(steps ...time.Duration) (usage, throttled []float64) {
		now := time.Unix(0, 0)
		n := &Node{Cores: 2, System: 0.1, Now: func() time.Time { return now }}
		target := []kernel.Target{{Pod: "p", Containers: []string{"bursty", "capped", "saturating"}}}
		n.Set("bursty", 0, func() *Container { return &Container{Load: New(0.5, nil, 3), Request: 100} })
		n.Set("capped", 200, func() *Container { return &Container{Load: New(0.3, nil, 4), Request: 100} })
		n.Set("saturating", 0, func() *Container { return &Container{Load: Constant(9), Request: 100} })
		n.Read(target)
		for i := 0; now.Before(time.Unix(600, 0)); i++ {
			now = now.Add(min(steps[i%len(steps)], time.Unix(600, 0).Sub(now)))
			if i%2 == 0 {
				n.Look(target)
			} else {
				n.Read(target)
			}
		}
		for _, c := range n.Read(target).Pods[0].Containers {
			usage, throttled = append(usage, c.Stat.Usage.Seconds()), append(throttled, float64(c.Stat.Throttled))
		}
		return usage, throttled
	}
	usage, throttled := used(time.Second)
	for name, steps := range map[string][]time.Duration{
		"often":    {200 * time.Millisecond, time.Nanosecond, 37 * time.Millisecond},
		"rarely":   {90 * time.Second},
		"unevenly": {time.Second + time.Nanosecond, 700 * time.Millisecond, 3 * time.Second},
	} {
		u, th := used(steps...)
		for i := range usage {
			if math.Abs(u[i]-usage[i]) > 1e-3 || math.Abs(th[i]-throttled[i]) > 1 {
				t.Errorf("read %s, container %d uses %v s and is throttled %v times; read each second, %v s and %v times",
					name, i, u[i], th[i], usage[i], throttled[i])
			}
		}
	}
}

// TestFreeze: loads of a frozen node do not vary, also those of containers that begin later.
func TestFreeze(t *testing.T) {
	now := time.Unix(0, 0)
	n := &Node{Cores: 4, Now: func() time.Time { return now }}
	target := []kernel.Target{{Pod: "p", Containers: []string{"before", "after"}}}
	add := func(id string, seed uint64) {
		n.Set(id, 0, func() *Container { return &Container{Load: New(0.2, nil, seed), Request: 100} })
	}
	used := func() (usage [2]time.Duration) {
		for i, c := range n.Read(target).Pods[0].Containers {
			usage[i] = c.Stat.Usage
		}
		return usage
	}
	add("before", 1)
	n.Read(target)
	n.Freeze()
	add("after", 2)
	last, first := used(), [2]time.Duration{}
	for second := range 1200 { // bursts are ten minutes apart
		now = now.Add(time.Second)
		usage := used()
		for i := range usage {
			uses := usage[i] - last[i]
			if second == 0 {
				first[i] = uses
			}
			if uses <= 0 || (uses-first[i]).Abs() > time.Microsecond {
				t.Fatalf("second %d: container %d uses %v, and %v in the first", second, i, uses, first[i])
			}
		}
		last = usage
	}
}
