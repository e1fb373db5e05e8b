package story

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/benefit"
	"github.com/mbcas/mbcas/internal/idleclass"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// Answer is why a pod had its limit at a time.
type Answer struct {
	Pod string    `json:"pod"`
	At  time.Time `json:"at"` // of the round or the look
	// Sentences say what the pod used, what the node demanded, and what followed.
	Sentences []string `json:"sentences"`
}

// Text is the answer as lines.
func (a Answer) Text() string {
	return fmt.Sprintf("Pod %s at %s\n\n%s\n", a.Pod, a.At.UTC().Format("2006-01-02 15:04:05.0 UTC"), strings.Join(a.Sentences, "\n"))
}

// ErrNotRecorded is the error for a time or a pod that is not in a recording.
var ErrNotRecorded = errors.New("not recorded")

// At explains a pod's limit at a time: by the last round before it, and the looks after that round.
func At(rec *record.Recording, about About, at time.Time) (Answer, error) {
	f, err := find(around(rec, at), about, at)
	if err == nil && f.Pod == "" { // its last round may be earlier
		f, err = find(rec, about, at)
	}
	switch {
	case err != nil:
		return f.Answer, err
	case len(rec.Minutes) == 0 || at.Before(rec.Minutes[0].From) || f.Pod == "" && at.After(last(rec)):
		return f.Answer, fmt.Errorf("%s is %w: the recording of node %s is from %s to %s", at.UTC().Format("2006-01-02 15:04:05"),
			ErrNotRecorded, rec.About.Node, first(rec).Format("2006-01-02 15:04:05"), last(rec).Format("15:04:05 UTC"))
	case f.Pod == "":
		return f.Answer, fmt.Errorf("the pod is %w on node %s before %s", ErrNotRecorded, rec.About.Node, at.UTC().Format("15:04:05 UTC"))
	}
	if f.limit > 0 {
		s, err := spellOf(rec, f.uid, f.At, f.limit)
		if err != nil {
			return f.Answer, err
		}
		f.Sentences = append(f.Sentences, f.inForce(s)...)
	}
	if at.Sub(f.At) > stale {
		f.Sentences = append(f.Sentences, fmt.Sprintf("That was the last round with the pod before %s.", at.UTC().Format("15:04:05 UTC")))
	}
	return f.Answer, nil
}

// around is the part of a recording that explains a time: the minute of it and the one before.
func around(rec *record.Recording, at time.Time) *record.Recording {
	end := minuteOf(rec, at) + 1
	return &record.Recording{About: rec.About, Minutes: rec.Minutes[max(0, end-2):end]}
}

// minuteOf is the index of the minute that a time is in, or the last before it; -1: there is none.
func minuteOf(rec *record.Recording, at time.Time) int {
	next := slices.IndexFunc(rec.Minutes, func(m *record.Minute) bool { return m.From.After(at) })
	if next < 0 {
		next = len(rec.Minutes)
	}
	return next - 1
}

// found is a pod at a time.
type found struct {
	Answer
	uid string
	// limit is that in its spec; 0: MBCAS did not manage it. decided is what was published, at a time.
	limit, decided cpu.Milli
	since          time.Time
}

// find seeks the last round with a pod that is not after a time.
func find(rec *record.Recording, about About, at time.Time) (a found, err error) {
	namespaces := map[string]bool{}
	done := errors.New("later")
	_, err = replay.Play(rec, func(f *replay.Frame) error {
		if f.At().After(at) {
			return done
		}
		for i := range f.Pods {
			if p := &f.Pods[i]; about(p.Name) && f.Round != nil {
				namespaces[p.Namespace] = true
				a = ofRound(rec.About.Node, f, i)
			}
		}
		for i := range f.Output.Decisions {
			d := &f.Output.Decisions[i]
			if p := &f.Pods[d.Pod]; about(p.Name) && f.Round == nil {
				a.Pod, a.At = p.Name.String(), f.At()
				a.uid, a.limit, a.decided, a.since = p.UID, benefit.LimitOf(p.PodInput), d.Limit, f.At()
				a.Sentences = append(a.Sentences, fmt.Sprintf("At %s a limit of %v was decided: %s.",
					f.At().UTC().Format("15:04:05.0"), d.Limit, why(d, f)))
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, done) {
		return a, err
	}
	if len(namespaces) > 1 {
		return found{}, fmt.Errorf("pods of this name are in namespaces %s; name one with -n",
			strings.Join(slices.Sorted(maps.Keys(namespaces)), ", "))
	}
	return a, nil
}

// stale is the age of an answer from which it says so.
const stale = 10 * time.Second

func first(rec *record.Recording) time.Time {
	if len(rec.Minutes) == 0 {
		return time.Time{}
	}
	return rec.Minutes[0].From.UTC()
}

func last(rec *record.Recording) time.Time {
	if n := len(rec.Minutes); n > 0 {
		return rec.Minutes[n-1].To.UTC()
	}
	return time.Time{}
}

// ofRound explains the pod of a round.
func ofRound(node string, f *replay.Frame, index int) found {
	p := &f.Pods[index]
	a := found{Answer: Answer{Pod: p.Name.String(), At: f.At()}}
	var d *round.Decision
	for i := range f.Output.Decisions {
		if f.Output.Decisions[i].Pod == index {
			d = &f.Output.Decisions[i]
		}
	}
	if p.Unmanaged {
		a.Sentences = []string{"MBCAS did not manage it at that time: its usage counted, and its limits stayed as they were."}
		return a
	}
	a.uid, a.limit, a.decided, a.since = p.UID, benefit.LimitOf(p.PodInput), publishedOf(p), p.Published.At
	if d == nil {
		a.Sentences = []string{"Nothing was decided about it: its counters were too new or not readable, or the kernel had no quota for its limit."}
		return a
	}
	if d.Publish {
		a.decided, a.since = d.Limit, a.At
	}
	n := f.Output.Node
	a.Sentences = []string{
		fmt.Sprintf("Demand: it used %v and was throttled in %.0f%% of its periods, so it was estimated to demand %v.", d.Usage, 100*d.ThrottleRatio, d.Demand),
		fmt.Sprintf("Price: the pods of node %s demanded %v, and the supply was %v, so the price was %v. A budget of %v buys %s.",
			node, n.Demand, n.Supply, n.Price, d.Budget, buys(d, n)),
		decided(d, f),
	}
	if c := idleclass.Class(p.CPUClass); c != idleclass.NoClass {
		a.Sentences = append(a.Sentences, "Class: "+c.Words())
	}
	return a
}

func buys(d *round.Decision, n round.NodeDecision) string {
	if n.Price == 0 {
		return "whatever is there while CPU has no price"
	}
	return fmt.Sprintf("%v at that price", bought(d.Budget, n.Price))
}

// decided says which limit was decided, and by what.
func decided(d *round.Decision, f *replay.Frame) string {
	text := fmt.Sprintf("Decision: a limit of %v", d.Limit)
	if other := besidePrice(d, f); other != "" {
		return text + ", and not by the price alone: " + other + "."
	}
	switch d.Bound {
	case market.ByPrice:
		return text + ", set by the price."
	case market.ByFloor:
		return text + ", its floor."
	case market.ByCeiling:
		return text + ", its ceiling."
	}
	return text + ". Neither price nor bounds restricted it."
}

// inForce says which limit was in force, what a decision made of it, and when it changed next.
func (f *found) inForce(s spell) []string {
	text := fmt.Sprintf("In force: a limit of %v, since %s", f.limit, clock(s.from))
	switch {
	case s.was == 0:
		text += " or before"
	case s.was > f.limit:
		text += fmt.Sprintf(", when it was lowered from %v", s.was)
	default:
		text += fmt.Sprintf(", when it was raised from %v", s.was)
	}
	steps := actuator.DefaultConfig()
	switch {
	case f.decided == 0:
		text += ". No decision was published yet."
	case f.decided == f.limit:
		text += fmt.Sprintf(". That is the decision, published at %s.", clock(f.since))
	case f.decided > f.limit:
		text += fmt.Sprintf(". The decision of %v was published at %s: where decisions are carried out, an increase is one step.", f.decided, clock(f.since))
	default:
		text += fmt.Sprintf(". The decision of %v was published at %s: where decisions are carried out, a decrease goes in steps, by default by a factor of %v "+
			"at most and %v apart.", f.decided, clock(f.since), steps.MaxDecreaseFactor, steps.DecreaseCooldown)
	}
	switch {
	case s.to == 0:
		next := fmt.Sprintf("Next change: none until %s.", clock(s.until))
		if f.decided > 0 && f.decided != f.limit {
			next += " In modes recommend and restore no decision is carried out. In mode enforce it may wait: \"kubectl mbcas explain\" without --at has the reason of now."
		}
		return []string{text, next}
	case s.to == f.decided:
		return []string{text, fmt.Sprintf("Next change: at %s, to %v, the decision.", clock(s.until), s.to)}
	case between(f.limit, s.to, f.decided):
		return []string{text, fmt.Sprintf("Next change: at %s, to %v, a step towards the %v.", clock(s.until), s.to, f.decided)}
	}
	return []string{text, fmt.Sprintf("Next change: at %s, to %v, by a later decision or another cause; \"kubectl mbcas story\" tells them.", clock(s.until), s.to)}
}
