package flowcontrol

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// bench is a queue under a clock of the test.
type bench struct {
	*Queue[int]
	now time.Time
	// offered are the resizes of each node, as its worker replaces them.
	offered map[string]map[types.UID]Request[int]
	came    map[types.UID]arrival
	sentIn  []Request[int] // in order
}

// arrival is when a resize came, and how many waited then.
type arrival struct {
	at     time.Time
	number int
}

func newBench(c Config) *bench {
	q := NewQueue[int](c) // that has owned all nodes for long
	q.cluster.used, q.since = 0, noon.Add(-1e6*time.Hour)
	return &bench{
		Queue: q, now: noon, offered: map[string]map[types.UID]Request[int]{}, came: map[types.UID]arrival{},
	}
}

// roomy is a configuration in which only the rate of the cluster is a bound.
func roomy() Config {
	return Config{
		PerSecond: 10, PerNode: 0, MaxPerSecond: 10, Burst: 1, NodePerSecond: 1e6, NodeBurst: 1e6,
		Workers: 1 << 30, NamespaceWorkers: 1<<30 - 1,
	}
}

// comes adds a resize.
func (b *bench) comes(namespace, node string, p Priority) types.UID {
	uid := types.UID(fmt.Sprintf("%s-%s-%d-%d", namespace, node, p, len(b.came)))
	if b.offered[node] == nil {
		b.offered[node] = map[types.UID]Request[int]{}
	}
	b.offered[node][uid] = Request[int]{Pod: uid, Namespace: namespace, Node: node, Priority: p}
	b.came[uid] = arrival{b.now, len(b.came)}
	b.offer(node)
	return uid
}

// offer offers the resizes of a node in the order in which they came.
func (b *bench) offer(node string) {
	list := slices.SortedFunc(maps.Values(b.offered[node]), func(x, y Request[int]) int {
		return b.came[x.Pod].number - b.came[y.Pod].number
	})
	b.Replace(node, list, func(types.UID) bool { return true }, b.now)
}

// sends begins all resizes whose turn it is.
func (b *bench) sends() (sent []Request[int]) {
	for {
		r, ok, _ := b.Next(b.now)
		if !ok {
			b.sentIn = append(b.sentIn, sent...)
			return sent
		}
		delete(b.offered[r.Node], r.Pod)
		sent = append(sent, r)
	}
}

// ends has a resize end, and its answer taken.
func (b *bench) ends(r Request[int], u Charge) {
	b.Finish(r.Pod, r.Value, u, b.now)
	b.Take(r.Pod, b.now)
}

// TestNoStarvation: while new resizes of every priority and namespace come at twice the rate, each
// gets its turn within the time that those before it take: of its own namespace by the number of
// namespaces, and of lower priorities by the share that they have.
func TestNoStarvation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := roomy()
		c.Burst = rapid.SampledFrom([]int{1, 41}).Draw(t, "burst")
		b := newBench(c)
		const namespaces, rate = 3, 10
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		level := rapid.SampledFrom([]Priority{Urgent, Needed, Decrease, Idle})
		// place is how many of the same namespace and priority wait, with the new one.
		place := map[types.UID]int{}
		queued := map[string]int{}
		key := func(r Request[int]) string { return fmt.Sprint(r.Namespace, r.Priority) }
		for tick := range 400 {
			b.now = noon.Add(time.Duration(tick) * 100 * time.Millisecond)
			if tick < 200 {
				for range rapid.IntRange(0, 4).Draw(t, "newcomers") {
					uid := b.comes(name.Draw(t, "namespace"), "n", level.Draw(t, "priority"))
					r := b.offered["n"][uid]
					queued[key(r)]++
					place[uid] = queued[key(r)]
				}
			}
			for _, r := range b.sends() {
				queued[key(r)]--
				waited := b.now.Sub(b.came[r.Pod].at)
				// A priority gets at least one turn of maxBypassed+3, and a namespace one of three of these.
				share := maxBypassed + Priorities - 1
				if r.Priority == Idle { // the tokens that it leaves to others come first
					share += int(idleKeeps * float64(c.Burst-1))
				}
				most := time.Duration(place[r.Pod]*namespaces*share) * time.Second / rate
				if waited > most+100*time.Millisecond {
					t.Fatalf("%s waited %v at place %d, want at most %v", r.Pod, waited, place[r.Pod], most)
				}
				b.ends(r, Charged)
			}
		}
	})
}

// TestUrgentGoesFirst: behind 3,000 decreases of 100 nodes and the defaults, with the budgets used up
// and more decreases to come, a rollback and an increase of a throttled pod are made within a second:
// the decreases are of the same node and namespace, or of others.
func TestUrgentGoesFirst(t *testing.T) {
	for name, place := range map[string]struct{ namespace, node string }{
		"beside them": {"batch", "n7"}, "elsewhere": {"shop", "own"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(DefaultConfig())
			b.Nodes(100, b.now)
			for i := range 3000 {
				b.comes("batch", fmt.Sprint("n", i%100), Decrease)
			}
			tick := func() (sent []types.UID) {
				for _, r := range b.sends() {
					sent = append(sent, r.Pod)
					b.ends(r, Charged)
					if r.Priority == Decrease {
						b.comes("batch", r.Node, Decrease)
					}
				}
				b.now = b.now.Add(50 * time.Millisecond)
				return sent
			}
			for range 60 { // the bursts are over
				tick()
			}
			before := b.Waiting()[Decrease]
			want := []types.UID{b.comes(place.namespace, place.node, Urgent), b.comes(place.namespace, place.node, Needed)}
			var sent []types.UID
			for range 20 {
				sent = append(sent, tick()...)
			}
			got := slices.DeleteFunc(slices.Clone(sent), func(uid types.UID) bool { return !slices.Contains(want, uid) })
			if !slices.Equal(got, want) {
				t.Errorf("of %v, %v were made in a second, want the rollback and then the increase", want, got)
			}
			if after := b.Waiting()[Decrease]; before != 3000 || after != 3000 || len(sent) < 18 {
				t.Errorf("%d decreases waited before and %d after, %d resizes", before, after, len(sent))
			}
		})
	}
}

// TestTokensComeBack: a resize that changed nothing, or was not tried, takes no token of its node or of
// the cluster; one that may have changed a pod does.
func TestTokensComeBack(t *testing.T) {
	for use, want := range map[Charge]int{Charged: 1, Refunded: 50, NotAttempted: 50} {
		for _, c := range []Config{
			{PerSecond: 1e-6, MaxPerSecond: 1, Burst: 1, NodePerSecond: 1, NodeBurst: 100, Workers: 9, NamespaceWorkers: 8},
			{PerSecond: 1, MaxPerSecond: 1, Burst: 100, NodePerSecond: 1e-6, NodeBurst: 1, Workers: 9, NamespaceWorkers: 8},
		} {
			b, made := newBench(c), 0
			for range 50 {
				b.comes("a", "n", Needed)
				for _, r := range b.sends() {
					made++
					b.ends(r, use)
				}
			}
			if made != want {
				t.Errorf("%d resizes that end as %d with one token, want %d", made, use, want)
			}
		}
	}
}

// TestBounded: however often resizes are offered and withdrawn, the queue holds one place for each pod, and
// none of pods that are gone.
func TestBounded(t *testing.T) {
	const pods = 1000
	b := newBench(DefaultConfig())
	for round := range 200 {
		b.now = b.now.Add(time.Second)
		for node := range 10 {
			var list []Request[int]
			for i := range pods / 10 {
				p := Priority((round + i) % Priorities)
				list = append(list, Request[int]{
					Pod: types.UID(fmt.Sprint(node, "-", i)), Namespace: fmt.Sprint(i % 7), Node: fmt.Sprint(node), Priority: p,
				})
			}
			if round%3 == 0 {
				list = list[:len(list)/2]
			}
			b.Replace(fmt.Sprint(node), list, func(types.UID) bool { return true }, b.now)
		}
		for _, r := range b.sends() {
			b.Finish(r.Pod, r.Value, Charge(round%3), b.now)
			b.Take(r.Pod, b.now)
		}
		waiting := 0
		for _, n := range b.Waiting() {
			waiting += n
		}
		if waiting > pods || len(b.tickets) > pods || len(b.leavings) > pods*int(placeKept/time.Second) {
			t.Fatalf("%d wait, %d places, %d of them withdrawn, for %d pods", waiting, len(b.tickets), len(b.leavings), pods)
		}
	}
	for node := range 10 {
		b.Replace(fmt.Sprint(node), nil, func(types.UID) bool { return false }, b.now)
	}
	b.now = b.now.Add(time.Hour)
	b.Next(b.now)
	flows := 0
	for p := range b.classes {
		flows += len(b.classes[p].flows)
	}
	if n := len(b.tickets) + len(b.nodes) + len(b.parked) + len(b.leavings) + len(b.namespaces) + flows; n != 0 {
		t.Errorf("%d things are kept of pods that are gone, %d of them flows", n, flows)
	}
}

// TestFairBetweenNamespaces: while namespaces wait in the same priority, none gets more than one resize
// more than another, however many they have, and whenever they came.
func TestFairBetweenNamespaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBench(roomy())
		for _, ns := range []string{"a", "b", "c", "d"} {
			for range rapid.IntRange(1, 40).Draw(t, ns) {
				b.comes(ns, "n", Needed)
			}
		}
		counts := map[string]int{}
		left := map[string]int{}
		for _, r := range b.offered["n"] {
			left[r.Namespace]++
		}
		for range 200 {
			b.now = b.now.Add(100 * time.Millisecond)
			for _, r := range b.sends() {
				counts[r.Namespace]++
				left[r.Namespace]--
				b.ends(r, Charged)
			}
			for x := range left {
				for y := range left {
					if left[x] > 0 && left[y] > 0 && counts[x] > counts[y]+1 {
						t.Fatalf("%v: %s is more than one ahead of %s, and both wait", counts, x, y)
					}
				}
			}
		}
	})
}

// TestKeepsItsPlace: whatever is decided anew, withdrawn for a moment or given back, resizes of one
// namespace and priority are made in the order in which they came.
func TestKeepsItsPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBench(roomy())
		last := -1
		for tick := range 300 {
			b.now = noon.Add(time.Duration(tick) * 100 * time.Millisecond)
			for range rapid.IntRange(0, 3).Draw(t, "newcomers") {
				b.comes("a", rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node"), Needed)
			}
			node := rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "decided anew")
			if rapid.Bool().Draw(t, "withdrawn") { // and offered again in the same moment
				b.Replace(node, nil, func(types.UID) bool { return true }, b.now)
			}
			b.offer(node)
			for _, r := range b.sends() {
				if rapid.IntRange(0, 4).Draw(t, "untried") == 0 {
					b.offered[r.Node][r.Pod] = r
					b.ends(r, NotAttempted)
					b.offer(r.Node)
					continue
				}
				if n := b.came[r.Pod].number; n < last {
					t.Fatalf("%s is made after one that came later", r.Pod)
				}
				last = b.came[r.Pod].number
				b.ends(r, Charged)
			}
		}
	})
}

// TestBudgetsHold: whatever comes and ends, the resizes that may have changed a pod stay within the
// budgets of the cluster and of each node; and what nothing is made of is not lost.
func TestBudgetsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			PerSecond: 5, PerNode: 1, MaxPerSecond: 8, Burst: 5, NodePerSecond: 2, NodeBurst: 3,
			Workers: 6, NamespaceWorkers: 3,
		}
		b := newBench(c)
		b.Nodes(2, b.now)
		nodes := []string{"n1", "n2"}
		spent, of := 0, map[string]int{}
		var underWay []Request[int]
		for tick := range 200 {
			b.now = noon.Add(time.Duration(tick) * 100 * time.Millisecond)
			for range rapid.IntRange(0, 3).Draw(t, "newcomers") {
				b.comes(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace"), rapid.SampledFrom(nodes).Draw(t, "node"),
					rapid.SampledFrom([]Priority{Urgent, Needed, Decrease, Idle}).Draw(t, "priority"))
			}
			for _, r := range b.sends() {
				underWay = append(underWay, r)
				spent++
				of[r.Node]++
			}
			inNamespace := map[string]int{}
			for _, r := range underWay {
				inNamespace[r.Namespace]++
			}
			if len(underWay) > c.Workers || inNamespace["a"] > c.NamespaceWorkers || inNamespace["b"] > c.NamespaceWorkers {
				t.Fatalf("under way %v", inNamespace)
			}
			passed := b.now.Sub(noon).Seconds()
			if most := 7*passed + 7; float64(spent) > most+1e-6 {
				t.Fatalf("%d resizes in %v s, want at most %v", spent, passed, most)
			}
			for _, node := range nodes {
				if most := 2*passed + 3; float64(of[node]) > most+1e-6 {
					t.Fatalf("%d resizes of %s in %v s, want at most %v", of[node], node, passed, most)
				}
			}
			for i := len(underWay) - 1; i >= 0; i-- {
				if r := underWay[i]; rapid.Bool().Draw(t, "ends") {
					u := rapid.SampledFrom([]Charge{Charged, Refunded}).Draw(t, "use")
					if u == Refunded {
						spent--
						of[r.Node]--
					}
					underWay = slices.Delete(underWay, i, i+1)
					b.ends(r, u)
				}
			}
		}
		for range 2000 { // all that is left is made
			b.now = b.now.Add(100 * time.Millisecond)
			for _, r := range append(b.sends(), underWay...) {
				b.ends(r, Charged)
			}
			underWay = nil
		}
		if n := b.Queue.waiting; n != [Priorities]int{} || b.sent != 0 || b.sentAt != [paces]int{} {
			t.Fatalf("%v still wait, %d under way", n, b.sent)
		}
		b.now = b.now.Add(time.Hour)
		b.Next(b.now)
		if len(b.tickets)+len(b.nodes)+len(b.parked)+len(b.leavings) != 0 {
			t.Fatalf("something is kept of what is gone: %d tickets, %d nodes", len(b.tickets), len(b.nodes))
		}
	})
}

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
	c := roomy()
	c.PerSecond, c.MaxPerSecond, c.Burst, c.Workers, c.NamespaceWorkers = 1e6, 1e6, 1e6, 64, 8
	b := newBench(c)
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

// TestIdleOnesHaveFewWorkers: of increases that no pod needs yet, a quarter of the workers is under way at
// most; the next one begins when one of them ends. Those of throttled pods have the other workers.
func TestIdleOnesHaveFewWorkers(t *testing.T) {
	c := roomy()
	c.PerSecond, c.MaxPerSecond, c.Burst, c.Workers, c.NamespaceWorkers = 1e6, 1e6, 1e6, 40, 8
	b := newBench(c)
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

// TestSlowOnesHaveFewWorkers: namespaces with two slow answers in a minute have one worker each and a quarter
// of all together, unknown ones one each and with those a half. A namespace has all that it may have again
// with the first prompt answer a minute after the last slow one.
func TestSlowOnesHaveFewWorkers(t *testing.T) {
	c := roomy()
	c.PerSecond, c.MaxPerSecond, c.Burst, c.Workers, c.NamespaceWorkers = 1e6, 1e6, 1e6, 32, 8
	b := newBench(c)
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
	b = newBench(c)
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

// answered has resizes of namespaces answered promptly, so that they may have all their workers.
func (b *bench) answered(namespaces ...string) {
	for _, name := range namespaces {
		b.comes(name, "first of "+name, Needed)
	}
	for _, r := range b.sends() {
		b.ends(r, Charged)
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

// TestUrgentOnesOfSlowNamespaces: while resizes of many namespaces hang, each of these still has a worker for a
// rollback at once, up to three eighths of the workers together; namespaces that answer, and those that are
// not known, have theirs.
func TestUrgentOnesOfSlowNamespaces(t *testing.T) {
	c := roomy()
	c.PerSecond, c.MaxPerSecond, c.Burst, c.Workers, c.NamespaceWorkers = 1e6, 1e6, 1e6, 64, 8
	b := newBench(c)
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
	c := roomy()
	c.PerSecond, c.MaxPerSecond, c.Burst, c.Workers, c.NamespaceWorkers = 1e6, 1e6, 1e6, 32, 8
	b := newBench(c)
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

// TestSlowIdleOnesLeaveHalf: increases that no pod needs yet, of namespaces that are slow or not known, leave
// half of the workers for such increases to namespaces that answer.
func TestSlowIdleOnesLeaveHalf(t *testing.T) {
	c := roomy()
	c.PerSecond, c.MaxPerSecond, c.Burst, c.Workers, c.NamespaceWorkers = 1e6, 1e6, 1e6, 64, 8
	b := newBench(c)
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

// TestTheNodeWithoutATokenWaits: pods of a node that has used its budget up let others pass, and get
// its next token, the most urgent first.
func TestTheNodeWithoutATokenWaits(t *testing.T) {
	c := roomy()
	c.PerSecond, c.MaxPerSecond, c.Burst, c.NodePerSecond, c.NodeBurst = 1000, 1000, 1000, 1, 1
	b := newBench(c)
	first := b.comes("a", "full", Idle)
	idle := b.comes("a", "full", Idle)
	other := b.comes("b", "other", Idle)
	sent := func(want ...types.UID) {
		t.Helper()
		var got []types.UID
		for _, r := range b.sends() {
			got = append(got, r.Pod)
			b.ends(r, Charged)
		}
		if !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
	}
	sent(first, other)
	urgent := b.comes("c", "full", Urgent)
	sent()
	if _, _, again := b.Next(b.now); again.Sub(b.now) != time.Second {
		t.Errorf("asked again in %v, want a second", again.Sub(b.now))
	}
	b.now = b.now.Add(time.Second)
	sent(urgent)
	b.now = b.now.Add(time.Second)
	sent(idle)
}

// TestNodesAreFairBetweenNamespaces: of the tokens that a node gets, namespaces with pods that wait for them
// take turns within a priority, however many pods each has; in a namespace the pod that came first is first.
func TestNodesAreFairBetweenNamespaces(t *testing.T) {
	c := roomy()
	c.PerSecond, c.MaxPerSecond, c.Burst, c.NodePerSecond, c.NodeBurst = 1000, 1000, 1000, 1, 1
	b := newBench(c)
	b.answered("large", "small", "other")
	made := func(tokens int) (order string) {
		for range tokens {
			b.now = b.now.Add(time.Second)
			for _, r := range b.sends() {
				order += r.Namespace[:1]
				b.ends(r, Charged)
			}
		}
		return order
	}
	comes := func(namespace string, p Priority, pods int) {
		for range pods {
			b.comes(namespace, "n", p)
		}
	}
	comes("large", Decrease, 100)
	if got := made(5); got != "lllll" {
		t.Errorf("alone: %s", got)
	}
	comes("small", Decrease, 3)
	comes("other", Decrease, 1)
	if got := made(8); got != "lsolslsl" { // the token that comes next is for a pod that waits already
		t.Errorf("with two others: %s, want turns", got)
	}
	comes("small", Decrease, 1) // and again whenever it has had its turn: it goes first no more than every other time
	order := ""
	for range 6 {
		order += made(1)
		if order[len(order)-1] == 's' {
			comes("small", Decrease, 1)
		}
	}
	if order != "lslsls" {
		t.Errorf("beside one that comes again: %s, want turns", order)
	}
	comes("other", Needed, 2)
	if got := made(4); got != "loos" {
		t.Errorf("with more urgent ones: %s, want these first", got)
	}
	last := 0
	for _, r := range b.sentIn {
		if n := b.came[r.Pod].number; r.Namespace == "large" && r.Priority == Decrease {
			if n < last {
				t.Errorf("%s goes after one that came later", r.Pod)
			}
			last = n
		}
	}
	for i := range 1000 { // namespaces that come and go
		b.comes(fmt.Sprint("brief-", i), "n", Urgent)
		made(1)
	}
	if n := len(b.nodes["n"].turns); n > Priorities*len(b.nodes["n"].tickets) {
		t.Errorf("turns of %d namespaces are kept, for %d pods", n, len(b.nodes["n"].tickets))
	}
}

// TestNodesStarveNoPriority: while more urgent resizes come at twice the rate of a node, others of the node still
// get one token of maxBypassed+1, or of a few more with several priorities.
func TestNodesStarveNoPriority(t *testing.T) {
	c := roomy()
	c.PerSecond, c.MaxPerSecond, c.Burst, c.NodePerSecond, c.NodeBurst = 1000, 1000, 1000, 1, 1
	b := newBench(c)
	b.answered("a", "b")
	for range 10 {
		b.comes("a", "n", Decrease)
		b.comes("a", "n", Idle)
	}
	made := map[Priority]int{}
	for range 100 {
		b.comes("b", "n", Needed)
		b.comes("b", "n", Needed)
		b.now = b.now.Add(time.Second)
		for _, r := range b.sends() {
			made[r.Priority]++
			b.ends(r, Charged)
		}
	}
	if made[Decrease] < 8 || made[Idle] < 8 || made[Needed] < 70 {
		t.Errorf("of 100 tokens %d are for increases, %d for decreases and %d for idle ones, want most, 8 and 8", made[Needed], made[Decrease], made[Idle])
	}
}

// TestANewerDecisionReplaces: what waits is replaced, what is under way is not, and what is withdrawn
// is not made.
func TestANewerDecisionReplaces(t *testing.T) {
	q := NewQueue[int](roomy())
	exists := func(types.UID) bool { return true }
	offer := func(values ...int) {
		var list []Request[int]
		for i, v := range values {
			list = append(list, Request[int]{Pod: types.UID(fmt.Sprint(i)), Namespace: "a", Node: "n", Priority: Needed, Value: v})
		}
		q.Replace("n", list, exists, noon)
	}
	offer(1, 2)
	offer(3, 4)
	r, ok, _ := q.Next(noon)
	if !ok || r.Value != 3 {
		t.Fatalf("%+v %v, want the newer decision about the first", r, ok)
	}
	offer(5)
	if s, _, v := q.Standing("0"); s != Sent || v != 3 {
		t.Errorf("the first is %v with %d, want as it was sent", s, v)
	}
	if _, ok, again := q.Next(noon.Add(time.Second)); ok || !again.IsZero() {
		t.Errorf("made a resize that was withdrawn (again at %v)", again)
	}
	if _, ok := q.Take("0", noon); ok {
		t.Error("an answer before there is one")
	}
	q.Finish("0", 7, Charged, noon)
	q.Finish("0", 8, Refunded, noon) // too late
	if v, ok := q.Take("0", noon); !ok || v != 7 {
		t.Errorf("answer %v, %v", v, ok)
	}
	offer(6)
	r, _, _ = q.Next(noon.Add(time.Second))
	q.Finish(r.Pod, r.Value, Charged, noon)
	q.Replace("n", nil, func(types.UID) bool { return false }, noon)
	if _, ok := q.Take(r.Pod, noon); ok {
		t.Error("the answer about a pod that is gone is kept")
	}
}

// TestRates: the budget grows with the cluster up to its bound, the burst with it, and the client may
// send what the largest budget needs.
func TestRates(t *testing.T) {
	c := DefaultConfig()
	for nodes, want := range map[int][2]float64{0: {10, 20}, 100: {20, 40}, 900: {100, 200}, 5000: {100, 200}} {
		if rate, burst := c.rate(nodes); rate != want[0] || burst != want[1] {
			t.Errorf("%d nodes: %v/s and a burst of %v, want %v", nodes, rate, burst, want)
		}
	}
	if got := c.QPS(); got != 650 {
		t.Errorf("%v requests per second, want 650", got)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	err := Config{PerNode: -1, MaxPerSecond: -1, NamespaceWorkers: 0}.Validate()
	if n := len(err.(interface{ Unwrap() []error }).Unwrap()); n != 8 {
		t.Errorf("%d faults, want 8: %v", n, err)
	}
}

// TestTakeOverIsNoBurst: when a process starts, and whenever nodes may have come from another replica, the
// cluster and each node get no more resizes than their rates allow from a second before on; after that
// the bursts come back. Neither a larger share nor more nodes add a token.
func TestTakeOverIsNoBurst(t *testing.T) {
	c := DefaultConfig()
	b := newBench(c)
	b.Queue = NewQueue[int](c)
	made := func(pods int) (n int, most int) {
		of := map[string]int{}
		for i := range pods {
			b.comes("shop", fmt.Sprint("n", i%4), Needed)
		}
		for sent := b.sends(); len(sent) > 0; sent = b.sends() {
			for _, r := range sent {
				n++
				of[r.Node]++
				b.ends(r, Charged)
			}
		}
		for node := range 4 { // what is left waits no longer
			name := fmt.Sprint("n", node)
			clear(b.offered[name])
			b.offer(name)
		}
		return n, slices.Max(append(slices.Collect(maps.Values(of)), 0))
	}
	check := func(what string, pods, want, each int) {
		t.Helper()
		if n, most := made(pods); n != want || most > each {
			t.Errorf("%s: %d resizes, %d of one node, want %d and at most %d", what, n, most, want, each)
		}
	}
	check("at the start", 100, 8, 2)
	b.now = b.now.Add(time.Minute)
	check("a minute later", 100, 20, 20)
	b.now = b.now.Add(time.Minute)
	for i := range 10 { // replicas come and go
		b.SetShare([]float64{0.2, 1}[i%2], b.now)
		b.TakeOver(b.now)
	}
	if n, most := made(100); n > 8 || most > 2 {
		t.Errorf("after a change of shards %d resizes, %d of one node, want at most 8 and 2", n, most)
	}
	b.now = b.now.Add(time.Minute)
	b.SetShare(0.2, b.now)
	b.SetShare(1, b.now)
	b.Nodes(900, b.now)
	check("with a larger share of more nodes", 100, 4, 4)
	b.now = b.now.Add(time.Second)
	check("a second after that", 100, 80, 20)
}

// TestDivide: the parts of several replicas add up to the budget of the cluster, whenever nodes come, and
// a replica without nodes keeps a little.
func TestDivide(t *testing.T) {
	c := DefaultConfig()
	parts := []float64{0.5, 0.3, 0.2, 0}
	for _, nodes := range []int{0, 100, 5000} {
		want, _ := c.rate(nodes)
		sum := 0.0
		for _, part := range parts {
			q := NewQueue[int](c)
			q.SetShare(part, noon)
			q.Nodes(nodes, noon)
			if q.cluster.perSecond <= 0 || q.cluster.burst < 1 {
				t.Errorf("%v of %d nodes: %v/s and a burst of %v", part, nodes, q.cluster.perSecond, q.cluster.burst)
			}
			sum += q.cluster.perSecond
		}
		if sum < want || sum > want*(1+2*leastShare) {
			t.Errorf("%d nodes: %v/s in all, want %v", nodes, sum, want)
		}
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
