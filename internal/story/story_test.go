package story

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/benefit"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/recordings"
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

// lookFrame is a look that raises a pod.
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
		frame(4, free, []replay.Pod{web, later, podOf("new", 300, 0), unmanaged},
			round.Decision{Pod: 1, Limit: 1500, Usage: 1000, Demand: 1100, Publish: true}, round.Decision{Pod: 2, Limit: 600, Usage: 100, Demand: 290, Bound: market.ByCeiling, Publish: true}),
		frame(4.5, free, []replay.Pod{web, ending, podOf("new", 300, 0)}),
		frame(5, full, []replay.Pod{web, podOf("new", 300, 0)}, round.Decision{Pod: 1, Limit: 100, Demand: 80, Budget: 100, Floor: 100, Price: 3, Bound: market.ByFloor, Publish: true}),
		frame(6, free, []replay.Pod{web, podOf("new", 300, 0)}),
		gap, gap,
		frame(10, free, []replay.Pod{web, podOf("new", 300, 0)}),
	}
}

// TestStory: a sentence for each change, and none for what stays.
func TestStory(t *testing.T) {
	want := `00.0 : The recording begins. The pods use 1200m and demand 1300m of a supply of 3400m, and CPU has no price.
01.0 : CPU becomes scarce: the pods demand 5100m of a supply of 3400m, and the price is 0.500.
01.0 shop/batch: The decision goes from 2000m to 1000m: it used 1900m, was throttled in 97% of its periods, and demands 2100m; its budget of 500 buys 1000m at a price of 0.500.
03.0 : The price goes from 0.500 to 0.800: the pods demand 5100m of a supply of 3400m.
03.0 shop/batch: Its limit is lowered from 2000m to 1000m, as decided at 12:00:01.
03.4 shop/web: The decision goes from 500m to 900m: a look between two rounds saw it throttled; the price of 0.800 does not cap it.
04.0 : CPU has no price any more, after 3s: the pods demand 1300m of a supply of 3400m.
04.0 shop/new: It takes part, with a limit of 300m.
04.0 shop/batch: The decision goes from 1000m to 1500m: it used 1000m, and demands 1100m; CPU has no price.
04.0 shop/new: The first decision is a limit of 600m (in force: 300m): it used 100m, and demands 290m; this is its ceiling.
04.5 shop/batch: It takes part no more: it is being deleted, or is not managed.
05.0 : The floors of the pods add up to more than the supply, so nothing can be divided.
05.0 shop/new: The decision goes from 600m to 100m (in force: 300m): it used 0m, and demands 80m; its budget of 100 buys less than its floor at a price of 3.000.
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

// changed are the rounds of a pod that has been told a decision of 1000m, and whose limit then goes from 2000m through these.
func changed(decided cpu.Milli, limits ...cpu.Milli) string {
	scarce := round.NodeDecision{Supply: 3400, Demand: 5100, Price: 0.5, Cleared: 0.5, UsageKnown: true}
	frames := []*replay.Frame{frame(0, scarce, []replay.Pod{podOf("batch", 2000, 2000)}, round.Decision{Limit: decided, Budget: 500, Price: 0.5, Bound: market.ByPrice, Publish: true})}
	for i, l := range limits {
		frames = append(frames, frame(float64(i+1), scarce, []replay.Pod{podOf("batch", l, decided)}))
	}
	lines := strings.SplitAfter(tell(Everything, frames...), "\n")
	return strings.Join(lines[2:], "") // without the begin and the decision
}

// TestSteps: each change of the limit in force is told, as a step towards the decision, as that decision, or without one. Where
// no decision is carried out, as in mode recommend, no change is told.
func TestSteps(t *testing.T) {
	for _, tc := range []struct {
		decided cpu.Milli
		limits  []cpu.Milli
		want    string
	}{
		{1000, []cpu.Milli{2000, 2000, 2000}, ""},
		{1000, []cpu.Milli{1340, 1340, 1000}, "01.0 shop/batch: Its limit is lowered from 2000m to 1340m, a step towards the 1000m decided at 12:00:00.\n" +
			"03.0 shop/batch: Its limit is lowered from 1340m to 1000m, as decided at 12:00:00.\n"},
		{3000, []cpu.Milli{3000}, "01.0 shop/batch: Its limit is raised from 2000m to 3000m, as decided at 12:00:00.\n"},
		{1000, []cpu.Milli{1340, 2500}, "01.0 shop/batch: Its limit is lowered from 2000m to 1340m, a step towards the 1000m decided at 12:00:00.\n" +
			"02.0 shop/batch: Its limit is raised from 1340m to 2500m; the decision is 1000m, and the recording does not have why.\n"},
		{1000, append(slices.Repeat([]cpu.Milli{2000}, 11), 1340, 1000), "12.0 shop/batch: Its limit is lowered from 2000m to 1340m, a step towards the 1000m decided at 12:00:00, 12s before.\n" +
			"13.0 shop/batch: Its limit is lowered from 1340m to 1000m, as decided at 12:00:00.\n"},
		{3000, append(slices.Repeat([]cpu.Milli{2000}, 19), 3000), "20.0 shop/batch: Its limit is raised from 2000m to 3000m, as decided at 12:00:00, 20s before.\n"},
		{3000, []cpu.Milli{500}, "01.0 shop/batch: Its limit is lowered from 2000m to 500m, its declared limit; the decision is 3000m, and the recording does not have why.\n"},
		{1000, []cpu.Milli{600}, "01.0 shop/batch: Its limit is lowered from 2000m to 600m; the decision is 1000m, and the recording does not have why.\n"},
	} {
		if diff := cmp.Diff(tc.want, changed(tc.decided, tc.limits...)); diff != "" {
			t.Errorf("%v, then %v (-want +got):\n%s", tc.decided, tc.limits, diff)
		}
	}
}

// TestStepsFromBefore: a decision from before the recording has waited where the limit is still the declared one. A limit on its
// way when the recording begins has not.
func TestStepsFromBefore(t *testing.T) {
	scarce := round.NodeDecision{Supply: 3400, Demand: 5100, Price: 0.5, Cleared: 0.5, UsageKnown: true}
	for limit, want := range map[cpu.Milli]string{
		500:  "01.0 shop/batch: Its limit is raised from 500m to 1000m, as decided at 11:59:00, 1m1s before.\n",
		1340: "01.0 shop/batch: Its limit is lowered from 1340m to 1000m, as decided at 11:59:00.\n",
	} {
		told := tell(Everything, frame(0, scarce, []replay.Pod{podOf("batch", limit, 1000)}), frame(1, scarce, []replay.Pod{podOf("batch", 1000, 1000)}))
		if _, got, _ := strings.Cut(told, "\n"); got != want {
			t.Errorf("from %v: %q, want %q", limit, got, want)
		}
	}
}

// TestChanges: on simulated nodes the changes that are told of a pod are as many as those that are counted, and a decision names
// the limit in force where that is another than the decision before.
func TestChanges(t *testing.T) {
	for _, scenario := range []string{"contended-services-hogs", "quota"} {
		s, err := Tell(recordings.Played(t, scenario, mbcas.DefaultConfig(), 100*time.Second), Everything)
		if err != nil {
			t.Fatal(err)
		}
		told, steps := map[string]int{}, 0
		for _, e := range s.Entries {
			if strings.HasPrefix(e.Text, "Its limit is ") {
				told[e.Pod]++
			}
			if strings.Contains(e.Text, ", a step towards the ") {
				steps++
			}
		}
		for _, p := range s.Totals.Pods {
			if told[p.String()] != p.Changes {
				t.Errorf("%s: %d changes of %s are told, and %d counted", scenario, told[p.String()], p, p.Changes)
			}
		}
		if s.Totals.Sum.Changes < 10 || steps == 0 {
			t.Errorf("%s: %d changes, %d steps", scenario, s.Totals.Sum.Changes, steps)
		}
	}
}

// TestReasons: a limit that is not what the budget buys has its reason, and no other has one.
func TestReasons(t *testing.T) {
	scarce := round.NodeDecision{Supply: 1350, Demand: 3000, Price: 0.2, Cleared: 0.2, UsageKnown: true}
	fits, unread := scarce, scarce
	fits.Cleared, unread.UsageKnown = 0, false
	capped := func(limit cpu.Milli) round.Decision {
		return round.Decision{Limit: limit, Budget: 200, Price: 0.2, Bound: market.ByPrice, Floor: 210, Ceiling: 1600, Containers: make([]round.ContainerLimit, 1)}
	}
	floor, idle := capped(600), round.Decision{Limit: 900}
	floor.Bound, floor.Floor, floor.Budget = market.ByFloor, 400, 50
	for _, tc := range []struct {
		node round.NodeDecision
		d    round.Decision
		want string
	}{
		{scarce, capped(1000), ""},
		{scarce, capped(1600), "its budget of 200 buys 1000m at a price of 0.200, but its demand is not known yet: a pod with a new container is not lowered; 1600m is its ceiling"},
		{fits, capped(1300), "its budget of 200 buys 1000m at a price of 0.200, but all demands fit the supply, so nothing is lowered"},
		{unread, capped(1300), "its budget of 200 buys 1000m at a price of 0.200, but nothing is lowered while the usage of the node is not readable"},
		{scarce, capped(700), "its budget of 200 buys 1000m at a price of 0.200, but the increases of a pod that saturates are spread over time"},
		{scarce, floor, "its budget of 50 buys 250m at a price of 0.200, and its floor is 400m, but its demand is not known yet: a pod with a new container is not lowered"},
		{scarce, idle, "it is new, and CPU is idle, so the price of 0.200 does not count yet"},
	} {
		f := frame(0, tc.node, []replay.Pod{podOf("hog", 4000, 0)}, tc.d)
		if got := besidePrice(&tc.d, f); got != tc.want {
			t.Errorf("%+v:\n%q, want\n%q", tc.d, got, tc.want)
		}
		if at := decided(&tc.d, f); strings.Contains(at, "set by the price") != (tc.want == "") || !strings.Contains(at, tc.want) || !strings.Contains(why(&tc.d, f), tc.want) {
			t.Errorf("%q does not have %q", at, tc.want)
		}
	}
}

// TestOneShare: the price and the decision name the same share, rounded alike.
func TestOneShare(t *testing.T) {
	node := round.NodeDecision{Price: 0.3, Cleared: 0.3, UsageKnown: true}
	d := round.Decision{Limit: 1600, Budget: 200, Price: 0.3, Bound: market.ByPrice, Ceiling: 1600}
	priced, beside := buys(&d, node), besidePrice(&d, frame(0, node, nil, d))
	if priced != "667m at that price" || !strings.HasPrefix(beside, "its budget of 200 buys 667m at a price of 0.300") {
		t.Errorf("%q and %q", priced, beside)
	}
}

// TestNewPodsAreNew: on a simulated node the limits that are told to stay because a pod is new are those of pods that have
// fewer samples than the market lowers a limit by.
func TestNewPodsAreNew(t *testing.T) {
	rounds, isNew, others := map[string]int{}, 0, 0
	_, err := replay.Play(recordings.Played(t, "pod-churn", mbcas.DefaultConfig(), 200*time.Second), func(f *replay.Frame) error {
		for i := range f.Pods {
			if f.Round != nil {
				rounds[f.Pods[i].UID]++
			}
		}
		for i := range f.Output.Decisions {
			d := &f.Output.Decisions[i]
			if !strings.Contains(besidePrice(d, f), "is not known yet") {
				others++
				continue
			}
			if isNew++; rounds[d.UID] > f.Config.Demand.WarmUpSamples+2 {
				t.Errorf("%v after %d rounds: %s", f.At(), rounds[d.UID], besidePrice(d, f))
			}
		}
		return nil
	})
	if err != nil || isNew == 0 || others == 0 {
		t.Errorf("%d limits of new pods, %d others, %v", isNew, others, err)
	}
}

// TestTellerGoesOn: a recording that goes on is told as if at once, minutes that are over are not replayed again, and another
// run of the agent is told from its beginning.
func TestTellerGoesOn(t *testing.T) {
	all, shorter := recordings.Saturated(t, "node-1", "cart", 170), recordings.Saturated(t, "node-1", "cart", 130)
	shorter.About.Run = all.About.Run
	teller := NewTeller(Everything)
	check := func(rec, whole *record.Recording) {
		t.Helper()
		got, err := teller.Tell(rec)
		if err != nil {
			t.Fatal(err)
		}
		want, err := Tell(whole, Everything)
		if err != nil || len(want.Entries) < 3 {
			t.Fatalf("%+v, %v", want, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(replay.Summary{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	begun := *all
	begun.Minutes = all.Minutes[:1]
	check(&begun, &begun)
	check(shorter, shorter)
	check(shorter, shorter)
	unread := *all
	unread.Minutes = append([]*record.Minute{{Seq: 1}, {Seq: 2}}, all.Minutes[2:]...)
	check(&unread, all)
	other := recordings.Saturated(t, "node-1", "web", 100)
	check(other, other)
}

// TestTellerForgets: of a recording that goes on for long and keeps its last minutes, no more than twice as many are told, as
// if at once.
func TestTellerForgets(t *testing.T) {
	const kept = 3
	all := recordings.Saturated(t, "node-1", "cart", 900)
	teller, begun := NewTeller(Everything), 0
	for end := kept; end <= len(all.Minutes); end++ {
		got, err := teller.Tell(&record.Recording{About: all.About, Minutes: all.Minutes[end-kept : end]})
		if err != nil {
			t.Fatal(err)
		}
		if n := got.Replayed.Minutes; n > 2*kept || n < kept {
			t.Errorf("%d minutes of a recording of %d are told", n, kept)
		}
		if got.Replayed.Minutes == kept {
			begun++
		}
		want, err := Tell(&record.Recording{About: all.About, Minutes: all.Minutes[end-got.Replayed.Minutes : end]}, Everything)
		if err != nil || len(want.Entries) == 0 {
			t.Fatalf("%+v, %v", want, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(replay.Summary{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if minutes := len(all.Minutes); begun > minutes/kept {
		t.Errorf("%d minutes are told from the beginning %d times", minutes, begun)
	}
}
