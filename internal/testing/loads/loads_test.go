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

// TestFreeze: after Freeze every load stays as it is, also that of a container that begins later.
func TestFreeze(t *testing.T) {
	now := time.Unix(0, 0)
	n := &Node{Cores: 64, Now: func() time.Time { return now }}
	begin := func() *Container { return &Container{Load: New(1, nil, 1)} }
	wants := func() (list [2]float64) {
		now = now.Add(time.Second)
		n.Look(nil)
		for i, id := range []string{"before", "later"} {
			list[i] = n.containers[id].want
		}
		return list
	}
	n.Set("before", 0, begin)
	n.Look(nil)
	n.Freeze()
	n.Set("later", 0, begin)
	first := wants()
	for range 3600 { // six bursts, on average
		if got := wants(); got != first || got[1] == 0 {
			t.Fatalf("%v, and %v at first", got, first)
		}
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
