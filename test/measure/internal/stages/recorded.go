package stages

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/audit"
)

// Step is one step of the load, as the measuring program saw it.
type Step struct {
	UID      string        // of the pod whose limit is to be raised
	At       time.Time     // the load steps up
	Kernel   time.Time     // the kernel's limit is higher; zero: it never was
	Patience time.Duration // for how long a reaction was waited for
	From     cpu.Milli     // the kernel's limit before
}

// during says whether a time is in the step: until the kernel has the limit, or for as long as that
// was waited for.
func (s Step) during(at time.Time) bool {
	end := s.Kernel
	if end.IsZero() {
		end = s.At.Add(s.Patience)
	}
	return !at.Before(s.At) && at.Before(end)
}

// Log is what the API server and the controller recorded of all steps.
type Log struct {
	// Interval is the time between two rounds of the agent.
	Interval time.Duration

	writes   []write
	resizes  []resize
	attempts []attempt
}

// write is a decision that was published.
type write struct {
	uid             string
	limit           cpu.Milli
	observed, ended time.Time
}

// resize is a PATCH of pods/resize that was accepted.
type resize struct {
	uid             string
	limit           cpu.Milli
	dryRun          bool
	received, ended time.Time
}

// attempt is a resize by the controller's own audit record.
type attempt struct {
	uid                     string
	decided, started, ended time.Time
}

// Add takes in one request to the API server.
func (l *Log) Add(e audit.Event) {
	if e.ResponseStatus.Code >= 300 {
		return
	}
	switch {
	case e.Of("resize"):
		var body struct {
			Metadata struct{ UID string }
			Spec     struct {
				Containers []struct {
					Resources struct{ Limits struct{ CPU cpu.Milli } }
				}
			}
		}
		if json.Unmarshal(e.RequestObject, &body) != nil {
			return
		}
		r := resize{uid: body.Metadata.UID, dryRun: e.DryRun(), received: e.Received, ended: e.Ended}
		for _, c := range body.Spec.Containers {
			r.limit += c.Resources.Limits.CPU
		}
		l.resizes = append(l.resizes, r)
	case e.ObjectRef.Resource == "podallocations" && e.ObjectRef.Subresource == "" && e.Verb == "patch":
		var body struct {
			Spec struct {
				DesiredCPULimit cpu.Milli
				Decision        struct{ ObservedAt time.Time }
			}
		}
		if json.Unmarshal(e.RequestObject, &body) == nil && !body.Spec.Decision.ObservedAt.IsZero() {
			l.writes = append(l.writes, write{
				uid: e.ObjectRef.Name, limit: body.Spec.DesiredCPULimit,
				observed: body.Spec.Decision.ObservedAt, ended: e.Ended,
			})
		}
	}
}

// AddLines takes in the log of the controller, as JSON lines. A line that is no audit record of a
// resize tells nothing.
func (l *Log) AddLines(text string) {
	for line := range strings.Lines(text) {
		var x struct {
			Msg, UID        string
			Time            time.Time
			Latency, Waited *float64
		}
		if json.Unmarshal([]byte(line), &x) != nil || x.Msg != "resize" || x.Latency == nil || x.Waited == nil {
			continue
		}
		started := x.Time.Add(-seconds(*x.Latency))
		l.attempts = append(l.attempts, attempt{x.UID, started.Add(-seconds(*x.Waited)), started, x.Time})
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Marks are what was recorded of one step.
func (l *Log) Marks(s Step) Marks {
	m := Marks{Step: s.At, Kernel: s.Kernel}
	for _, w := range l.writes { // the first that raises, by counters after the step
		if w.uid == s.UID && w.limit > s.From && s.during(w.observed) && s.during(w.ended) {
			m.Observed, m.Published, m.Look = w.observed, w.ended, l.look(s.At, w.observed)
			break
		}
	}
	for _, r := range l.resizes { // the last one that raises before the kernel has it
		if r.uid != s.UID || r.limit <= s.From || !s.during(r.received) {
			continue
		}
		if r.dryRun {
			m.DryRun = r.received
		} else {
			m.Sent, m.Answered, m.Decided = r.received, r.ended, l.decided(r)
		}
	}
	return m
}

// decided is when the controller decided to make a resize; zero: it has no record of it.
func (l *Log) decided(r resize) time.Time {
	i := slices.IndexFunc(l.attempts, func(a attempt) bool {
		return a.uid == r.uid && !r.received.Before(a.started) && !r.received.After(a.ended)
	})
	if i < 0 {
		return time.Time{}
	}
	return l.attempts[i].decided
}

const (
	// offGrid is how far from its time a round may begin.
	offGrid = 100 * time.Millisecond
	// nearby are the rounds by which the grid is found.
	nearby = time.Minute
)

// look is when the agent first read the counters after the step. Rounds that publish nothing leave
// no record; they are one interval apart. Zero: what was published nearby does not lie on one grid, or
// nothing else was.
func (l *Log) look(step, observed time.Time) time.Time {
	if l.Interval <= 0 {
		return time.Time{}
	}
	others := 0
	for _, w := range l.writes {
		apart := w.observed.Sub(observed)
		if apart == 0 || apart.Abs() > nearby {
			continue
		}
		others++
		if off := (apart - apart.Round(l.Interval)).Abs(); off > offGrid {
			return time.Time{}
		}
	}
	if others == 0 {
		return time.Time{}
	}
	return observed.Add(-observed.Sub(step).Truncate(l.Interval))
}
