// Package poll waits for conditions that have no event.
package poll

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// every is the interval between two checks.
const every = 200 * time.Millisecond

// Until calls missing until it returns "", for at most timeout. The error has what it returned
// last, or is that of a canceled context.
func Until(ctx context.Context, timeout time.Duration, missing func() string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
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
			return fmt.Errorf("after %v: %s", timeout, what)
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
