package story

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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
	var a Answer
	namespaces := map[string]bool{}
	done := errors.New("later")
	_, err := replay.Play(rec, func(f *replay.Frame) error {
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
				verb, lowered := "raised", d.Limit < p.Pod.Limit()
				if lowered {
					verb = "lowered"
				}
				a.Sentences = append(a.Sentences, fmt.Sprintf("At %s its limit was to be %s to %v: %s.",
					f.At().UTC().Format("15:04:05.0"), verb, d.Limit, why(d, f.Look != nil, lowered)))
			}
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, done):
		return a, err
	case len(namespaces) > 1:
		return Answer{}, fmt.Errorf("pods of this name are in namespaces %s; name one with -n",
			strings.Join(slices.Sorted(maps.Keys(namespaces)), ", "))
	case len(rec.Minutes) == 0 || at.Before(rec.Minutes[0].From) || a.Pod == "" && at.After(last(rec)):
		return a, fmt.Errorf("%s is %w: the recording of node %s is from %s to %s", at.UTC().Format("2006-01-02 15:04:05"),
			ErrNotRecorded, rec.About.Node, first(rec).Format("2006-01-02 15:04:05"), last(rec).Format("15:04:05 UTC"))
	case a.Pod == "":
		return a, fmt.Errorf("the pod is %w on node %s before %s", ErrNotRecorded, rec.About.Node, at.UTC().Format("15:04:05 UTC"))
	case at.Sub(a.At) > stale:
		a.Sentences = append(a.Sentences, fmt.Sprintf("That was the last round with the pod before %s.", at.UTC().Format("15:04:05 UTC")))
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
func ofRound(node string, f *replay.Frame, index int) Answer {
	p := &f.Pods[index]
	a := Answer{Pod: p.Name.String(), At: f.At()}
	var d *round.Decision
	for i := range f.Output.Decisions {
		if f.Output.Decisions[i].Pod == index {
			d = &f.Output.Decisions[i]
		}
	}
	n := f.Output.Node
	switch {
	case p.Unmanaged:
		a.Sentences = []string{"MBCAS did not manage it at that time: its usage counted, and its limits stayed as they were."}
		return a
	case d == nil:
		a.Sentences = []string{fmt.Sprintf("Its limit was %v, and nothing was decided about it: its counters were too new or not readable, or the kernel had no quota for its limit.", p.Pod.Limit())}
		return a
	}
	a.Sentences = append(a.Sentences,
		fmt.Sprintf("Demand: it used %v and was throttled in %.0f%% of its periods, so it was estimated to demand %v.", d.Usage, 100*d.ThrottleRatio, d.Demand),
		fmt.Sprintf("Price: the pods of node %s demanded %v, and the supply was %v, so the price was %v. A budget of %v buys %s.",
			node, n.Demand, n.Supply, n.Price, d.Budget, buys(d)))
	decision := fmt.Sprintf("Decision: a limit of %v", d.Limit)
	switch d.Bound {
	case market.ByPrice:
		decision += ", set by the price."
	case market.ByFloor:
		decision += ", its floor."
	case market.ByCeiling:
		decision += ", its ceiling."
	default:
		decision += ". Neither price nor bounds restricted it."
	}
	published := "nothing was published yet"
	if !p.Published.At.IsZero() {
		published = fmt.Sprintf("%v was published at %s", publishedOf(p), p.Published.At.UTC().Format("15:04:05 UTC"))
	}
	next := "and it stayed"
	if d.Publish {
		next = fmt.Sprintf("and %v was to be published", d.Limit)
	}
	a.Sentences = append(a.Sentences, decision,
		fmt.Sprintf("In force: the limit in its spec was %v; %s, %s.", p.Pod.Limit(), published, next))
	return a
}

func buys(d *round.Decision) string {
	if d.Price == 0 {
		return "whatever is there while CPU has no price"
	}
	return fmt.Sprintf("%.0fm at that price", float64(d.Budget)/float64(d.Price))
}
