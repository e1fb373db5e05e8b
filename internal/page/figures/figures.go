package figures

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mbcas/mbcas/internal/benefit"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/story"
	"github.com/mbcas/mbcas/internal/whatif"
)

// Amounts are thousandths of a core, and times milliseconds since 1970. A value that is not known is null.

// nodeSeries is a node over time.
type nodeSeries struct {
	Node   string    `json:"node"`
	At     []int64   `json:"at"`
	Supply []int64   `json:"supply"`
	Usage  []*int64  `json:"usage"`
	Demand []int64   `json:"demand"`
	System []*int64  `json:"system"`
	Price  []float64 `json:"price"`
}

// podSeries is a pod over time.
type podSeries struct {
	Pod       string     `json:"pod"`
	At        []int64    `json:"at"`
	InForce   []*int64   `json:"inForce"`
	Unlimited []int      `json:"unlimited"` // as in a bookRow
	Limit     []*int64   `json:"limit"`
	Usage     []*int64   `json:"usage"`
	Demand    []*int64   `json:"demand"`
	Throttled []*float64 `json:"throttled"`
}

// events are the sentences of a node or a pod.
type events struct {
	Entries []story.Entry `json:"entries"`
	Notes   []string      `json:"notes"`
}

// answers are to the questions of the page, by name.
var answers = map[string]func(context.Context, *Desk, url.Values) (any, error){
	"cluster":   func(ctx context.Context, d *Desk, _ url.Values) (any, error) { return d.source.Cluster(ctx) },
	"node":      ofNode(nodeFigures),
	"book":      ofNode(bookFigures),
	"pod":       ofNode(podFigures),
	"events":    ofNode(eventFigures),
	"explain":   ofNode(explainFigures),
	"what-if":   whatIfFigures,
	"incidents": ofNode(incidentFigures),
	"benefit":   ofNode(benefitFigures),
}

// Questions are the names of what Answer knows.
func Questions() []string { return slices.Sorted(maps.Keys(answers)) }

// Answer answers a question: a value for JSON. The query has the node, the pod and the time that it is about. An error is a
// BadRequest, ErrUnknown, story.ErrNotRecorded, or one of the source.
func (d *Desk) Answer(ctx context.Context, question string, query url.Values) (any, error) {
	answer, known := answers[question]
	if !known {
		return nil, fmt.Errorf("%w: question %q", ErrUnknown, question)
	}
	return answer(ctx, d, query)
}

// ofNode gives the history of the node that a request names.
func ofNode(answer func(*history, url.Values) (any, error)) func(context.Context, *Desk, url.Values) (any, error) {
	return func(ctx context.Context, d *Desk, q url.Values) (got any, err error) {
		err = d.with(ctx, q.Get("node"), func(h *history) error {
			got, err = answer(h, q)
			return err
		})
		return got, err
	}
}

// BadRequest is the error for a request that cannot be understood.
type BadRequest string

func (b BadRequest) Error() string { return string(b) }

// timeOf reads a time of a request: the end of that millisecond, because rounds are at microseconds. It is the zero time
// where there is none.
func timeOf(q url.Values, key string) (time.Time, error) {
	text := q.Get(key)
	if text == "" {
		return time.Time{}, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, BadRequest(fmt.Sprintf("%s=%q: want milliseconds since 1970", key, text))
	}
	return time.UnixMilli(ms).Add(time.Millisecond - 1), nil
}

// forever is after every recording.
var forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// span is the time that a request is about: after "after", or so many milliseconds ("last") before the end, until "until".
func span(h *history, q url.Values) (after, until time.Time, err error) {
	if until, err = timeOf(q, "until"); err != nil {
		return after, until, err
	}
	end := until
	if until.IsZero() {
		until, end = forever, h.to()
	}
	text := q.Get("last")
	if text == "" {
		after, err = timeOf(q, "after")
		return after, until, err
	}
	ms, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return after, until, BadRequest(fmt.Sprintf("last=%q: want milliseconds", text))
	}
	return end.Add(-time.Duration(ms) * time.Millisecond), until, nil
}

func known[T any](v T, ok bool) *T {
	if !ok {
		return nil
	}
	return &v
}

func nodeFigures(h *history, q url.Values) (any, error) {
	after, until, err := span(h, q)
	if err != nil {
		return nil, err
	}
	s := nodeSeries{
		Node: h.node, At: []int64{}, Supply: []int64{}, Usage: []*int64{}, Demand: []int64{}, System: []*int64{}, Price: []float64{},
	}
	err = h.frames(after, until, func(f *frame) {
		s.At = append(s.At, f.at.UnixMilli())
		s.Supply = append(s.Supply, int64(f.node.Supply))
		s.Usage = append(s.Usage, known(int64(f.node.Usage), f.node.UsageKnown))
		s.Demand = append(s.Demand, int64(f.node.Demand))
		s.System = append(s.System, known(int64(f.node.System), f.node.SystemKnown))
		s.Price = append(s.Price, float64(f.node.Price))
	})
	return s, err
}

func podFigures(h *history, q url.Values) (any, error) {
	after, until, err := span(h, q)
	if err != nil {
		return nil, err
	}
	s := podSeries{
		Pod: q.Get("pod"), At: []int64{}, InForce: []*int64{}, Unlimited: []int{}, Limit: []*int64{}, Usage: []*int64{}, Demand: []*int64{},
		Throttled: []*float64{},
	}
	found := false
	err = h.frames(after, until, func(f *frame) {
		var r row
		i := slices.IndexFunc(f.rows, func(r row) bool { return r.pod == s.Pod })
		if i >= 0 {
			r, found = f.rows[i], true
		}
		var b bookRow
		if r.decision != nil {
			b = bookRowOf(r)
		}
		s.At = append(s.At, f.at.UnixMilli())
		s.InForce = append(s.InForce, known(int64(r.inForce), i >= 0 && r.inForce > 0))
		s.Unlimited = append(s.Unlimited, r.unlimited)
		s.Limit = append(s.Limit, known(b.Limit, b.Decided))
		s.Usage = append(s.Usage, known(b.Usage, b.Decided))
		s.Demand = append(s.Demand, known(b.Demand, b.Decided))
		s.Throttled = append(s.Throttled, b.Ratio)
	})
	if err == nil && !found && after.IsZero() {
		return nil, fmt.Errorf("%w: pod %q is not in the recording of node %s", ErrUnknown, s.Pod, h.node)
	}
	return s, err
}

// podOf selects the pod of a request.
func podOf(name string) story.About {
	namespace, pod, _ := strings.Cut(name, "/")
	return story.Pod(namespace, pod)
}

func eventFigures(h *history, q url.Values) (any, error) {
	told, err := h.teller.Tell(h.rec)
	if err != nil {
		return nil, fmt.Errorf("tell the recording of node %s: %w", h.node, err)
	}
	from, until, err := span(h, q)
	if err != nil {
		return nil, err
	}
	out := events{Entries: []story.Entry{}, Notes: notesOf(&told)}
	pod := q.Get("pod")
	for _, e := range told.Entries {
		if (pod == "" || e.Pod == "" || e.Pod == pod) && e.At.After(from) && !e.At.After(until) {
			out.Entries = append(out.Entries, e)
		}
	}
	return out, nil
}

// notesOf say where the replay is not what happened.
func notesOf(told *story.Story) []string {
	notes := []string{}
	if missing := told.Replayed.Missing; missing > 0 {
		notes = append(notes, fmt.Sprintf("The recording no longer has %v of this time.", missing.Round(time.Second)))
	}
	if d := told.Replayed.First; d != nil {
		notes = append(notes, fmt.Sprintf("Another version of MBCAS recorded this, and decides otherwise from %s on: "+
			"the figures are those of this version.", d.At.UTC().Format("15:04:05.0 UTC")))
	}
	return notes
}

func explainFigures(h *history, q url.Values) (any, error) {
	at, err := timeOf(q, "at")
	if err != nil {
		return nil, err
	}
	answer, err := story.At(h.around(at), podOf(q.Get("pod")), at)
	if err != nil { // its last round may be earlier
		answer, err = story.At(h.rec, podOf(q.Get("pod")), at)
	}
	return answer, err
}

func whatIfFigures(ctx context.Context, d *Desk, q url.Values) (any, error) {
	change, err := changeOf(q)
	if err != nil {
		return nil, err
	}
	var rec *record.Recording
	err = d.with(ctx, q.Get("node"), func(h *history) error {
		rec = h.rec
		return nil
	})
	if err != nil {
		return nil, err
	}
	c, err := d.decide(ctx, rec, change)
	if err != nil {
		return nil, fmt.Errorf("decide on the recording of node %s: %w", q.Get("node"), err)
	}
	return c, nil
}

// changeOf is what a request wants to be otherwise.
func changeOf(q url.Values) (whatif.Change, error) {
	change := whatif.Change{Off: q.Has("off")}
	for name, setting := range map[string]**float64{"reserve": &change.Reserve, "credits": &change.Credits} {
		text := q.Get(name)
		if text == "" {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return change, BadRequest(fmt.Sprintf("%s=%q: want a number", name, text))
		}
		*setting = &value
	}
	texts := whatif.Texts{Priorities: q["priority"], Requests: q["request"], MaxCPU: q["max-cpu"], OptOut: q["opt-out"]}
	if n := len(texts.Priorities) + len(texts.Requests) + len(texts.MaxCPU) + len(texts.OptOut); n > maxChanges {
		return change, BadRequest(fmt.Sprintf("%d changes of pods: at most %d are taken", n, maxChanges))
	}
	if err := change.AddPods(texts); err != nil {
		return change, BadRequest(err.Error())
	}
	if err := change.Validate(); err != nil {
		return change, BadRequest(err.Error())
	}
	return change, nil
}

// maxChanges bounds the changes of pods in one request.
const maxChanges = 50

// incidents are the times that the agent keeps for longer.
type incidents struct {
	Pins []pin `json:"pins"`
}

type pin struct {
	At  int64  `json:"at"`
	Why string `json:"why"`
}

func incidentFigures(h *history, _ url.Values) (any, error) {
	out := incidents{Pins: []pin{}}
	for _, p := range h.rec.About.Pins {
		out.Pins = append(out.Pins, pin{p.At.UnixMilli(), p.Why})
	}
	return out, nil
}

// benefits are what the node's pods got and were denied. Durations are in nanoseconds.
type benefits struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Notes []string  `json:"notes"`
	benefit.Totals
}

func benefitFigures(h *history, _ url.Values) (any, error) {
	told, err := h.teller.Tell(h.rec)
	if err != nil {
		return nil, fmt.Errorf("tell the recording of node %s: %w", h.node, err)
	}
	out := benefits{told.From, told.To, notesOf(&told), told.Totals}
	if out.Pods == nil {
		out.Pods = []benefit.Pod{}
	}
	return out, nil
}
