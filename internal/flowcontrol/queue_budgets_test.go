package flowcontrol

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
)

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

// TestSaysWhenToAsk: asked at the times that it names and at no others, the queue has every resize made, whichever
// budget is used up.
func TestSaysWhenToAsk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{MaxPerSecond: 100, Workers: 4, NamespaceWorkers: rapid.IntRange(1, 3).Draw(t, "workers of one")}
		c.PerSecond, c.NodePerSecond = rapid.Float64Range(1, 20).Draw(t, "rate"), rapid.Float64Range(0.5, 20).Draw(t, "of a node")
		c.Burst, c.NodeBurst = rapid.IntRange(1, 10).Draw(t, "burst"), rapid.IntRange(1, 10).Draw(t, "its burst")
		b := newBench(c)
		waiting := rapid.IntRange(1, 40).Draw(t, "resizes")
		for range waiting {
			namespace, node := rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom([]string{"n", "m"})
			b.comes(namespace.Draw(t, "namespace"), node.Draw(t, "node"), Priority(rapid.IntRange(0, Priorities-1).Draw(t, "priority")))
		}
		for waiting > 0 {
			r, ok, again := b.Next(b.now)
			switch {
			case ok:
				b.ends(r, rapid.SampledFrom([]Charge{Charged, Refunded, NotAttempted}).Draw(t, "charge"))
				waiting--
			case again.IsZero(), b.now.Sub(noon) > 5*time.Minute:
				t.Fatalf("%d wait, none is under way, and at %v it says to ask at %v", waiting, b.now, again)
			case again.Sub(b.now) < time.Millisecond: // a dispatcher waits as long as this at least
				b.now = b.now.Add(time.Millisecond)
			default:
				b.now = again
			}
		}
	})
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

// TestATokenThatComesBackIsUsed: a pod that waits for its node has the token of a resize that changed nothing, or was
// withdrawn, at once.
func TestATokenThatComesBackIsUsed(t *testing.T) {
	b := slowNodes()
	sends := func(after string, want int) (sent []Request[int]) {
		t.Helper()
		if sent = b.sends(); len(sent) != want {
			t.Fatalf("%d resizes begin after %s, want %d", len(sent), after, want)
		}
		return sent
	}
	b.comes("a", "n", Needed)
	b.comes("b", "n", Needed)
	b.ends(sends("two came", 1)[0], Refunded)
	sends("the first changed nothing", 1)
	withdrawn := b.comes("c", "n", Needed)
	b.comes("d", "n", Needed)
	sends("the token was used", 0)
	b.comes("c", "m", Needed)
	sends("another node's", 1)
	b.now = b.now.Add(time.Second)
	sends("a token for the one whose namespace has no worker", 0)
	b.offered["n"] = slices.DeleteFunc(b.offered["n"], func(r Request[int]) bool { return r.Pod == withdrawn })
	b.offer("n")
	sends("that one was withdrawn", 1)
}

// TestTheNodeWithoutATokenWaits: pods of a node that has used its budget up let others pass, and get
// its next token, the most urgent first.
func TestTheNodeWithoutATokenWaits(t *testing.T) {
	b := slowNodes()
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
			delete(b.offered, name)
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
