package figures

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/story"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

func deskOf(t *testing.T, rec *record.Recording) *Desk {
	t.Helper()
	src, err := File(rec)
	if err != nil {
		t.Fatal(err)
	}
	return NewDesk(src)
}

// ask asks a question such as "node?node=node-1".
func ask(d *Desk, question string) (any, error) {
	what, query, _ := strings.Cut(question, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	return d.Answer(context.Background(), what, q)
}

// get is an answer as the page reads it.
func get[T any](t *testing.T, d *Desk, question string) (v T) {
	t.Helper()
	got, err := ask(d, question)
	if err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	return v
}

// TestBookIsTheRound: the order book, the series and the sentences at a time are those of the replay, whatever minute.
func TestBookIsTheRound(t *testing.T) {
	rec := recordings.Saturated(t, "node-1", "cart", 150)
	s := deskOf(t, rec)
	series := get[nodeSeries](t, s, "node?node=node-1")
	pod := get[podSeries](t, s, "pod?node=node-1&pod=shop/cart")
	if len(series.At) != 150 || len(pod.At) != 150 {
		t.Fatalf("%d and %d rounds", len(series.At), len(pod.At))
	}
	i := -1
	_, err := replay.Play(rec, func(f *replay.Frame) error {
		i++
		n := f.Output.Node
		if series.At[i] != f.At().UnixMilli() || series.Supply[i] != int64(n.Supply) || series.Demand[i] != int64(n.Demand) || series.Price[i] != float64(n.Price) ||
			n.UsageKnown != (series.Usage[i] != nil) || n.UsageKnown && *series.Usage[i] != int64(n.Usage) {
			t.Errorf("round %d of the series differs from %+v", i, n)
		}
		if i%13 > 0 {
			return nil
		}
		b := get[book](t, s, fmt.Sprintf("book?node=node-1&at=%d", f.At().UnixMilli()))
		decided := 0
		for _, r := range b.Rows {
			if r.Decided {
				decided++
			}
		}
		if b.At != f.At().UnixMilli() || decided != len(f.Output.Decisions) || len(b.Rows) != 2 {
			t.Errorf("round %d: the book is %+v", i, b)
		}
		for _, d := range f.Output.Decisions {
			p := f.Pods[d.Pod]
			for _, r := range b.Rows {
				if r.Pod == p.Namespace+"/"+p.Name.Name && (cpu.Milli(r.Limit) != d.Limit || cpu.Milli(r.Demand) != d.Demand || r.Bound != strings.ToLower(d.Bound.String()) || (r.Buys == nil) != (d.Price == 0)) {
					t.Errorf("round %d: %+v, want %+v", i, r, d)
				}
			}
			if p.Name.Name == "cart" && (pod.Limit[i] == nil || cpu.Milli(*pod.Limit[i]) != d.Limit || cpu.Milli(*pod.InForce[i]) != 1000) {
				t.Errorf("round %d of the pod differs", i)
			}
		}
		want, err := story.At(rec, story.Pod("shop", "cart"), f.At())
		if err != nil {
			return err
		}
		if got := get[story.Answer](t, s, fmt.Sprintf("explain?node=node-1&pod=shop/cart&at=%d", f.At().UnixMilli())); fmt.Sprint(got.Sentences) != fmt.Sprint(want.Sentences) {
			t.Errorf("round %d: %q, want %q", i, got.Sentences, want.Sentences)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	later := get[nodeSeries](t, s, fmt.Sprintf("node?node=node-1&after=%d", series.At[140]))
	if len(later.At) != 9 || later.At[0] != series.At[141] {
		t.Errorf("after round 140 there are %d, from %d", len(later.At), later.At[0])
	}
}

// TestUnmanagedLimits: the limit in force of a pod that is not managed is that of its spec, with the number of containers that
// have none. Nothing is known of a pod without containers.
func TestUnmanagedLimits(t *testing.T) {
	limits := map[string][]cpu.Milli{"rich": {2000, 500}, "mixed": {300, 0}, "free": {0}, "aside": nil}
	rec, cfg := record.NewRecorder(recordings.Everything), round.DefaultConfig()
	in := round.Input{Now: recordings.Noon, Node: round.Node{Capacity: 4000, Allocatable: 4000}}
	in.Sample.Node = kernel.NodeSample{At: in.Now, Usage: kernel.KnownTotal(0), Kubepods: kernel.KnownTotal(0), Idle: kernel.KnownTotal(0)}
	var names []record.Name
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		p := round.PodInput{Pod: demand.Pod{UID: name, Unmanaged: true}}
		for i, limit := range limits[name] {
			p.Containers = append(p.Containers, demand.Container{Name: fmt.Sprint(i), Limit: limit})
		}
		names, in.Pods = append(names, record.Name{Namespace: "shop", Name: name}), append(in.Pods, p)
		in.Sample.Pods = append(in.Sample.Pods, kernel.PodSample{Pod: name, Containers: make([]kernel.Group, len(p.Containers))})
	}
	var state round.State
	rec.Begin(in.Now, cfg, &state)
	_, out := round.Run(cfg, state, in)
	rec.Round(in, names, &out)
	d := deskOf(t, recordings.Of(t, rec))
	type limit struct {
		sum       int64
		unlimited int
	}
	want := map[string]limit{"shop/rich": {2500, 0}, "shop/mixed": {300, 1}, "shop/free": {0, 1}, "shop/aside": {0, 0}}
	got := map[string]limit{}
	for _, r := range get[book](t, d, "book?node=node-1").Rows {
		if got[r.Pod] = (limit{r.InForce, r.Unlimited}); r.Managed || r.Decided {
			t.Errorf("%+v is managed", r)
		}
		s := get[podSeries](t, d, "pod?node=node-1&pod="+r.Pod)
		if len(s.At) != 1 || s.Unlimited[0] != r.Unlimited || (s.InForce[0] == nil) != (r.InForce == 0) || r.InForce > 0 && *s.InForce[0] != r.InForce {
			t.Errorf("the series of %s is %+v, and the book has %+v", r.Pod, s, r)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("limits are %v, want %v", got, want)
	}
}

// growing is a recording that goes on.
type growing struct {
	Source
	rec   *record.Recording
	asked int
	err   error
}

func (g *growing) Recording(context.Context, string) (*record.Recording, error) {
	g.asked++
	return g.rec, g.err
}

// TestExplainReadsAround: the sentences of a time have the changes of some minutes around it, so that a step of the scrubber reads
// no whole recording; where the pod was in no round of these, all of it is read.
func TestExplainReadsAround(t *testing.T) {
	d := deskOf(t, recordings.Saturated(t, "node-1", "cart", 900))
	for after, want := range map[time.Duration][]string{
		450 * time.Second: {"since 12:02:00 or before.", "Next change: none until 12:12:59."},
		880 * time.Second: {"since 12:09:00 or before.", "Next change: none until 12:14:59."},
		2 * time.Hour:     {"Next change: none until 12:14:59.", "That was the last round with the pod before 14:00:00 UTC."},
	} {
		a := get[story.Answer](t, d, fmt.Sprintf("explain?node=node-1&pod=shop/cart&at=%d", recordings.Noon.Add(after).UnixMilli()))
		for _, w := range want {
			if !strings.Contains(a.Text(), w) {
				t.Errorf("after %v: no %q in:\n%s", after, w, a.Text())
			}
		}
	}
}

// TestGoesOn: what is new of a recording is shown, the source is asked once a second at most, and minutes that have not
// changed are not replayed again.
func TestGoesOn(t *testing.T) {
	long := recordings.Saturated(t, "node-1", "cart", 150)
	src := &growing{rec: recordings.Saturated(t, "node-1", "cart", 100)}
	long.About.Run = src.rec.About.Run
	s := NewDesk(src)
	now := recordings.Noon
	s.now = func() time.Time { return now }
	length := func() int { return len(get[nodeSeries](t, s, "node?node=node-1").At) }
	for range 2 {
		if got := length(); got != 100 || src.asked != 1 {
			t.Errorf("%d rounds, the source was asked %d times", got, src.asked)
		}
	}
	firstFrame := func() *frame {
		f, err := s.open[0].minutes[0].frames()
		if err != nil {
			t.Fatal(err)
		}
		return &f[0]
	}
	first := firstFrame()
	src.rec = long
	now = now.Add(fresh)
	if got := length(); got != 150 || src.asked != 2 || firstFrame() != first {
		t.Errorf("%d rounds after %d requests", got, src.asked)
	}
	src.err = errors.New("the agent does not answer")
	now = now.Add(fresh)
	if _, err := ask(s, "node?node=node-1"); !errors.Is(err, src.err) {
		t.Errorf("the answer is %v", err)
	}
}

// TestTabsOfNodes: readers of several nodes do not close each other's, and no more than a few are kept.
func TestTabsOfNodes(t *testing.T) {
	src := &growing{rec: recordings.Saturated(t, "node-1", "cart", 5)}
	d := NewDesk(src)
	d.now = func() time.Time { return recordings.Noon }
	for range 3 {
		for i := range maxOpen {
			get[nodeSeries](t, d, fmt.Sprint("node?node=node-", i))
		}
	}
	if src.asked != maxOpen {
		t.Errorf("the source was asked %d times for %d nodes", src.asked, maxOpen)
	}
	get[nodeSeries](t, d, "node?node=another")
	get[nodeSeries](t, d, "node?node=node-1")
	if src.asked != maxOpen+1 || len(d.open) != maxOpen {
		t.Errorf("the source was asked %d times, %d nodes are open", src.asked, len(d.open))
	}
	get[nodeSeries](t, d, "node?node=node-0") // the one that was looked at longest ago
	if src.asked != maxOpen+2 {
		t.Errorf("the source was asked %d times", src.asked)
	}
	src.err = errors.New("the agent does not answer")
	for range 2 {
		if _, err := ask(d, "node?node=fails"); !errors.Is(err, src.err) {
			t.Errorf("the answer is %v", err)
		}
	}
	get[nodeSeries](t, d, "node?node=node-3") // is still open
	if src.asked != maxOpen+4 || len(d.open) != maxOpen {
		t.Errorf("the source was asked %d times, %d nodes are open", src.asked, len(d.open))
	}
}

// halting is a source with a node whose agent does not answer.
type halting struct {
	Source
	answers chan struct{}
}

func (h *halting) Recording(ctx context.Context, node string) (*record.Recording, error) {
	if node == "node-2" {
		<-h.answers
	}
	return h.Source.Recording(ctx, "node-1")
}

// TestNoNodeDelaysAnother: while an agent does not answer, and while a what-if goes on, other questions are answered.
func TestNoNodeDelaysAnother(t *testing.T) {
	rec := recordings.Saturated(t, "node-1", "cart", 5)
	synctest.Test(t, func(t *testing.T) {
		src := &halting{deskOf(t, rec).source, make(chan struct{})}
		d := NewDesk(src)
		done := make(chan error, 2)
		for range cap(done) {
			go func() {
				_, err := ask(d, "node?node=node-2")
				done <- err
			}()
		}
		synctest.Wait()
		get[nodeSeries](t, d, "node?node=node-1")
		d.deciding <- struct{}{}
		get[nodeSeries](t, d, "node?node=node-1")
		<-d.deciding
		if len(done) > 0 {
			t.Error("a question about a node whose agent does not answer was answered")
		}
		close(src.answers)
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestManyReaders: readers of one node and of several do not disturb each other. The race detector looks on.
func TestManyReaders(t *testing.T) {
	d := NewDesk(&halting{Source: deskOf(t, recordings.Saturated(t, "node-1", "cart", 70)).source})
	var reading sync.WaitGroup
	for i := range 24 {
		reading.Go(func() {
			node := fmt.Sprint("node-", 3+i%6)
			for _, question := range []string{"node", "events", "what-if", "benefit"} {
				if got, err := ask(d, question+"?reserve=0.3&node="+node); err != nil {
					t.Errorf("%s of %s: %v", question, node, err)
				} else if _, err := json.Marshal(got); err != nil {
					t.Error(err)
				}
			}
		})
	}
	reading.Wait()
	if len(d.open) > maxOpen {
		t.Errorf("%d nodes are open", len(d.open))
	}
}

// TestFirstPart: the end of a recording is answered without replaying what is before it.
func TestFirstPart(t *testing.T) {
	rec := recordings.Saturated(t, "node-1", "cart", 170)
	rec.Minutes[0] = &record.Minute{Seq: 1, From: rec.Minutes[0].From, To: rec.Minutes[0].To} // cannot be replayed
	d := deskOf(t, rec)
	end := rec.Minutes[2].To
	series := get[nodeSeries](t, d, "node?node=node-1&last=20000")
	if n := len(series.At); n < 19 || n > 21 || series.At[n-1] != end.UnixMilli() {
		t.Errorf("%d rounds, %v", n, series.At)
	}
	if b := get[book](t, d, fmt.Sprint("book?node=node-1&at=", end.UnixMilli())); b.At != end.UnixMilli() {
		t.Errorf("the book is of %d", b.At)
	}
	if _, err := ask(d, "node?node=node-1"); err == nil {
		t.Error("a minute that cannot be replayed is not told")
	}
	if _, err := ask(d, "node?node=node-1&last=long"); err == nil {
		t.Error("a time that is no number is taken")
	}
}
