package replay_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// TestReplayEqualsRecording: every scenario of the catalogue, recorded and read from a file, gives the recorded results
// again, whether it is played from its beginning or from any of its minutes.
func TestReplayEqualsRecording(t *testing.T) {
	for _, s := range scenario.Catalogue() {
		t.Run(s.Name, func(t *testing.T) {
			rec := recordings.Played(t, s.Name, mbcas.DefaultConfig(), 90*time.Second)
			minutes := rec.Minutes
			for from := range minutes {
				rec.Minutes = minutes[from:]
				sum, err := replay.Play(rec, func(f *replay.Frame) error {
					for _, d := range f.Output.Decisions {
						if p := f.Pods[d.Pod]; p.UID != d.UID || p.Namespace+"/"+p.Name.Name != d.UID {
							return fmt.Errorf("a decision about %s names %+v", d.UID, p.Name)
						}
					}
					return nil
				})
				if err != nil || sum.Others > 0 || sum.Rounds == 0 || from == 0 && sum.Decisions == 0 {
					t.Fatalf("from minute %d: %+v, first %v, %v", from, sum, sum.First, err)
				}
			}
		})
	}
}

// TestJoinsReplay: pods that are taken in between two rounds, and looks at them, are replayed.
func TestJoinsReplay(t *testing.T) {
	cfg := mbcas.DefaultConfig()
	cfg.Record = record.NewRecorder(recordings.Everything)
	at := func(ms int) time.Duration { return 62*time.Second + time.Duration(ms)*time.Millisecond }
	sim.Run(sim.Setup{Machine: sim.Machine{Cores: 4}, Length: 80 * time.Second, Seed: 1, Pods: []sim.PodSpec{
		{Name: "other", Request: 500, Limit: 1000, Spin: load.Constant(0.1)},
		{Name: "first", Request: 100, Limit: 500, Spin: load.Constant(1), Start: at(100)},
		{Name: "second", Request: 100, Limit: 500, Spin: load.Constant(1), Start: at(5300)},
	}}, mbcas.New(cfg))
	raised := 0
	sum, err := replay.Play(recordings.Of(t, cfg.Record), func(f *replay.Frame) error {
		if f.Round == nil {
			raised += len(f.Output.Decisions)
		}
		return nil
	})
	if err != nil || sum.Others > 0 || sum.Joins != 2 || sum.Looks == 0 || raised == 0 {
		t.Errorf("%+v, %d raised between rounds, first %v, %v", sum, raised, sum.First, err)
	}
}

// TestDivergence: events whose recorded result is another are counted, and the first is named.
func TestDivergence(t *testing.T) {
	rec := record.NewRecorder(recordings.Everything)
	var state round.State
	for second := range 70 {
		in := round.Input{Now: noon.Add(time.Duration(second) * time.Second), Node: round.Node{Capacity: 4000, Allocatable: 4000}}
		rec.Begin(in.Now, round.DefaultConfig(), &state)
		var out round.Output
		if state, out = round.Run(round.DefaultConfig(), state, in); second == 62 || second == 65 {
			out.Node.Supply++
		}
		rec.Round(in, nil, &out)
	}
	rec.Gap(noon.Add(70*time.Second), "a reason")
	others, gaps := 0, ""
	sum, err := replay.Play(recordings.Of(t, rec), func(f *replay.Frame) error {
		if f.Other {
			others++
		}
		if f.Gap != nil {
			gaps += f.Gap.Why
		}
		return nil
	})
	if err != nil || sum.Others != 2 || others != 2 || sum.First == nil || gaps != "a reason" || sum.Gaps != 1 {
		t.Fatalf("%+v, %v", sum, err)
	}
	if got, want := sum.First.String(), "2026-11-21 12:01:02.000, round (event 3 of minute 2)"; got != want {
		t.Errorf("the first difference is %s, want %s", got, want)
	}
	stop := errors.New("enough")
	if _, err := replay.Play(recordings.Of(t, rec), func(*replay.Frame) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a visit's error becomes %v", err)
	}
}

// TestOddFile: a minute that no agent has written is an error, and not the end of the program.
func TestOddFile(t *testing.T) {
	odd := func(record func(*record.Recorder)) error {
		rec := record0()
		record(rec)
		_, err := replay.Play(recordings.Of(t, rec), func(*replay.Frame) error { return nil })
		return err
	}
	pods := []round.PodInput{{}}
	for want, err := range map[string]error{
		"the counters are not those of the pods": odd(func(r *record.Recorder) { r.Round(round.Input{Now: noon, Pods: pods}, nil, &round.Output{}) }),
		"it comes before the first round":        odd(func(r *record.Recorder) { r.Look(record.Look{At: noon}, &round.Output{}) }),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	rec := record0()
	rec.Round(round.Input{Now: noon}, nil, &round.Output{})
	err := replay.Read(recordings.Of(t, rec).Minutes[0], func(*record.Keyframe) error { return nil }, func(*record.Event) error { panic("of a round") })
	if err == nil || !strings.Contains(err.Error(), "minute 1, from 2026-11-21T12:00:00Z, cannot be replayed") {
		t.Errorf("a panic becomes %v", err)
	}
}

// record0 is a recorder whose first minute has begun.
func record0() *record.Recorder {
	rec := record.NewRecorder(recordings.Everything)
	rec.Begin(noon, round.DefaultConfig(), &round.State{})
	return rec
}

// TestMissing: the time of the minutes that a recording no longer holds is told, and a step of the clock is none.
func TestMissing(t *testing.T) {
	rec := record.NewRecorder(recordings.Everything)
	for _, minute := range []int{0, 1, 30} {
		in := round.Input{Now: noon.Add(time.Duration(minute) * time.Minute)}
		var out round.Output
		rec.Begin(in.Now, round.DefaultConfig(), &round.State{})
		_, out = round.Run(round.DefaultConfig(), round.State{}, in)
		rec.Round(in, nil, &out)
	}
	whole := recordings.Of(t, rec)
	nothing := func(*replay.Frame) error { return nil }
	if sum, err := replay.Play(whole, nothing); err != nil || sum.Missing != 0 || sum.Minutes != 3 {
		t.Errorf("of minutes in a row: %+v, %v", sum, err)
	}
	whole.Minutes = slices.Delete(whole.Minutes, 1, 2)
	sum, err := replay.Play(whole, nothing)
	if err != nil || sum.Missing != 30*time.Minute || sum.Minutes != 2 || sum.Others != 0 {
		t.Errorf("%+v, %v", sum, err)
	}
	if !strings.Contains(sum.From.String(), "12:00:00") || !strings.Contains(sum.To.String(), "12:30:00") {
		t.Errorf("from %v to %v", sum.From, sum.To)
	}
}
