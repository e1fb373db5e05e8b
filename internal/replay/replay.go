// Package replay runs recorded rounds again, with the code that ran them.
//
// Promises:
//   - Rounds of the same version give the recorded results, on each architecture: TestReplayEqualsRecording, TestSameSumsEverywhere,
//     TestReplayOnOtherMachines.
//   - A result that is another than the recorded one is found, and the first is named: TestDivergence.
package replay

import (
	"errors"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/round"
)

// Frame is a recorded event with what the market decides on it.
type Frame struct {
	*record.Event
	// Config is in force since the last frame with another one.
	Config *round.Config
	// Pods are those of the last round and, after them, those that have joined since. The output counts by them.
	Pods  []Pod
	Input *round.Input // of the last round; nil before the first
	// Output is empty for a gap.
	Output round.Output
	// Other: the result is another than the recorded one.
	Other bool
}

// Pod is a pod with its name.
type Pod struct {
	record.Name
	round.PodInput
}

// Summary counts what was replayed.
type Summary struct {
	From, To                            time.Time
	Minutes, Rounds, Looks, Joins, Gaps int
	Decisions                           int
	// Missing is the time between minutes that the recording no longer holds.
	Missing time.Duration
	// First is the first event with another result; nil: all are equal.
	First *Difference
	// Others counts the events with another result.
	Others int

	seq uint64 // of the last minute
}

// Difference is an event with another result than the recorded one.
type Difference struct {
	At     time.Time
	Minute uint64
	Event  int // of the minute, from 1
	What   string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s, %s (event %d of minute %d)", d.At.UTC().Format("2006-01-02 15:04:05.000"), d.What, d.Event, d.Minute)
}

// Play runs all events of a recording in order, until visit returns an error. Each minute begins with the recorded
// state. A frame is valid until visit returns.
func Play(rec *record.Recording, visit func(*Frame) error) (Summary, error) {
	var s Summary
	for _, m := range rec.Minutes {
		if err := s.Add(m, visit); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Add runs the events of a minute that comes after those added before, as Play does.
func (s *Summary) Add(m *record.Minute, visit func(*Frame) error) error {
	if s.Minutes == 0 {
		s.From = m.From
	} else if s.seq+1 != m.Seq { // a step of the clock is no gap
		s.Missing += max(0, m.From.Sub(s.To))
	}
	s.Minutes++
	s.seq = m.Seq
	p := player{summary: s, minute: m.Seq, visit: visit}
	if err := Read(m, p.begin, p.event); err != nil {
		return err
	}
	s.To = m.To
	return nil
}

// Read reads a minute as Minute.Read does, within Guard.
func Read(m *record.Minute, begin func(*record.Keyframe) error, event func(*record.Event) error) error {
	return Guard(m, func() error { return m.Read(begin, event) })
}

// Guard runs rounds of a minute. Where a round panics on what is in it, that is an error: a file may hold what no agent has
// written.
func Guard(m *record.Minute, do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("minute %d, from %s, cannot be replayed, and the file may be damaged: %v", m.Seq, m.From.UTC().Format(time.RFC3339), r)
		}
	}()
	return do()
}

// player plays a minute.
type player struct {
	summary *Summary
	visit   func(*Frame) error
	minute  uint64
	count   int

	config *round.Config
	state  round.State
	input  *round.Input
	pods   []Pod
	watch  int // pods that a look reads
}

func (p *player) begin(k *record.Keyframe) error {
	p.config, p.state = &k.Config, k.State
	return nil
}

func (p *player) event(e *record.Event) error {
	p.count++
	s := p.summary
	if err := p.fits(e); err != nil {
		return fmt.Errorf("event %d of minute %d: %w", p.count, p.minute, err)
	}
	f := Frame{Event: e, Config: p.config}
	what := "round"
	switch {
	case e.Round != nil:
		s.Rounds++
		p.input, p.pods = e.Round, named(nil, e.Names, e.Round.Pods)
		p.state, f.Output = round.Run(*p.config, p.state, *e.Round)
	case e.Look != nil:
		s.Looks++
		what = "look"
		p.state, f.Output = round.Look(*p.config, p.state, e.Look.Sample)
	case e.Join != nil:
		s.Joins++
		what = "join"
		p.pods = named(p.pods, e.Names, e.Join.Pods)
		p.state, f.Output = round.Join(*p.config, p.state, e.Join.Pods, e.Join.Sample)
	default:
		s.Gaps++
	}
	f.Pods, f.Input = p.pods, p.input
	if e.Round != nil || e.Join != nil {
		p.watch = len(f.Output.Watch)
	}
	s.Decisions += len(f.Output.Decisions)
	if f.Other = e.Gap == nil && record.DigestOf(&f.Output) != e.Digest; f.Other {
		if s.Others++; s.First == nil {
			s.First = &Difference{At: e.At(), Minute: p.minute, Event: p.count, What: what}
		}
	}
	return p.visit(&f)
}

// errOdd is the error for a file that no agent has written.
var errOdd = errors.New("the counters are not those of the pods")

// fits checks what rounds rely on.
func (p *player) fits(e *record.Event) error {
	switch {
	case e.Round != nil && !samples(e.Round.Pods, e.Round.Sample.Pods), e.Join != nil && !samples(e.Join.Pods, e.Join.Sample.Pods):
		return errOdd
	case e.Round == nil && e.Gap == nil && p.input == nil:
		return errors.New("it comes before the first round")
	case e.Look != nil && len(e.Look.Sample.Pods) != p.watch:
		return errOdd
	}
	return nil
}

func samples(pods []round.PodInput, of []kernel.PodSample) bool {
	if len(pods) != len(of) {
		return false
	}
	for i := range pods {
		if whole := of[i].Own.ID != ""; !whole && len(pods[i].Containers) != len(of[i].Containers) || whole && !isWhole(pods[i], of[i]) {
			return false
		}
	}
	return true
}

// isWhole says whether a pod is one container, of which a sample has at least that many.
func isWhole(pod round.PodInput, sample kernel.PodSample) bool {
	return len(pod.Containers) == 1 && len(sample.Containers) > 0
}

// named appends pods with their names. A recording whose counts differ leaves pods without a name.
func named(to []Pod, names []record.Name, pods []round.PodInput) []Pod {
	for i, in := range pods {
		pod := Pod{PodInput: in}
		if i < len(names) {
			pod.Name = names[i]
		}
		to = append(to, pod)
	}
	return to
}
