package figures

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
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
	decision  *round.Decision // nil: nothing was decided about it
}

// minute is a replayed minute of a recording.
type minute struct {
	seq    uint64
	to     time.Time
	frames []frame
}

// history is the open node: its recording, replayed minute by minute.
type history struct {
	node    string
	rec     *record.Recording
	minutes []minute
}

// replayMinute runs the rounds of a minute.
func replayMinute(rec *record.Recording, m *record.Minute) (minute, error) {
	out := minute{seq: m.Seq, to: m.To}
	_, err := replay.Play(&record.Recording{About: rec.About, Minutes: []*record.Minute{m}}, func(f *replay.Frame) error {
		if f.Round != nil {
			out.frames = append(out.frames, frameOf(f))
		}
		return nil
	})
	if err != nil {
		return out, fmt.Errorf("replay the recording of node %s: %w", rec.About.Node, err)
	}
	return out, nil
}

// frameOf copies what outlives the visit.
func frameOf(f *replay.Frame) frame {
	out := frame{at: f.At(), node: f.Output.Node, rows: make([]row, len(f.Pods))}
	for i := range f.Pods {
		p := &f.Pods[i]
		r := row{pod: p.Namespace + "/" + p.Name.Name, unmanaged: p.Unmanaged}
		for _, c := range p.Containers {
			if c.Limited() {
				r.inForce += c.Limit
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
func (h *history) load(node string, rec *record.Recording) error {
	var had []minute
	if h.node == node {
		had = h.minutes
	}
	minutes := make([]minute, 0, len(rec.Minutes))
	for _, m := range rec.Minutes {
		i := slices.IndexFunc(had, func(o minute) bool { return o.seq == m.Seq && o.to.Equal(m.To) })
		if i >= 0 {
			minutes = append(minutes, had[i])
			continue
		}
		replayed, err := replayMinute(rec, m)
		if err != nil {
			return err
		}
		minutes = append(minutes, replayed)
	}
	h.node, h.rec, h.minutes = node, rec, minutes
	return nil
}

// frames calls visit for each round after a time.
func (h *history) frames(after time.Time, visit func(*frame)) {
	for i := range h.minutes {
		if m := &h.minutes[i]; m.to.After(after) {
			for j := range m.frames {
				if m.frames[j].at.After(after) {
					visit(&m.frames[j])
				}
			}
		}
	}
}

// at is the last round that is not after a time, or the first of all.
func (h *history) at(t time.Time) (found *frame, err error) {
	h.frames(time.Time{}, func(f *frame) {
		if found == nil || !f.at.After(t) {
			found = f
		}
	})
	if found == nil {
		return nil, fmt.Errorf("%w: the recording of node %s has no round yet; try again in a few seconds", ErrUnknown, h.node)
	}
	return found, nil
}

// until is the part of the recording that explains a time: the minute of it and the one before.
func (h *history) until(t time.Time) *record.Recording {
	end := 1
	for end < len(h.rec.Minutes) && !h.rec.Minutes[end].From.After(t) {
		end++
	}
	end = min(end, len(h.rec.Minutes))
	return &record.Recording{About: h.rec.About, Minutes: h.rec.Minutes[max(0, end-2):end]}
}

// Desk holds the one open node, for one reader at a time.
type Desk struct {
	source Source
	turn   chan struct{} // holds a value while a reading goes on
	open   history
	read   time.Time
	now    func() time.Time
}

// fresh is how long a recording is not asked for again.
const fresh = time.Second

// NewDesk has no node open yet.
func NewDesk(s Source) *Desk { return &Desk{source: s, turn: make(chan struct{}, 1), now: time.Now} }

// with gives visit the history of a node, as of now.
func (d *Desk) with(ctx context.Context, node string, visit func(*history) error) error {
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.turn }()
	if d.open.node != node || d.open.rec == nil || d.now().Sub(d.read) >= fresh {
		rec, err := d.source.Recording(ctx, node)
		if err != nil {
			return err
		}
		if err := d.open.load(node, rec); err != nil {
			return err
		}
		d.read = d.now()
	}
	return visit(&d.open)
}
