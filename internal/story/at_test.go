package story

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
)

// recorded is a simulated node on which CPU becomes scarce.
func recorded(t *testing.T) *record.Recording {
	t.Helper()
	s, err := scenario.Find("requests-that-tell", "")
	if err != nil {
		t.Fatal(err)
	}
	cfg := mbcas.DefaultConfig()
	cfg.Record = record.NewRecorder(record.Limits{Keep: time.Hour, Bytes: 1 << 30})
	setup := s.Setup(0, 1)
	setup.Length, setup.WarmUp = 150*time.Second, 0
	sim.Run(setup, mbcas.New(cfg))
	var b bytes.Buffer
	if err := cfg.Record.WriteTo(&b, record.About{Node: "node-1"}, 0); err != nil {
		t.Fatal(err)
	}
	rec, err := record.Open(&b)
	if err != nil {
		t.Fatal(err)
	}
	return rec
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
	for round, want := range at {
		for _, after := range []time.Duration{0, 50 * time.Millisecond} {
			a, err := At(rec, about, round.Add(after))
			if err != nil || !a.At.Equal(round) || !strings.Contains(a.Text(), want) || !strings.Contains(a.Text(), "so the price was") {
				t.Fatalf("%v after %v: want %q, %v:\n%s", after, round, want, err, a.Text())
			}
		}
		break
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
	if text := s.Text(); !strings.Contains(text, "Caution: another version") || !strings.Contains(text, "no longer has 1m30s") {
		t.Errorf("%s", text)
	}
}
