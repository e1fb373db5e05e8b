package figures

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/story"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

func deskOf(t *testing.T, rec *record.Recording) *Desk {
	t.Helper()
	src, err := File(rec)
	must.Succeed(t, err)
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
	must.Succeed(t, err)
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
	must.Succeed(t, err)
	later := get[nodeSeries](t, s, fmt.Sprintf("node?node=node-1&after=%d", series.At[140]))
	if len(later.At) != 9 || later.At[0] != series.At[141] {
		t.Errorf("after round 140 there are %d, from %d", len(later.At), later.At[0])
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

// TestGoesOn: what is new of a recording is shown, the source is asked once a second at most, and minutes that have not
// changed are not replayed again.
func TestGoesOn(t *testing.T) {
	long := recordings.Saturated(t, "node-1", "cart", 150)
	src := &growing{rec: recordings.Saturated(t, "node-1", "cart", 100)}
	s := NewDesk(src)
	now := recordings.Noon
	s.now = func() time.Time { return now }
	length := func() int { return len(get[nodeSeries](t, s, "node?node=node-1").At) }
	for range 2 {
		if got := length(); got != 100 || src.asked != 1 {
			t.Errorf("%d rounds, the source was asked %d times", got, src.asked)
		}
	}
	first := &s.open.minutes[0].frames[0]
	src.rec = long
	now = now.Add(fresh)
	if got := length(); got != 150 || src.asked != 2 || &s.open.minutes[0].frames[0] != first {
		t.Errorf("%d rounds after %d requests", got, src.asked)
	}
	src.err = errors.New("the agent does not answer")
	now = now.Add(fresh)
	if _, err := ask(s, "node?node=node-1"); !errors.Is(err, src.err) {
		t.Errorf("the answer is %v", err)
	}
}
