package story

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
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

// TestTell: the story of a recording has its node and times, and what the frames give.
func TestTell(t *testing.T) {
	s, err := Tell(recorded(t), Everything)
	if err != nil || s.Replayed.Others > 0 || s.Totals.Covered < 140*time.Second || len(s.Entries) < 3 {
		t.Fatalf("%+v, %v", s, err)
	}
	text := s.Text()
	for _, want := range []string{"Node node-1 from ", "The recording begins, and CPU has no price.", "CPU becomes scarce", "is to be lowered from", "with counters, CPU had a price for"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	s.Replayed.First, s.Replayed.Missing = &replay.Difference{}, 90*time.Second
	if text := s.Text(); !strings.Contains(text, "other results than MBCAS v0.1.0 has recorded") || !strings.Contains(text, "no longer has 1m30s") {
		t.Errorf("%s", text)
	}
}
