package flowcontrol

import (
	"fmt"
	"testing"
	"time"
)

// TestIdleOnesHaveFewWorkers: of increases that no pod needs yet, a quarter of the workers is under way at
// most; the next one begins when one of them ends. Those of throttled pods have the other workers.
func TestIdleOnesHaveFewWorkers(t *testing.T) {
	b := manyTokens(40, 8)
	for i := range 100 {
		b.answered(fmt.Sprint("team-", i))
	}
	for i := range 100 {
		b.comes(fmt.Sprint("team-", i), fmt.Sprint("n", i), Idle)
	}
	idle := b.sends()
	if len(idle) != 10 {
		t.Fatalf("%d idle ones are under way, want a quarter of 40 workers", len(idle))
	}
	for i := range 5 {
		b.comes(fmt.Sprint("other-", i), fmt.Sprint("n", i), Needed)
	}
	if needed := b.sends(); len(needed) != 5 || needed[0].Priority != Needed {
		t.Errorf("%d of 5 needed ones begin beside them: %v", len(needed), needed)
	}
	for _, use := range []Charge{Charged, Refunded, NotAttempted} {
		b.ends(idle[0], use)
		if next := b.sends(); len(next) != 1 || next[0].Priority != Idle {
			t.Errorf("after one has ended, %v begin, want one", next)
		}
		idle = idle[1:]
	}
}

// TestSlowIdleOnesLeaveHalf: increases that no pod needs yet, of namespaces that are slow or not known, leave
// half of the workers for such increases to namespaces that answer.
func TestSlowIdleOnesLeaveHalf(t *testing.T) {
	b := manyTokens(64, 8)
	b.answered("healthy")
	for i := range 40 {
		b.comes(fmt.Sprint("new-", i), "n", Idle)
	}
	for range 10 {
		b.comes("healthy", "n", Idle)
	}
	of := func(sent []Request[int]) (healthy, others int) {
		for _, r := range sent {
			if r.Namespace == "healthy" {
				healthy++
			} else {
				others++
			}
		}
		return healthy, others
	}
	sent := b.sends()
	if healthy, others := of(sent); healthy < 6 || others != 8 {
		t.Errorf("%d of a namespace that answers and %d others are under way, want most of 8, and 8", healthy, others)
	}
	for _, r := range sent { // the others hang
		if r.Namespace == "healthy" {
			b.ends(r, Charged)
		}
	}
	b.sends()
	b.now = b.now.Add(slowAfter)
	for _, r := range sent {
		if r.Namespace != "healthy" {
			b.ends(r, Refunded)
		}
	}
	if healthy, others := of(b.sends()); healthy != 0 || others != 8 {
		t.Errorf("then %d and %d others begin, want 8 others", healthy, others)
	}
	if b.idle != len(b.tickets)-b.waiting[Idle] {
		t.Errorf("%d count as under way, %d are", b.idle, len(b.tickets)-b.waiting[Idle])
	}
}

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

// TestIdleOnesHaveATurn: where resizes that are needed use the whole budget for ever, one that is not needed yet
// has one turn of nine.
func TestIdleOnesHaveATurn(t *testing.T) {
	c := roomy()
	c.Burst = 41
	b := newBench(c)
	idle := 0
	for i := range 40 {
		b.comes("quiet", "n", Idle)
		for range 20 {
			b.comes("busy", fmt.Sprint("m", i), Needed)
		}
		b.now = b.now.Add(time.Second) // ten tokens
		for _, r := range b.sends() {
			if r.Priority == Idle {
				idle++
			}
			b.ends(r, Charged)
		}
	}
	if idle < 40 {
		t.Errorf("%d of 40 without need were sent", idle)
	}
}
