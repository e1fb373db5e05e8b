package poll

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestUntil: it ends with what is there, with what is missing in the end, or with the context.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		after := func(n int) func() string {
			calls = 0
			return func() string {
				if calls++; calls > n {
					return ""
				}
				return "two pods"
			}
		}
		if err := Until(t.Context(), time.Minute, after(3)); err != nil || calls != 4 {
			t.Errorf("%v after %d calls, want none after 4", err, calls)
		}
		err := Until(t.Context(), time.Minute, after(1000))
		if err == nil || !strings.Contains(err.Error(), "after 1m0s: two pods") {
			t.Errorf("%v, want what was missing after a minute", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Until(ctx, time.Minute, after(3)); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that it was canceled", err)
		}
	})
}
