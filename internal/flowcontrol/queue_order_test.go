package flowcontrol

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

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
					b.comes(name.Draw(t, "namespace"), "n", level.Draw(t, "priority"))
					r := b.offered["n"][len(b.offered["n"])-1]
					queued[key(r)]++
					place[r.Pod] = queued[key(r)]
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
		for tick := range 100 {
			b.now = noon.Add(time.Duration(tick) * 100 * time.Millisecond)
			for range rapid.IntRange(0, 3).Draw(t, "newcomers") {
				b.comes("a", rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node"), Needed)
			}
			node := rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "decided anew")
			if rapid.Bool().Draw(t, "withdrawn") { // and offered again in the same moment
				b.Replace(node, nil, exists, b.now)
			}
			b.offer(node)
			for _, r := range b.sends() {
				if rapid.IntRange(0, 4).Draw(t, "untried") == 0 {
					// It came before the others, and is alone: a tick has one token, and the bucket holds one.
					b.offered[r.Node] = slices.Insert(b.offered[r.Node], 0, r)
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

// TestNodesAreFairBetweenNamespaces: of the tokens that a node gets, namespaces with pods that wait for them
// take turns within a priority, however many pods each has; in a namespace the pod that came first is first.
func TestNodesAreFairBetweenNamespaces(t *testing.T) {
	b := slowNodes()
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
	b := slowNodes()
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
