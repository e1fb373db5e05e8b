package whatif

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

// recorded is a simulated node on which CPU is scarce: six services that request 700m, and three hogs that request 200m.
func recorded(t *testing.T) *record.Recording {
	t.Helper()
	return recordings.Played(t, "requests-that-tell", mbcas.DefaultConfig(), 150*time.Second)
}

func decided(t *testing.T, rec *record.Recording, c Change) Comparison {
	t.Helper()
	got, err := Decide(rec, c)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestNoChange: a change that changes nothing gives the same.
func TestNoChange(t *testing.T) {
	rec := recorded(t)
	same := 0.1
	for name, c := range map[string]Change{"none": {}, "the same reserve": {Reserve: &same}, "no pod of the pattern": {Pods: []PodChange{{Pattern: "other/*", OptOut: true}}}} {
		got := decided(t, rec, c)
		if len(got.Pods) > 0 || got.Before != got.After || got.Matched != 0 || got.Covered < 140*time.Second || got.Before.Scarce == 0 {
			t.Errorf("%s: %+v", name, got)
		}
		if text := got.Text(); !strings.Contains(text, "No limit would have been another.") {
			t.Errorf("%s", text)
		}
	}
}

// of is a pod of the comparison.
func of(t *testing.T, c Comparison, name string) Pod {
	t.Helper()
	for _, p := range c.Pods {
		if p.Pod == name {
			return p
		}
	}
	t.Fatalf("nothing changes for %s:\n%s", name, c.Text())
	return Pod{}
}

// TestChanges: each kind of change does to limits what it says.
func TestChanges(t *testing.T) {
	rec := recorded(t)
	none, much := 0.0, 0.4
	if c := decided(t, rec, Change{Reserve: &none}); c.After.Supply <= c.Before.Supply || c.After.Withheld >= c.Before.Withheld || c.After.Price >= c.Before.Price {
		t.Errorf("no reserve:\n%s", c.Text())
	}
	if c := decided(t, rec, Change{Reserve: &much}); c.After.Supply >= c.Before.Supply || c.After.Withheld <= c.Before.Withheld {
		t.Errorf("a larger reserve:\n%s", c.Text())
	}
	high := int32(1_000_000)
	c := decided(t, rec, Change{Pods: []PodChange{{Pattern: "*/hog-1", Priority: &high}}})
	if p, other := of(t, c, "default/hog-1"), of(t, c, "default/hog-2"); c.Matched != 1 || p.After.Limit <= p.Before.Limit || p.After.Withheld >= p.Before.Withheld || other.After.Limit >= other.Before.Limit {
		t.Errorf("a priority:\n%s", c.Text())
	}
	c = decided(t, rec, Change{Pods: []PodChange{{Pattern: "default/hog-1", Request: 1000}}})
	if p := of(t, c, "default/hog-1"); p.After.Limit <= p.Before.Limit || p.After.Limit < 1000 {
		t.Errorf("a request:\n%s", c.Text())
	}
	c = decided(t, rec, Change{Pods: []PodChange{{Pattern: "default/hog-?", MaxCPU: 300}}})
	if p := of(t, c, "default/hog-1"); c.Matched != 3 || p.After.Limit > 310 {
		t.Errorf("a highest limit:\n%s", c.Text())
	}
	c = decided(t, rec, Change{Pods: []PodChange{{Pattern: "default/hog-1", OptOut: true}}})
	if p := of(t, c, "default/hog-1"); p.After.Limit != 4000 || !p.After.OptedOut || !strings.Contains(c.Text(), "-\n") {
		t.Errorf("opted out:\n%s", c.Text())
	}
	c = decided(t, rec, Change{Off: true})
	if p := of(t, c, "default/hog-1"); p.After.Limit != 4000 || c.After.Scarce != 0 || c.After.Withheld >= c.Before.Withheld {
		t.Errorf("off:\n%s", c.Text())
	}
	if p := of(t, c, "default/service-1"); p.After.Limit != 1000 {
		t.Errorf("off:\n%s", c.Text())
	}
}

// TestAsked: of a pod that was asked about, the text names the node, and says whether its limit is one that differs.
func TestAsked(t *testing.T) {
	c := decided(t, recorded(t), Change{Pods: []PodChange{{Pattern: "default/hog-1", MaxCPU: 10}}})
	if strings.Contains(c.Text(), "that of") || strings.Contains(c.Text(), "have been the same") {
		t.Errorf("of a node:\n%s", c.Text())
	}
	for asked, same := range map[string]bool{"default/hog-1": false, "default/none": true} {
		c.Asked = asked
		const head = "Node node-1, that of "
		if text := c.Text(); !strings.Contains(text, head+asked+", from ") || strings.Contains(text, "The limit of "+asked+" would have been the same.") != same {
			t.Errorf("of %s:\n%s", asked, text)
		}
	}
}

// TestDecider: one decider gives for each change, whatever it was asked before and however much of the recording it may keep,
// what is decided by itself. What is kept is not read again.
func TestDecider(t *testing.T) {
	rec := recorded(t)
	much, high := 0.4, int32(1_000_000)
	for most, kept := range map[int]int{0: 0, 600: 1, 1200: 2, mostKept: len(rec.Minutes)} { // nine pods, 60 rounds a minute
		d := NewDecider(rec)
		d.most = most
		for _, c := range []Change{{Reserve: &much}, {Pods: []PodChange{{Pattern: "*/hog-1", Priority: &high}}}, {}, {Off: true}, {Reserve: &much}} {
			got, err := d.Decide(c)
			if want := decided(t, rec, c); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v: %v\n%s, want\n%s", c, err, got.Text(), want.Text())
			}
		}
		if len(d.kept) != kept {
			t.Errorf("%d minutes are kept of %d allowed pods and rounds, want %d", len(d.kept), most, kept)
		}
		unread := *rec
		unread.Minutes = slices.Clone(rec.Minutes)
		for i := range kept {
			unread.Minutes[i] = &record.Minute{}
		}
		d.rec = &unread
		if _, err := d.Decide(Change{Off: true}); err != nil {
			t.Errorf("with %d minutes kept: %v", kept, err)
		}
	}
}

// TestBadChange: what cannot be decided with is refused.
func TestBadChange(t *testing.T) {
	high := 1.5
	for want, c := range map[string]Change{
		"syntax error in pattern": {Pods: []PodChange{{Pattern: "a/["}}},
		"CPU is below 0":          {Pods: []PodChange{{Pattern: "a/b", Request: -1}}},
		"Reserve is 1.5":          {Reserve: &high},
	} {
		if _, err := Decide(&record.Recording{}, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// BenchmarkHalfAnHour is what half an hour of a node with a hundred pods takes. Less than a second is wanted, on two cores that do
// nothing else; cpu-s/op is the CPU time, which other programs change less.
//
//	go test -run '^$' -bench HalfAnHour ./internal/whatif
func BenchmarkHalfAnHour(b *testing.B) {
	rec := recordings.Played(b, "hundred-pods", mbcas.DefaultConfig(), 30*time.Minute)
	reserve := 0.05
	start := cpuTime(b)
	for b.Loop() {
		c, err := Decide(rec, Change{Reserve: &reserve})
		if err != nil || c.Covered < 29*time.Minute || len(c.Pods) == 0 {
			b.Fatalf("%+v, %v", c, err)
		}
	}
	b.ReportMetric((cpuTime(b)-start).Seconds()/float64(b.N), "cpu-s/op")
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
