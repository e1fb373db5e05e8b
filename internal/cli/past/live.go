package past

import (
	"bytes"
	"context"
	"fmt"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/record"
)

// Live is the recording of the node that is looked at, as it goes on. Another node replaces it.
type Live struct {
	Access *cluster.Access
	from   Source
	rec    *record.Recording
}

// maxMinutes bounds what is kept of a node.
const maxMinutes = 120

// Recording is that of a node until now. Of a node that was read before only what is new is fetched, from that node's
// agent alone.
func (l *Live) Recording(ctx context.Context, node string) (*record.Recording, error) {
	if l.rec == nil || l.from.Node != node {
		l.from, l.rec = Source{Node: node}, &record.Recording{}
	}
	before := len(l.rec.Minutes)
	added, err := l.from.extend(ctx, l.Access, l.rec)
	if err == nil && added == 0 && before > 0 { // the agent has started again, and counts its minutes anew
		l.rec = &record.Recording{}
		_, err = l.from.extend(ctx, l.Access, l.rec)
	}
	if err != nil {
		return nil, err
	}
	if over := len(l.rec.Minutes) - maxMinutes; over > 0 {
		l.rec.Minutes = l.rec.Minutes[over:]
	}
	return l.rec, nil
}

// extend fetches what a recording does not have yet, with its last minute, which was not over.
func (s *Source) extend(ctx context.Context, a *cluster.Access, rec *record.Recording) (added int, err error) {
	after := uint64(0)
	if n := len(rec.Minutes); n > 0 {
		after = rec.Minutes[n-1].Seq - 1
	}
	file, err := s.fetch(ctx, a, after)
	if err != nil {
		return 0, err
	}
	got, err := record.Open(bytes.NewReader(file))
	if err != nil {
		return 0, fmt.Errorf("recording of node %s: %w", s.Node, err)
	}
	rec.Add(got)
	return len(got.Minutes), nil
}
