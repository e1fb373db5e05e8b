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

// Follower reads the recording of a node again and again, each time what is new.
type Follower struct {
	Access *cluster.Access

	mu   sync.Mutex
	node string
	have record.Recording
}

// mostFollowed is how many minutes a Follower holds.
const mostFollowed = 45

// Read is the recording of a node without the minutes that ended before a time.
func (f *Follower) Read(ctx context.Context, node string, from time.Time) (*record.Recording, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if node != f.node {
		f.node, f.have = node, record.Recording{}
	}
	after := uint64(0)
	if n := len(f.have.Minutes); n > 0 {
		after = f.have.Minutes[n-1].Seq - 1 // it was not over
	}
	rec, err := f.fetch(ctx, after)
	if err == nil && after > 0 && len(rec.Minutes) == 0 { // another agent counts from the beginning
		f.have = record.Recording{}
		rec, err = f.fetch(ctx, 0)
	}
	if err != nil {
		return nil, err
	}
	f.have.Add(rec)
	f.have.Minutes = f.have.Minutes[max(0, len(f.have.Minutes)-mostFollowed):]
	kept := slices.DeleteFunc(slices.Clone(f.have.Minutes), func(m *record.Minute) bool { return m.To.Before(from) })
	return &record.Recording{About: f.have.About, Minutes: kept}, nil
}

func (f *Follower) fetch(ctx context.Context, after uint64) (*record.Recording, error) {
	from := Source{Node: f.node}
	data, err := from.fetch(ctx, f.Access, after)
	if err != nil {
		return nil, err
	}
	rec, err := record.Open(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("recording of node %s: %w", f.node, err)
	}
	return rec, nil
}
