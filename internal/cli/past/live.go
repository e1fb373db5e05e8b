package past

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/record"
)

// Live is the recording of the node that is looked at, as it goes on. Another node replaces it.
type Live struct {
	Access *cluster.Access

	mu   sync.Mutex
	from Source
	rec  *record.Recording
}

// maxMinutes bounds what is kept of a node.
const maxMinutes = 120

// Recording is that of a node until now. Of a node that was read before only what is new is fetched, from that node's
// agent alone.
func (l *Live) Recording(ctx context.Context, node string) (*record.Recording, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec == nil || l.from.Node != node {
		l.from, l.rec = Source{Node: node}, &record.Recording{}
	}
	if _, err := l.from.extend(ctx, l.Access, l.rec); err != nil {
		return nil, err
	}
	if over := len(l.rec.Minutes) - maxMinutes; over > 0 {
		l.rec.Minutes = l.rec.Minutes[over:]
	}
	return &record.Recording{About: l.rec.About, Minutes: slices.Clone(l.rec.Minutes)}, nil
}

// extend fetches what a recording does not have yet, with its last minute, which was not over. Where the agent has
// restarted, it has other minutes of the same numbers, and those replace all.
func (s *Source) extend(ctx context.Context, a *cluster.Access, rec *record.Recording) (restarted bool, err error) {
	after := uint64(0)
	if n := len(rec.Minutes); n > 0 {
		after = rec.Minutes[n-1].Seq - 1
	}
	got, err := s.open(ctx, a, after)
	if err == nil && after > 0 && got.About.Run != rec.About.Run {
		restarted, *rec = true, record.Recording{}
		got, err = s.open(ctx, a, 0)
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
