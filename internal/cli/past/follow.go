package past

import (
	"context"
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
	of := Source{Node: f.node}
	if _, err := of.extend(ctx, f.Access, &f.have); err != nil {
		return nil, err
	}
	f.have.Minutes = f.have.Minutes[max(0, len(f.have.Minutes)-mostFollowed):]
	kept := slices.DeleteFunc(slices.Clone(f.have.Minutes), func(m *record.Minute) bool { return m.To.Before(from) })
	return &record.Recording{About: f.have.About, Minutes: kept}, nil
}
