package page_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/page"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/story"
)

// recording is of a node with four cores: a service, and after a minute a batch job that saturates them.
func recording(t *testing.T) *record.Recording {
	t.Helper()
	cfg := mbcas.DefaultConfig()
	cfg.Record = record.NewRecorder(record.Limits{Keep: 24 * time.Hour, Bytes: 1 << 30})
	sim.Run(sim.Setup{Machine: sim.Machine{Cores: 4}, Length: 150 * time.Second, Seed: 1, Pods: []sim.PodSpec{
		{Name: "cart", Namespace: "shop", Request: 1000, Limit: 2000, Spin: load.Constant(1)},
		{Name: "search", Namespace: "shop", Request: 500, Limit: 1500, Spin: load.Constant(2)},
		{Name: "batch", Namespace: "jobs", Request: 500, Limit: 4000, Spin: load.Constant(4), Start: 60 * time.Second},
	}}, mbcas.New(cfg))
	var b bytes.Buffer
	if err := cfg.Record.WriteTo(&b, record.About{Node: "node-1", Version: "test"}, 0); err != nil {
		t.Fatal(err)
	}
	rec, err := record.Open(&b)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func fileOf(t *testing.T, rec *record.Recording) page.Source {
	t.Helper()
	src, err := page.File(rec)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// book is the order book of the last round that is not after a time, as the replay has it: a row by pod, as the page
// shows it.
func book(t *testing.T, rec *record.Recording, at time.Time) (rows map[string][]string, summary string) {
	t.Helper()
	_, err := replay.Play(rec, func(f *replay.Frame) error {
		if f.Round == nil || f.At().After(at) {
			return nil
		}
		rows = map[string][]string{}
		n := f.Output.Node
		summary = fmt.Sprintf("%s UTC: supply %v, usage %v, demand %v, system %v, price %v.", f.At().UTC().Format("15:04:05"),
			n.Supply, n.Usage, n.Demand, n.System, n.Price)
		for _, d := range f.Output.Decisions {
			p, buys := f.Pods[d.Pod], "no price"
			if d.Price > 0 {
				buys = fmt.Sprintf("%.0fm", float64(d.Budget)/float64(d.Price))
			}
			name := p.Namespace + "/" + p.Name.Name
			rows[name] = []string{name, fmt.Sprint(int64(d.Budget)), d.Demand.String(), d.Usage.String(),
				fmt.Sprintf("%.0f%%", 100*d.ThrottleRatio), d.Floor.String(), buys, d.Limit.String(), strings.ToLower(d.Bound.String()),
				p.Containers[0].Limit.String()}
		}
		return nil
	})
	if err != nil || len(rows) == 0 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	return rows, summary
}

// TestNodeView: the figures under the scrubber and the order book are those of the replay, at the end and at an earlier time,
// and the events are the sentences of the story.
func TestNodeView(t *testing.T) {
	t.Parallel()
	rec := recording(t)
	b := open(t, fileOf(t, rec), "light")
	b.visit("/node/node-1")
	check := func(at time.Time) {
		t.Helper()
		want, summary := book(t, rec, at)
		b.wait(fmt.Sprintf("document.querySelector('#cursor')?.innerText === %q", summary))
		b.wait(fmt.Sprintf("document.querySelectorAll('#book tbody tr').length === %d", len(want)))
		first := want["shop/cart"]
		b.wait(fmt.Sprintf("[...document.querySelectorAll('#book tbody td')].some((c) => c.innerText === %q)", first[2]))
		for _, row := range b.table("#book") {
			if !slices.Equal(row, want[row[0]]) {
				t.Errorf("at %v the book has\n%q, want\n%q", at, row, want[row[0]])
			}
		}
	}
	check(rec.Minutes[len(rec.Minutes)-1].To)

	told, err := story.Tell(rec, story.Everything)
	if err != nil || len(told.Entries) < 3 {
		t.Fatalf("%d sentences, %v", len(told.Entries), err)
	}
	events := b.text("#events")
	for _, e := range told.Entries {
		if !strings.Contains(events, e.Text) {
			t.Errorf("the events lack %q", e.Text)
		}
	}
	// A click on the time of an event moves the scrubber there.
	b.do(chromedp.Click(chromedp.CSS("#events li:nth-child(2) button")))
	check(told.Entries[1].At)
	b.calm()
}
