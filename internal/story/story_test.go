package story

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/benefit"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var config = round.DefaultConfig()

func init() { config.LongestGap = 5 * time.Second }

// podOf is a pod of one container with these limits.
func podOf(name string, limit, published cpu.Milli) replay.Pod {
	p := replay.Pod{Name: record.Name{Namespace: "shop", Name: name}}
	p.UID = name
	p.Containers = []demand.Container{{Name: "app", ID: name, Declared: 500, Limit: limit}}
	if published > 0 {
		p.Published = round.Published{At: noon.Add(-time.Minute), Limits: map[string]cpu.Milli{"app": published}}
	}
	return p
}

// frame is a round some seconds after noon.
func frame(second float64, node round.NodeDecision, pods []replay.Pod, decisions ...round.Decision) *replay.Frame {
	at := noon.Add(time.Duration(second * float64(time.Second)))
	in := round.Input{Now: at, Sample: kernel.Sample{Node: kernel.NodeSample{At: at}, Pods: make([]kernel.PodSample, len(pods))}}
	return &replay.Frame{
		Event: &record.Event{Round: &in}, Config: &config, Input: &in, Pods: pods,
		Output: round.Output{Node: node, Decisions: decisions},
	}
}

// lookFrame is a look that raises or lowers a pod.
func lookFrame(second float64, pods []replay.Pod, d round.Decision) *replay.Frame {
	f := frame(second, round.NodeDecision{}, pods, d)
	f.Event = &record.Event{Look: &record.Look{At: f.Input.Now}}
	return f
}

func tell(about About, frames ...*replay.Frame) string {
	t := teller{about: about, pods: map[string]*pod{}, totals: benefit.NewCounter(about)}
	var b strings.Builder
	for _, f := range frames {
		t.frame(f)
	}
	for _, e := range t.entries {
		fmt.Fprintf(&b, "%s %s: %s\n", e.At.Format("05.0"), e.Pod, e.Text)
	}
	return b.String()
}

// hour is a time with all that is told, and things that are not.
func hour() []*replay.Frame {
	web, batch := podOf("web", 500, 500), podOf("batch", 2000, 2000)
	two := []replay.Pod{web, batch}
	free, scarce := round.NodeDecision{Supply: 3400, Usage: 1200, UsageKnown: true, Demand: 1300}, round.NodeDecision{Supply: 3400, Usage: 3390, Demand: 5100, Price: 0.5}
	dearer, alike := scarce, scarce
	dearer.Price, alike.Price = 0.8, 0.6
	full := free
	full.FloorsExceedSupply = true
	lowered := round.Decision{Pod: 1, Limit: 1000, Demand: 2100, Usage: 1900, ThrottleRatio: 0.97, Budget: 500, Price: 0.5, Bound: market.ByPrice, Publish: true}
	later := podOf("batch", 1000, 1000)
	ending := podOf("batch", 1000, 1000)
	ending.Unmanaged = true // as a pod that is being deleted
	unmanaged := podOf("kube-proxy", 0, 0)
	unmanaged.Unmanaged = true
	gap := &replay.Frame{Event: &record.Event{Gap: &record.Gap{At: noon.Add(9 * time.Second), Why: "waiting for the API server"}}, Config: &config}
	return []*replay.Frame{
		frame(0, free, two, round.Decision{Pod: 0, Limit: 500, Publish: true}), // as published
		frame(1, scarce, two, lowered),
		frame(2, alike, two, lowered), // not carried out yet
		frame(3, dearer, []replay.Pod{web, later}, round.Decision{Pod: 1, Limit: 900, Demand: 2100, Price: 0.8, Bound: market.ByPrice}),
		lookFrame(3.4, []replay.Pod{web, later}, round.Decision{Pod: 0, Limit: 900, Price: 0.8, Publish: true}),
		lookFrame(3.8, []replay.Pod{podOf("web", 900, 900), later}, round.Decision{Pod: 0, Limit: 500, Bound: market.ByCeiling, Publish: true}),
		frame(4, free, []replay.Pod{web, later, podOf("new", 300, 0), unmanaged},
			round.Decision{Pod: 1, Limit: 1500, Usage: 1000, Demand: 1100, Publish: true}, round.Decision{Pod: 2, Limit: 600, Usage: 100, Demand: 290, Bound: market.ByCeiling, Publish: true}),
		frame(4.5, free, []replay.Pod{web, ending, podOf("new", 300, 0)}),
		frame(5, full, []replay.Pod{web, podOf("new", 300, 0)}, round.Decision{Pod: 1, Limit: 100, Demand: 80, Budget: 100, Price: 3, Bound: market.ByFloor, Publish: true}),
		frame(6, free, []replay.Pod{web, podOf("new", 300, 0)}),
		gap, gap,
		frame(10, free, []replay.Pod{web, podOf("new", 300, 0)}),
	}
}

// TestStory: a sentence for each change, and none for what stays.
func TestStory(t *testing.T) {
	want := `00.0 : The recording begins. The pods use 1200m and demand 1300m of a supply of 3400m, and CPU has no price.
01.0 : CPU becomes scarce: the pods demand 5100m of a supply of 3400m, and the price is 0.500.
01.0 shop/batch: Its limit is to be lowered from 2000m to 1000m: it used 1900m, was throttled in 97% of its periods, and demands 2100m; its budget of 500 buys 1000m at a price of 0.500.
03.0 : The price goes from 0.500 to 0.800: the pods demand 5100m of a supply of 3400m.
03.4 shop/web: Its limit is to be raised from 500m to 900m: a look between two rounds saw it throttled; the price of 0.800 does not cap it.
03.8 shop/web: Its limit is to be lowered from 900m to 500m: two looks in a row found the node full, so its raise above the declared limit is revoked.
04.0 : CPU has no price any more, after 3s: the pods demand 1300m of a supply of 3400m.
04.0 shop/new: It takes part, with a limit of 300m.
04.0 shop/batch: Its limit is to be raised from 1000m to 1500m: it used 1000m, and demands 1100m; CPU has no price.
04.0 shop/new: Its limit is to be raised from 300m to 600m: it used 100m, and demands 290m; this is its ceiling.
04.5 shop/batch: It takes part no more: it is being deleted, or is not managed.
05.0 : The floors of the pods add up to more than the supply, so nothing can be divided.
05.0 shop/new: Its limit is to be lowered from 600m to 100m: it used 0m, and demands 80m; its budget of 100 buys less than its floor at a price of 3.000.
06.0 : The floors of the pods fit the supply again.
09.0 : No round is run: waiting for the API server.
10.0 : Rounds go on.
`
	if diff := cmp.Diff(want, tell(Everything, hour()...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	unread := round.NodeDecision{Supply: 3400, Price: 0.5}
	if got, want := tell(Everything, frame(0, unread, nil)), "00.0 : The recording begins, and the price is 0.500.\n"; got != want {
		t.Errorf("without counters: %q, want %q", got, want)
	}
	only := tell(Pod("shop", "web"), hour()...)
	if strings.Contains(only, "batch") || strings.Contains(only, "shop/new") || !strings.Contains(only, "shop/web") || !strings.Contains(only, "becomes scarce") {
		t.Errorf("of one pod:\n%s", only)
	}
}
