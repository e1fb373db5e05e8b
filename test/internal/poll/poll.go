// Package poll waits for what nobody announces.
package poll

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// every is the time from one look to the next.
const every = 200 * time.Millisecond

// Until looks until missing says nothing, for at most so long; the error then says what it said
// last. Where ctx is canceled that is the error.
func Until(ctx context.Context, most time.Duration, missing func() string) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		what := missing()
		if what == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("after %v: %s", most, what)
		case <-tick.C:
		}
	}
}

// Sleep waits for d; false where ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
