package flowcontrol

import (
	"fmt"
	"testing"
	"time"
)

// TestIdleOnesLeaveTokens: when resizes of many pods come at once, as when the mode of many changes, those that no
// pod needs yet leave three quarters of the burst to those of throttled pods that come after them. Alone they have the
// whole rate.
func TestIdleOnesLeaveTokens(t *testing.T) {
	c := roomy()
	c.PerSecond, c.PerNode, c.MaxPerSecond, c.Burst, c.Workers, c.NamespaceWorkers = 10, 0, 10, 41, 640, 80
	b := newBench(c)
	b.now = b.now.Add(time.Minute) // the bucket is full
	for i := range 100 {
		b.comes(fmt.Sprint("team-", i), fmt.Sprint("n", i), Idle)
	}
	send := func() (sent int) {
		for requests := b.sends(); len(requests) > 0; requests = b.sends() {
			for _, r := range requests {
				b.ends(r, Charged)
				sent++
			}
		}
		return sent
	}
	if n := send(); n != 11 {
		t.Errorf("%d without need are sent at once, want 11", n)
	}
	for i := range 100 {
		b.comes(fmt.Sprint("shop-", i), fmt.Sprint("m", i), Needed)
	}
	if n := send(); n != 30 {
		t.Errorf("%d that are needed are sent after them, want 30", n)
	}
	left, began := 159, b.now
	for left > 0 {
		_, _, again := b.Next(b.now)
		if !again.After(b.now) || again.Sub(began) > time.Minute {
			t.Fatalf("with %d left the next is sent %v later", left, again.Sub(b.now))
		}
		b.now = again
		left -= send()
	}
	if took := b.now.Sub(began).Round(100 * time.Millisecond); took != 18900*time.Millisecond { // (159 + 30) / 10
		t.Errorf("the others take %v, want 18.9 s: the last leaves 30 tokens", took)
	}
}
