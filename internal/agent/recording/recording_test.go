package recording

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

var t0 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newFeed(log *bytes.Buffer) *Feed {
	return &Feed{To: record.NewRecorder(record.DefaultLimits), Log: slog.New(slog.NewTextHandler(log, nil))}
}

// played feeds a round of a node.
func played(f *Feed, second int, node round.NodeDecision) {
	at := t0.Add(time.Duration(second) * time.Second)
	f.Begin(at, round.DefaultConfig(), &round.State{})
	f.Round(round.Input{Now: at}, nil, &round.Output{Node: node})
}

// TestRecorderFails: a panic of the recorder is logged once, and nothing is recorded from then on.
func TestRecorderFails(t *testing.T) {
	var log bytes.Buffer
	f := newFeed(&log)
	played(f, 0, round.NodeDecision{})
	f.Round(round.Input{}, nil, nil) // no output
	played(f, 1, round.NodeDecision{})
	f.Gap(t0, "why")
	if f.To != nil || strings.Count(log.String(), "the recorder panicked") != 1 {
		t.Errorf("recorder %v, logged:\n%s", f.To, log.String())
	}
	var off Feed
	played(&off, 0, round.NodeDecision{})
	off.Panicked(t0)
}

// TestPinned: the beginning of a time in which the node is too full is pinned, each kind once while it lasts, and so is
// a panic, which also ends the minute.
func TestPinned(t *testing.T) {
	full, short := round.NodeDecision{FloorsExceedSupply: true}, round.NodeDecision{Supply: 1000, Demand: 1501}
	for name, tc := range map[string]struct {
		nodes []round.NodeDecision
		want  string
	}{
		"free":               {[]round.NodeDecision{{Supply: 1000, Demand: 1500}}, ""},
		"floors":             {[]round.NodeDecision{{}, full, full}, "the floors of the pods exceed the supply"},
		"demand":             {[]round.NodeDecision{short, short}, "the pods demand more than 1.5 times the supply"},
		"both within a time": {[]round.NodeDecision{short, full}, "the pods demand more than 1.5 times the supply"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFeed(new(bytes.Buffer))
			for i, n := range tc.nodes {
				played(f, i, n)
			}
			pins := recordings.Of(t, f.To).About.Pins
			if tc.want == "" && len(pins) != 0 || tc.want != "" && (len(pins) != 1 || pins[0].Why != tc.want) {
				t.Errorf("pins %v, want %q", pins, tc.want)
			}
		})
	}
	f := newFeed(new(bytes.Buffer))
	played(f, 0, round.NodeDecision{})
	f.Panicked(t0)
	played(f, 1, round.NodeDecision{})
	if rec := recordings.Of(t, f.To); len(rec.Minutes) != 2 || len(rec.About.Pins) != 1 || rec.About.Pins[0].Why != "a round panicked" {
		t.Errorf("after a panic there are %d minutes with pins %v", len(rec.Minutes), rec.About.Pins)
	}
}

// TestPinsHarm: a pod that the controller tells of after the first round is pinned once, also a minute after the node became
// too full; one of which it has told before the agent started is not.
func TestPinsHarm(t *testing.T) {
	f := newFeed(new(bytes.Buffer))
	old, cart := record.Name{Namespace: "shop", Name: "old"}, record.Name{Namespace: "shop", Name: "cart"}
	for second, harmed := range [][]record.Name{{old}, {old}, {cart, old}, {cart, old}, {cart}} {
		played(f, second, round.NodeDecision{FloorsExceedSupply: true})
		f.Harmed(t0.Add(time.Duration(second)*time.Second), harmed)
	}
	pins := recordings.Of(t, f.To).About.Pins
	if len(pins) != 2 || pins[0].Fault || !pins[1].Fault || !pins[1].At.Equal(t0.Add(2*time.Second)) || !pins[1].Last.Equal(pins[1].At) ||
		pins[1].String() != "pod shop/cart: it became unhealthy after a decrease of its limit" {
		t.Errorf("pins %+v", pins)
	}
}

// slow is a reader that takes its time.
type slow struct {
	*httptest.ResponseRecorder
	began, goOn chan struct{}
}

func (s slow) Write(b []byte) (int, error) {
	select {
	case s.began <- struct{}{}:
		<-s.goOn
	default:
	}
	return s.ResponseRecorder.Write(b)
}

// TestServe: a reader gets the recording, or the part after a minute; bad queries, a third reader, and an agent
// without a recorder get an answer that says why.
func TestServe(t *testing.T) {
	f := newFeed(new(bytes.Buffer))
	for second := range 130 {
		played(f, second, round.NodeDecision{})
	}
	h := Handler(f.To, record.About{Node: "node-1"})
	get := func(h http.Handler, query string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/rounds"+query, nil))
		return w
	}
	for query, minutes := range map[string]int{"": 3, "?after=0": 3, "?after=2": 1, "?after=9": 0} {
		rec, err := record.Open(get(h, query).Body)
		if err != nil || len(rec.Minutes) != minutes || rec.About.Node != "node-1" {
			t.Errorf("%q: %v, %v: want %d minutes", query, rec, err, minutes)
		}
	}
	if w := get(h, "?after=x"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "want the number of a minute") {
		t.Errorf("bad query: %d %s", w.Code, w.Body)
	}
	if w := get(Handler(nil, record.About{}), ""); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "--record=0") {
		t.Errorf("without a recorder: %d %s", w.Code, w.Body)
	}
	goOn, readers := make(chan struct{}), sync.WaitGroup{}
	for range maxReaders {
		began := make(chan struct{})
		readers.Go(func() {
			h.ServeHTTP(slow{httptest.NewRecorder(), began, goOn}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		})
		<-began
	}
	if w := get(h, ""); w.Code != http.StatusTooManyRequests {
		t.Errorf("a third reader: %d", w.Code)
	}
	close(goOn)
	readers.Wait()
	if w := get(h, ""); w.Code != http.StatusOK {
		t.Errorf("after the readers have gone: %d", w.Code)
	}
}
