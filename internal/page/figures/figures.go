package figures

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mbcas/mbcas/internal/nodestate"
	"github.com/mbcas/mbcas/internal/story"
	"github.com/mbcas/mbcas/internal/whatif"
	"github.com/mbcas/mbcas/market"
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

// book is a market at one time: the order book.
type book struct {
	At     int64           `json:"at"`
	Price  float64         `json:"price"`
	Supply int64           `json:"supply"`
	Usage  *int64          `json:"usage"`
	Demand int64           `json:"demand"`
	System *int64          `json:"system"`
	State  nodestate.State `json:"state"`
	Rows   []bookRow       `json:"rows"`
}

// bookRow is a pod in the order book. Without a decision it has only its limit in force.
type bookRow struct {
	Pod     string   `json:"pod"`
	Managed bool     `json:"managed"`
	InForce int64    `json:"inForce"`
	Decided bool     `json:"decided"`
	Budget  int64    `json:"budget"`
	Usage   int64    `json:"usage"`
	Demand  int64    `json:"demand"`
	Floor   int64    `json:"floor"`
	Ceiling int64    `json:"ceiling"`
	Buys    *int64   `json:"buys"` // null: CPU has no price
	Limit   int64    `json:"limit"`
	Bound   string   `json:"bound"`
	Ratio   *float64 `json:"throttled"`
}

// podSeries is a pod over time.
type podSeries struct {
	Pod       string     `json:"pod"`
	At        []int64    `json:"at"`
	InForce   []*int64   `json:"inForce"`
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
	"cluster": func(ctx context.Context, d *Desk, _ url.Values) (any, error) { return d.source.Cluster(ctx) },
	"node":    ofNode(nodeFigures),
	"book":    ofNode(bookFigures),
	"pod":     ofNode(podFigures),
	"events":  ofNode(eventFigures),
	"explain": ofNode(explainFigures),
	"what-if": ofNode(whatIfFigures),
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
		if q.Get("node") == "" {
			return nil, BadRequest("the request names no node")
		}
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

func known[T any](v T, ok bool) *T {
	if !ok {
		return nil
	}
	return &v
}

func nodeFigures(h *history, q url.Values) (any, error) {
	after, err := timeOf(q, "after")
	if err != nil {
		return nil, err
	}
	s := nodeSeries{
		Node: h.node, At: []int64{}, Supply: []int64{}, Usage: []*int64{}, Demand: []int64{}, System: []*int64{}, Price: []float64{},
	}
	h.frames(after, func(f *frame) {
		s.At = append(s.At, f.at.UnixMilli())
		s.Supply = append(s.Supply, int64(f.node.Supply))
		s.Usage = append(s.Usage, known(int64(f.node.Usage), f.node.UsageKnown))
		s.Demand = append(s.Demand, int64(f.node.Demand))
		s.System = append(s.System, known(int64(f.node.System), f.node.SystemKnown))
		s.Price = append(s.Price, float64(f.node.Price))
	})
	return s, nil
}

func bookFigures(h *history, q url.Values) (any, error) {
	at, err := timeOf(q, "at")
	if err != nil {
		return nil, err
	}
	f, err := h.at(at)
	if err != nil {
		return nil, err
	}
	n := f.node
	b := book{
		At: f.at.UnixMilli(), Price: float64(n.Price), Supply: int64(n.Supply), Usage: known(int64(n.Usage), n.UsageKnown),
		Demand: int64(n.Demand), System: known(int64(n.System), n.SystemKnown), State: nodestate.Of(n.FloorsExceedSupply, n.Price),
		Rows: make([]bookRow, 0, len(f.rows)),
	}
	for _, r := range f.rows {
		b.Rows = append(b.Rows, bookRowOf(r))
	}
	slices.SortStableFunc(b.Rows, func(a, b bookRow) int { return int(b.Demand - a.Demand) })
	return b, nil
}

func bookRowOf(r row) bookRow {
	out := bookRow{Pod: r.pod, Managed: !r.unmanaged, InForce: int64(r.inForce), Decided: r.decision != nil}
	d := r.decision
	if d == nil {
		return out
	}
	out.Budget, out.Usage, out.Demand = int64(d.Budget), int64(d.Usage), int64(d.Demand)
	out.Floor, out.Ceiling, out.Limit = int64(d.Floor), int64(d.Ceiling), int64(d.Limit)
	if d.Price > 0 {
		buys := int64(math.Round(float64(d.Budget) / float64(d.Price)))
		out.Buys = &buys
	}
	out.Ratio = &d.ThrottleRatio
	switch d.Bound {
	case market.ByPrice:
		out.Bound = "price"
	case market.ByFloor:
		out.Bound = "floor"
	case market.ByCeiling:
		out.Bound = "ceiling"
	default:
		out.Bound = "nothing"
	}
	return out
}

func podFigures(h *history, q url.Values) (any, error) {
	after, err := timeOf(q, "after")
	if err != nil {
		return nil, err
	}
	s := podSeries{
		Pod: q.Get("pod"), At: []int64{}, InForce: []*int64{}, Limit: []*int64{}, Usage: []*int64{}, Demand: []*int64{}, Throttled: []*float64{},
	}
	found := false
	h.frames(after, func(f *frame) {
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
		s.Limit = append(s.Limit, known(b.Limit, b.Decided))
		s.Usage = append(s.Usage, known(b.Usage, b.Decided))
		s.Demand = append(s.Demand, known(b.Demand, b.Decided))
		s.Throttled = append(s.Throttled, b.Ratio)
	})
	if !found && after.IsZero() {
		return nil, fmt.Errorf("%w: pod %q is not in the recording of node %s", ErrUnknown, s.Pod, h.node)
	}
	return s, nil
}

// podOf selects the pod of a request.
func podOf(name string) story.About {
	namespace, pod, _ := strings.Cut(name, "/")
	return story.Pod(namespace, pod)
}

func eventFigures(h *history, q url.Values) (any, error) {
	about := story.Everything
	if pod := q.Get("pod"); pod != "" {
		about = podOf(pod)
	}
	told, err := story.Tell(h.rec, about)
	if err != nil {
		return nil, fmt.Errorf("tell the recording of node %s: %w", h.node, err)
	}
	out := events{Entries: told.Entries, Notes: []string{}}
	if out.Entries == nil {
		out.Entries = []story.Entry{}
	}
	if missing := told.Replayed.Missing; missing > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("The recording no longer has %v of this time.", missing.Round(time.Second)))
	}
	if d := told.Replayed.First; d != nil {
		out.Notes = append(out.Notes, fmt.Sprintf("Another version of MBCAS recorded this, and decides otherwise from %s on: "+
			"the figures are those of this version.", d.At.UTC().Format("15:04:05.0 UTC")))
	}
	return out, nil
}

func explainFigures(h *history, q url.Values) (any, error) {
	at, err := timeOf(q, "at")
	if err != nil {
		return nil, err
	}
	answer, err := story.At(h.until(at), podOf(q.Get("pod")), at)
	if err != nil { // its last round may be earlier
		answer, err = story.At(h.rec, podOf(q.Get("pod")), at)
	}
	return answer, err
}

func whatIfFigures(h *history, q url.Values) (any, error) {
	var change whatif.Change
	if text := q.Get("reserve"); text != "" {
		reserve, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, BadRequest(fmt.Sprintf("reserve=%q: want a number from 0 to below 1", text))
		}
		change.Reserve = &reserve
	}
	if err := change.Validate(); err != nil {
		return nil, BadRequest(err.Error())
	}
	c, err := whatif.Decide(h.rec, change)
	if err != nil {
		return nil, fmt.Errorf("decide on the recording of node %s: %w", h.node, err)
	}
	return c, nil
}
