package story

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/benefit"
	"github.com/mbcas/mbcas/internal/idleclass"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

// recorded is a simulated node on which CPU becomes scarce.
func recorded(t *testing.T) *record.Recording {
	t.Helper()
	return recordings.Played(t, "requests-that-tell", mbcas.DefaultConfig(), 150*time.Second)
}

// TestAt: the answer has the figures of the last round that is not later, also of the one a second before; a pod or a time
// that is not recorded gives an error that names what is.
func TestAt(t *testing.T) {
	rec := recorded(t)
	var capped record.Name
	at := map[time.Time]string{} // of rounds that cap the pod: the sentence about its limit
	_, err := replay.Play(rec, func(f *replay.Frame) error {
		for i := range f.Output.Decisions {
			d, p := &f.Output.Decisions[i], f.Pods[f.Output.Decisions[i].Pod]
			if f.Round != nil && d.Bound != 0 && (capped.Name == "" || capped == p.Name) {
				capped = p.Name
				at[f.At()] = "Decision: a limit of " + d.Limit.String() + ", "
			}
		}
		return nil
	})
	if err != nil || len(at) < 5 {
		t.Fatalf("%d rounds cap a pod, %v", len(at), err)
	}
	about := Pod(capped.Namespace, capped.Name)
	times := slices.SortedFunc(maps.Keys(at), time.Time.Compare)
	for _, round := range []time.Time{times[0], times[len(times)/2], times[len(times)-1]} {
		want := at[round]
		for _, after := range []time.Duration{0, 50 * time.Millisecond} {
			a, err := At(rec, about, round.Add(after))
			if err != nil || !a.At.Equal(round) || !strings.Contains(a.Text(), want) || !strings.Contains(a.Text(), "so the price was") {
				t.Fatalf("%v after %v: want %q, %v:\n%s", after, round, want, err, a.Text())
			}
		}
	}
	if _, err := At(rec, about, rec.Minutes[0].From.Add(-time.Second)); !errors.Is(err, ErrNotRecorded) || !strings.Contains(err.Error(), "the recording of node node-1 is from") {
		t.Errorf("before the recording: %v", err)
	}
	if _, err := At(rec, Pod("shop", "nothing"), rec.Minutes[1].From); !errors.Is(err, ErrNotRecorded) || !strings.Contains(err.Error(), "the pod is not recorded") {
		t.Errorf("another pod: %v", err)
	}
	if a, err := At(rec, about, last(rec).Add(time.Hour)); err != nil || !strings.Contains(a.Text(), "That was the last round with the pod before") {
		t.Errorf("after the recording: %v\n%s", err, a.Text())
	}
}

// TestAtInForce: the answer has the limit in force, since when, the decision, and the next change, also where it is minutes
// before or later; where no decision is carried out it says so.
func TestAtInForce(t *testing.T) {
	rec := recordings.Played(t, "contended-services-hogs", mbcas.DefaultConfig(), 300*time.Second)
	about := Pod("default", "hog-1")
	type change struct {
		at       time.Time
		from, to cpu.Milli
	}
	var changes []change
	var decided []time.Time // before the first change
	was := cpu.Milli(0)
	_, err := replay.Play(rec, func(f *replay.Frame) error {
		for i := range f.Pods {
			if p := &f.Pods[i]; f.Round != nil && about(p.Name) {
				limit := benefit.LimitOf(p.PodInput)
				if was > 0 && limit != was {
					changes = append(changes, change{f.At(), was, limit})
				}
				was = limit
			}
		}
		for i := range f.Output.Decisions {
			if d := &f.Output.Decisions[i]; about(f.Pods[d.Pod].Name) && d.Publish && len(changes) == 0 {
				decided = append(decided, f.At())
			}
		}
		return nil
	})
	if err != nil || len(changes) < 4 || len(decided) == 0 {
		t.Fatalf("%d changes, %v", len(changes), err)
	}
	check := func(rec *record.Recording, at time.Time, want ...string) {
		t.Helper()
		a, err := At(rec, about, at)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range want {
			if !strings.Contains(a.Text(), want) {
				t.Errorf("no %q in:\n%s", want, a.Text())
			}
		}
	}
	for i, c := range changes[:len(changes)-1] {
		verb, next := "lowered", changes[i+1]
		if c.to > c.from {
			verb = "raised"
		}
		check(rec, c.at, fmt.Sprintf("In force: a limit of %v, since %s, when it was %s from %v.", c.to, clock(c.at), verb, c.from),
			fmt.Sprintf("Next change: at %s, to %v, ", clock(next.at), next.to))
	}
	check(rec, decided[0], fmt.Sprintf("In force: a limit of %v, since %s or before.", changes[0].from, clock(first(rec))),
		"was published at "+clock(decided[0])+": where decisions are carried out, a decrease goes in steps, by default by a factor of 1.5 at most and 5s apart.",
		fmt.Sprintf("Next change: at %s, to %v, a step towards the ", clock(changes[0].at), changes[0].to))
	end := changes[len(changes)-1]
	check(rec, end.at, fmt.Sprintf("Next change: none until %s.", clock(last(rec))))

	recommended := recordings.Saturated(t, "node-1", "hog-1", 150)
	about = Pod("shop", "hog-1")
	gap := recordings.Saturated(t, "node-1", "hog-1", 300) // without its third minute
	gap.Minutes = slices.Delete(slices.Clone(gap.Minutes), 2, 3)
	check(gap, recordings.Noon.Add(30*time.Second), "since 12:00:00 or before.", "Next change: none until 12:01:59.")
	check(gap, recordings.Noon.Add(200*time.Second), "since 12:03:00 or before.", "Next change: none until 12:04:59.")
	check(recommended, recordings.Noon.Add(100*time.Second), "In force: a limit of 1000m, since 12:00:00 or before.", "Next change: none until 12:02:29. In modes recommend and restore no decision is carried out.")
}

// TestAtHasClass: the answer has the class of a pod in the round, and why it is no better one; without weights there is
// none.
func TestAtHasClass(t *testing.T) {
	weights := mbcas.DefaultConfig()
	weights.Weights = true
	for name, cfg := range map[string]mbcas.Config{"weights": weights, "limits alone": mbcas.DefaultConfig()} {
		rec := recordings.Played(t, "requests-that-mislead", cfg, 150*time.Second)
		seen := map[idleclass.Class]bool{}
		_, err := replay.Play(rec, func(f *replay.Frame) error {
			if f.Round == nil {
				return nil
			}
			for i := range f.Pods {
				class := idleclass.Class(f.Pods[i].CPUClass)
				if seen[class] || !slices.ContainsFunc(f.Output.Decisions, func(d round.Decision) bool { return d.Pod == i }) {
					continue
				}
				seen[class] = true
				text := ofRound("node-1", f, i).Text()
				if has := strings.Contains(text, "Class: "); has != (class != idleclass.NoClass) || !strings.Contains(text, class.Words()) {
					t.Errorf("%s, class %d:\n%s", name, class, text)
				}
			}
			return nil
		})
		if err != nil || seen[idleclass.Idle] != cfg.Weights || seen[idleclass.Weighted] != cfg.Weights {
			t.Errorf("%s: classes %v, %v", name, seen, err)
		}
	}
}

// TestTell: the story of a recording has its node and times, and what the frames give.
func TestTell(t *testing.T) {
	s, err := Tell(recorded(t), Everything)
	if err != nil || s.Replayed.Others > 0 || s.Totals.Covered < 140*time.Second || len(s.Entries) < 3 {
		t.Fatalf("%+v, %v", s, err)
	}
	text := s.Text()
	for _, want := range []string{"Node node-1 from ", "The recording begins, and CPU has no price.", "CPU becomes scarce", "The first decision is a limit of ", "Its limit is lowered from ", "with counters, CPU had a price for"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	s.Replayed.First, s.Replayed.Missing = &replay.Difference{}, 90*time.Second
	if text := s.Text(); !strings.Contains(text, "other results than MBCAS v0.1.0 has recorded") || !strings.Contains(text, "no longer has 1m30s") {
		t.Errorf("%s", text)
	}
}
