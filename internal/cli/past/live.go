package past

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/record"
)

// Live has the recordings of the nodes that are looked at, as they go on. Of more than a few, the one that was asked for
// longest ago is forgotten.
type Live struct {
	Access *cluster.Access

	mu    sync.Mutex
	nodes []*liveNode // the one that was asked for last at the end
}

type liveNode struct {
	turn chan struct{} // holds a value while it is read
	from Source
	rec  record.Recording
}

// Bounds on what is kept: nodes, and minutes of a node.
const (
	maxNodes   = 4
	maxMinutes = 120
)

// Recording is that of a node until now. Of a node that was read before only what is new is fetched, from that node's
// agent alone.
func (l *Live) Recording(ctx context.Context, node string) (*record.Recording, error) {
	n := l.node(node)
	select { // an agent that does not answer delays no other node
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if _, err := n.from.extend(ctx, l.Access, &n.rec); err != nil {
		return nil, err
	}
	if over := len(n.rec.Minutes) - maxMinutes; over > 0 {
		n.rec.Minutes = n.rec.Minutes[over:]
	}
	return &record.Recording{About: n.rec.About, Minutes: slices.Clone(n.rec.Minutes)}, nil
}

// node is kept from now on.
func (l *Live) node(name string) *liveNode {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := &liveNode{turn: make(chan struct{}, 1), from: Source{Node: name}}
	if i := slices.IndexFunc(l.nodes, func(o *liveNode) bool { return o.from.Node == name }); i >= 0 {
		n = l.nodes[i]
		l.nodes = slices.Delete(l.nodes, i, i+1)
	}
	l.nodes = append(l.nodes, n)
	l.nodes = slices.Delete(l.nodes, 0, max(0, len(l.nodes)-maxNodes))
	return n
}

// Since is that without the minutes that ended before a time.
func (l *Live) Since(ctx context.Context, node string, from time.Time) (*record.Recording, error) {
	rec, err := l.Recording(ctx, node)
	if err == nil {
		rec.Minutes = slices.DeleteFunc(rec.Minutes, func(m *record.Minute) bool { return m.To.Before(from) })
	}
	return rec, err
}

// extend fetches what a recording does not have yet, with its last minute, which was not over. Where the agent has
// restarted, it has other minutes of the same numbers, and those replace all.
func (s *Source) extend(ctx context.Context, a *cluster.Access, rec *record.Recording) (restarted bool, err error) {
	after := uint64(0)
	n := len(rec.Minutes)
	if n > 0 {
		after = rec.Minutes[n-1].Seq - 1
	}
	got, err := s.open(ctx, a, after)
	if err == nil && n > 0 && got.About.Run != rec.About.Run {
		restarted, *rec = true, record.Recording{}
		if after > 0 {
			got, err = s.open(ctx, a, 0)
		}
	}
	if err != nil {
		return restarted, err
	}
	rec.Add(got)
	return restarted, nil
}

func (s *Source) open(ctx context.Context, a *cluster.Access, after uint64) (*record.Recording, error) {
	file, err := s.fetch(ctx, a, after)
	if err != nil {
		return nil, err
	}
	rec, err := record.Open(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("recording of node %s: %w", s.Node, err)
	}
	return rec, nil
}
