package figures

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/benefit"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/story"
	"github.com/mbcas/mbcas/internal/whatif"
)

// ErrUnknown is the error for a node, a pod or a time that there is not.
var ErrUnknown = errors.New("not found")

// frame is a round, with what the market decided.
type frame struct {
	at   time.Time
	node round.NodeDecision
	rows []row
}

// row is a pod of a round.
type row struct {
	pod       string
	unmanaged bool
	inForce   cpu.Milli       // limit in its spec
	unlimited int             // containers without one, of an unmanaged pod
	decision  *round.Decision // nil: nothing was decided about it
}

// minute is a minute of a recording, which is replayed once it is asked for.
type minute struct {
	of     *record.Minute
	frames func() ([]frame, error)
}

// history is an open node: its recording, replayed minute by minute.
type history struct {
	node    string
	rec     *record.Recording
	minutes []minute
	teller  *story.Teller
	read    time.Time
	turn    chan struct{} // holds a value while it is read
}

// replayMinute runs the rounds of a minute.
func replayMinute(node string, m *record.Minute) (frames []frame, err error) {
	var s replay.Summary
	err = s.Add(m, func(f *replay.Frame) error {
		if f.Round != nil {
			frames = append(frames, frameOf(f))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("replay the recording of node %s: %w", node, err)
	}
	return frames, nil
}

// frameOf copies what outlives the visit.
func frameOf(f *replay.Frame) frame {
	out := frame{at: f.At(), node: f.Output.Node, rows: make([]row, len(f.Pods))}
	for i := range f.Pods {
		p := &f.Pods[i]
		r := row{pod: p.Namespace + "/" + p.Name.Name, unmanaged: p.Unmanaged, inForce: benefit.LimitOf(p.PodInput)}
		if p.Unmanaged { // no limit of it is recorded as declared
			r.inForce = 0
			for _, c := range p.Containers {
				if r.inForce += c.Limit; c.Limit == 0 {
					r.unlimited++
				}
			}
		}
		out.rows[i] = r
	}
	for i := range f.Output.Decisions {
		d := f.Output.Decisions[i]
		d.Containers, d.Stalls = nil, nil
		out.rows[d.Pod].decision = &d
	}
	return out
}

// load takes over a recording. Minutes that have not changed are not replayed again.
func (h *history) load(rec *record.Recording) {
	if rec == h.rec { // a file
		return
	}
	had := h.minutes
	if h.rec == nil || h.rec.About.Run != rec.About.Run {
		had, h.teller = nil, story.NewTeller(story.Everything)
	}
	minutes := make([]minute, 0, len(rec.Minutes))
	for _, m := range rec.Minutes {
		i := slices.IndexFunc(had, func(o minute) bool { return o.of.Seq == m.Seq && o.of.To.Equal(m.To) })
		if i >= 0 {
			minutes = append(minutes, had[i])
			continue
		}
		minutes = append(minutes, minute{m, sync.OnceValues(func() ([]frame, error) { return replayMinute(h.node, m) })})
	}
	h.rec, h.minutes = rec, minutes
}

// frames calls visit for each round after a time, until another. Their minutes begin with a state of their own, so they are replayed beside
// each other.
func (h *history) frames(after, until time.Time, visit func(*frame)) error {
	var replaying sync.WaitGroup
	var wanted []minute
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, m := range h.minutes {
		if !m.of.To.After(after) || m.of.From.After(until) {
			continue
		}
		wanted = append(wanted, m)
		turns <- struct{}{}
		replaying.Go(func() {
			_, _ = m.frames()
			<-turns
		})
	}
	replaying.Wait()
	for _, m := range wanted {
		frames, err := m.frames()
		if err != nil {
			return err
		}
		for j := range frames {
			if frames[j].at.After(after) && !frames[j].at.After(until) {
				visit(&frames[j])
			}
		}
	}
	return nil
}

// at is the last round that is not after a time, or the first of all.
func (h *history) at(t time.Time) (*frame, error) {
	for _, m := range slices.Backward(h.minutes) {
		if m.of.From.After(t) {
			continue
		}
		frames, err := m.frames()
		if err != nil {
			return nil, err
		}
		for i := range slices.Backward(frames) {
			if !frames[i].at.After(t) {
				return &frames[i], nil
			}
		}
	}
	for _, m := range h.minutes {
		if frames, err := m.frames(); err != nil || len(frames) > 0 {
			return first(frames), err
		}
	}
	return nil, fmt.Errorf("%w: the recording of node %s has no round yet; try again in a few seconds", ErrUnknown, h.node)
}

func first(frames []frame) *frame {
	if len(frames) == 0 {
		return nil
	}
	return &frames[0]
}

// to is the end of the recording.
func (h *history) to() time.Time {
	if n := len(h.minutes); n > 0 {
		return h.minutes[n-1].of.To
	}
	return time.Time{}
}

// explained is how much of a recording before and after a time is read to explain it: a page asks at each step of its scrubber.
const explained = 5 * time.Minute

// around is the part of the recording that explains a time.
func (h *history) around(t time.Time) *record.Recording {
	out := &record.Recording{About: h.rec.About}
	for _, m := range h.rec.Minutes {
		if m.To.After(t.Add(-explained)) && m.From.Before(t.Add(explained)) {
			out.Minutes = append(out.Minutes, m)
		}
	}
	return out
}

// Desk holds the nodes that are open. Each node has one reader at a time, so that one whose agent does not answer delays no
// other.
type Desk struct {
	source Source
	now    func() time.Time

	mu   sync.Mutex
	open []*history // the one that was asked for last at the end

	deciding chan struct{} // holds a value while a what-if goes on
	decider  *whatif.Decider
	decided  *record.Recording // by the decider
}

const (
	// fresh is how long a recording is not asked for again.
	fresh = time.Second
	// maxOpen is how many nodes are kept open: one for each tab that a server has.
	maxOpen = 4
)

// NewDesk has no node open yet.
func NewDesk(s Source) *Desk {
	return &Desk{source: s, now: time.Now, deciding: make(chan struct{}, 1)}
}

// history is that of a node, which is open from now on.
func (d *Desk) history(node string) *history {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := &history{node: node, turn: make(chan struct{}, 1)}
	if i := slices.IndexFunc(d.open, func(o *history) bool { return o.node == node }); i >= 0 {
		h = d.open[i]
		d.open = slices.Delete(d.open, i, i+1)
	}
	d.open = append(d.open, h)
	return h
}

// keep keeps the nodes that were asked for last, and forgets one that could not be read.
func (d *Desk) keep(h *history, read bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !read {
		d.open = slices.DeleteFunc(d.open, func(o *history) bool { return o == h })
	}
	d.open = slices.Delete(d.open, 0, max(0, len(d.open)-maxOpen))
}

// decide compares a recording with a change: one at a time, beside the other questions about its node.
func (d *Desk) decide(ctx context.Context, rec *record.Recording, change whatif.Change) (whatif.Comparison, error) {
	if err := take(ctx, d.deciding); err != nil {
		return whatif.Comparison{}, err
	}
	defer func() { <-d.deciding }()
	if rec != d.decided {
		d.decided, d.decider = rec, whatif.NewDecider(rec)
	}
	return d.decider.Decide(change)
}

// take waits for a turn.
func take(ctx context.Context, turn chan struct{}) error {
	select {
	case turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// with gives visit the history of a node, as of now.
func (d *Desk) with(ctx context.Context, node string, visit func(*history) error) error {
	if node == "" {
		return BadRequest("the request names no node")
	}
	h := d.history(node)
	if err := take(ctx, h.turn); err != nil {
		return err
	}
	defer func() {
		d.keep(h, h.rec != nil)
		<-h.turn
	}()
	if h.rec == nil || d.now().Sub(h.read) >= fresh {
		rec, err := d.source.Recording(ctx, node)
		if err != nil {
			return err
		}
		h.load(rec)
		h.read = d.now()
	}
	return visit(h)
}
