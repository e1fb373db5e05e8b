package flowcontrol

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"
)

// TestSlotsHold: while all resizes of a namespace hang, those of another are made at the full rate.
func TestSlotsHold(t *testing.T) {
	c := roomy()
	c.Workers, c.NamespaceWorkers = 10, 4
	b := newBench(c)
	for range 101 {
		b.comes("sick", "n", Needed)
	}
	b.ends(b.sends()[0], Charged) // the first is answered
	sick, healthy := 0, 0
	for range 100 {
		b.now = b.now.Add(100 * time.Millisecond)
		b.comes("healthy", "n", Needed)
		for _, r := range b.sends() {
			if r.Namespace == "sick" {
				sick++
				continue
			}
			healthy++
			b.ends(r, Charged)
		}
	}
	if sick < 3 || sick > 4 || healthy < 95 {
		t.Errorf("%d sick ones are under way and %d healthy ones were made, want at most 4 and nearly 100", sick, healthy)
	}
}

// TestWorkersThatEndAreUsed: a namespace that may have few workers because others have many has more as
// those end, though none of its own has ended.
func TestWorkersThatEndAreUsed(t *testing.T) {
	b := manyTokens(64, 8)
	name := func(i int) string { return fmt.Sprint("team-", i) }
	for i := range 56 { // all are known to answer
		b.comes(name(i), "n", Needed)
		for _, r := range b.sends() {
			b.ends(r, Charged)
		}
	}
	for i := range 55 {
		b.comes(name(i), "n", Needed)
	}
	others := b.sends()
	for range 5 {
		b.comes(name(55), "n", Needed)
	}
	if first := b.sends(); len(others) != 55 || len(first) != 1 {
		t.Fatalf("%d others and %d of the last namespace begin, want 55 and 1", len(others), len(first))
	}
	for _, r := range others {
		b.ends(r, Charged)
	}
	if rest := b.sends(); len(rest) != 4 {
		t.Errorf("%d more begin once the others have ended, want 4", len(rest))
	}
}

// TestOneSlowAnswerCostsLittle: after one slow answer, or many at the same moment, a namespace has one worker
// until its next answer: with a prompt one all again, and with a slow one few for a minute. A webhook that
// hangs for some pods only is as slow as one that hangs for all.
func TestOneSlowAnswerCostsLittle(t *testing.T) {
	c := roomy()
	c.PerSecond, c.MaxPerSecond, c.Burst, c.Workers, c.NamespaceWorkers = 1e6, 1e6, 1e6, 64, 8
	for name, slowAgain := range map[string]bool{"once": false, "twice": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(c)
			b.answered("a")
			for range 40 {
				b.comes("a", "n", Needed)
			}
			check := func(what string, want int) (sent []Request[int]) {
				t.Helper()
				if sent = b.sends(); len(sent) != want {
					t.Fatalf("%s: %d under way, want %d", what, len(sent), want)
				}
				return sent
			}
			end := func(sent []Request[int], after time.Duration) {
				b.now = b.now.Add(after)
				for _, r := range sent {
					b.ends(r, Charged)
				}
			}
			end(check("at first", 8), slowAfter) // the API server stood still
			end(check("after slow answers", 1), 10*time.Millisecond)
			sent := check("after a prompt one", 8)
			if !slowAgain {
				end(sent, 10*time.Millisecond)
				end(check("and another", 8), 0)
				return
			}
			end(sent[:1], slowAfter) // a webhook hangs for one pod
			end(sent[1:], 0)
			for range 5 {
				end(check("slow again", 1), 10*time.Millisecond)
			}
			end(nil, slowKept)
			end(check("a minute later", 1), 10*time.Millisecond)
			check("after the first prompt answer then", 8)
		})
	}
}

// TestSlowOnesHaveFewWorkers: namespaces with two slow answers in a minute have one worker each and a quarter
// of all together, unknown ones one each and with those a half. A namespace has all that it may have again
// with the first prompt answer a minute after the last slow one.
func TestSlowOnesHaveFewWorkers(t *testing.T) {
	b := manyTokens(32, 8)
	b.window.answers = math.MinInt // all workers, although most answers are late
	wait := func(d time.Duration) { b.now = b.now.Add(d) }
	fill := func(kind string, namespaces, pods int) (sent []Request[int]) {
		for i := range namespaces {
			for range pods {
				b.comes(fmt.Sprint(kind, i), "n", Needed)
			}
		}
		return b.sends()
	}
	check := func(what string, sent []Request[int], want, each int) {
		t.Helper()
		counts := map[string]int{}
		for _, r := range sent {
			counts[r.Namespace]++
		}
		if most := slices.Max(append(slices.Collect(maps.Values(counts)), 0)); len(sent) != want || most > each {
			t.Errorf("%s: %d under way, %d of one namespace, want %d and at most %d", what, len(sent), most, want, each)
		}
	}
	finish := func(sent []Request[int]) {
		for _, r := range sent {
			b.ends(r, Refunded)
		}
	}
	hanging := fill("hangs", 100, 6)
	check("not known", hanging, 16, 1)
	wait(slowAfter)
	finish(hanging)
	hanging = b.sends()
	check("some are slow", hanging, 16, 1)
	for range 20 { // all have been tried twice
		wait(slowAfter)
		finish(hanging)
		hanging = b.sends()
	}
	check("all are slow", hanging, 8, 1)
	unknown := fill("new", 10, 2)
	check("new ones beside them", unknown, 8, 1)
	finish(unknown)
	check("that are prompt", b.sends(), 10, 8)
	check("healthy ones beside both", fill("new", 1, 20), 2, 2)
	for _, r := range hanging {
		b.ends(r, Refunded)
	}
	b = manyTokens(32, 8)
	one := fill("a", 1, 30)
	for range 2 {
		wait(slowAfter)
		finish(one)
		one = b.sends()
	}
	finish(one)
	for range 5 {
		one = b.sends()
		check("soon after a slow answer", one, 1, 1)
		finish(one)
	}
	wait(slowKept)
	finish(b.sends())
	check("a minute after it", b.sends(), 8, 8)
}

// TestUrgentOnesOfSlowNamespaces: while resizes of many namespaces hang, each of these still has a worker for a
// rollback at once, up to three eighths of the workers together; namespaces that answer, and those that are
// not known, have theirs.
func TestUrgentOnesOfSlowNamespaces(t *testing.T) {
	b := manyTokens(64, 8)
	b.window.answers = math.MinInt // all workers, although most answers are late
	b.answered("healthy")
	name := func(i int) string { return fmt.Sprint("slow-", i) }
	for i := range 40 {
		for range 10 {
			b.comes(name(i), "n", Needed)
		}
	}
	hanging := b.sends()
	for range 10 { // until all are slow
		b.now = b.now.Add(slowAfter)
		for _, r := range hanging {
			b.ends(r, Refunded)
		}
		hanging = b.sends()
	}
	if len(hanging) != 16 {
		t.Fatalf("%d of slow namespaces are under way, want a quarter of 64", len(hanging))
	}
	holds := hanging[0].Namespace
	for range 2 {
		b.comes(holds, "n", Urgent)
	}
	if sent := b.sends(); len(sent) != 1 || sent[0].Namespace != holds || sent[0].Priority != Urgent {
		t.Errorf("of two rollbacks in a namespace with a resize that hangs, %v begin, want one", sent)
	}
	for i := range 40 {
		b.comes(name(i), "n", Urgent)
	}
	urgent := b.sends()
	for i := range 10 {
		b.comes(fmt.Sprint("new-", i), "n", Decrease)
	}
	unknown := b.sends()
	for range 8 {
		b.comes("healthy", "n", Needed)
	}
	healthy := b.sends()
	if len(urgent) != 7 || len(unknown) != 8 || len(healthy) != 4 {
		t.Errorf("%d more rollbacks, %d of namespaces that are not known and %d of one that answers are under way, want 7, 8 and 4",
			len(urgent), len(unknown), len(healthy))
	}
}

// TestPromptInEachPriority: a namespace that turns out to be prompt while others that are new hang has workers for
// its resizes of each priority at once, also for those that waited before.
func TestPromptInEachPriority(t *testing.T) {
	b := manyTokens(32, 8)
	for n := range 40 {
		b.comes(fmt.Sprint("hangs-", n), "n", Decrease)
	}
	first := b.comes("prompt", "n", Needed)
	waits := b.comes("prompt", "n", Decrease)
	for n := range 40 {
		b.comes(fmt.Sprint("hangs-", n), "n", Needed)
	}
	begun := b.sends()
	i := slices.IndexFunc(begun, func(r Request[int]) bool { return r.Pod == first })
	if len(begun) != 16 || i < 0 {
		t.Fatalf("%d are under way, want half of 32, of these one of the namespace that answers", len(begun))
	}
	b.ends(begun[i], Charged)
	if then := b.sends(); !slices.ContainsFunc(then, func(r Request[int]) bool { return r.Pod == waits }) {
		t.Errorf("the decrease of the namespace that answers does not begin, %d others do", len(then))
	}
}
