package flowcontrol

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/types"
)

// bench is a queue under a clock of the test.
type bench struct {
	*Queue[int]
	now time.Time
	// offered are the resizes of each node in the order in which they came, as its worker replaces them.
	offered map[string][]Request[int]
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
	return &bench{Queue: q, now: noon, offered: map[string][]Request[int]{}, came: map[types.UID]arrival{}}
}

// roomy is a configuration in which only the rate of the cluster is a bound.
func roomy() Config {
	return Config{
		PerSecond: 10, PerNode: 0, MaxPerSecond: 10, Burst: 1, NodePerSecond: 1e6, NodeBurst: 1e6,
		Workers: 1 << 30, NamespaceWorkers: 1<<30 - 1,
	}
}

// manyTokens has a bench in which only workers are a bound.
func manyTokens(workers, ofNamespace int) *bench {
	c := roomy()
	c.PerSecond, c.MaxPerSecond, c.Burst, c.Workers, c.NamespaceWorkers = 1e6, 1e6, 1e6, workers, ofNamespace
	return newBench(c)
}

// slowNodes has a bench in which a token of its node each second is the bound.
func slowNodes() *bench {
	c := roomy()
	c.PerSecond, c.MaxPerSecond, c.Burst, c.NodePerSecond, c.NodeBurst = 1000, 1000, 1000, 1, 1
	return newBench(c)
}

// comes adds a resize.
func (b *bench) comes(namespace, node string, p Priority) types.UID {
	uid := types.UID(fmt.Sprintf("%s-%s-%d-%d", namespace, node, p, len(b.came)))
	b.offered[node] = append(b.offered[node], Request[int]{Pod: uid, Namespace: namespace, Node: node, Priority: p})
	b.came[uid] = arrival{b.now, len(b.came)}
	b.offer(node)
	return uid
}

func exists(types.UID) bool { return true }

func (b *bench) offer(node string) { b.Replace(node, b.offered[node], exists, b.now) }

// sends begins all resizes whose turn it is.
func (b *bench) sends() (sent []Request[int]) {
	for {
		r, ok, _ := b.Next(b.now)
		if !ok {
			b.sentIn = append(b.sentIn, sent...)
			return sent
		}
		b.offered[r.Node] = slices.DeleteFunc(b.offered[r.Node], func(o Request[int]) bool { return o.Pod == r.Pod })
		sent = append(sent, r)
	}
}

// ends has a resize end, and its answer taken.
func (b *bench) ends(r Request[int], u Charge) {
	b.Finish(r.Pod, r.Value, u, b.now)
	b.Take(r.Pod, b.now)
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
			b.Replace(fmt.Sprint(node), list, exists, b.now)
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

// TestANewerDecisionReplaces: what waits is replaced, what is under way is not, and what is withdrawn
// is not made.
func TestANewerDecisionReplaces(t *testing.T) {
	q := NewQueue[int](roomy())
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

// TestKeepsNothing: what was sent, answered and taken, or withdrawn, is not kept alive by the queue.
func TestKeepsNothing(t *testing.T) {
	q := NewQueue[*[64]int](roomy())
	now := noon
	var values []weak.Pointer[[64]int]
	var requests []Request[*[64]int]
	for i := range 10 {
		v := &[64]int{i}
		values = append(values, weak.Make(v))
		requests = append(requests, Request[*[64]int]{Pod: types.UID(fmt.Sprint(i)), Namespace: "ns", Node: "n", Priority: Needed, Value: v})
	}
	q.Replace("n", requests, exists, now)
	for range 4 {
		now = now.Add(time.Second)
		r, ok, _ := q.Next(now)
		if !ok {
			t.Fatal("no resize has its turn")
		}
		q.Finish(r.Pod, r.Value, Charged, now)
		if _, taken := q.Take(r.Pod, now); !taken {
			t.Fatalf("no answer about pod %s", r.Pod)
		}
	}
	q.Replace("n", requests[4:7], exists, now)
	kept := len(values)
	for range 10 { // what a register or a dead slot of a stack still holds, one cycle may keep
		runtime.GC()
		values = slices.DeleteFunc(values, func(v weak.Pointer[[64]int]) bool { return v.Value() == nil })
		if kept = len(values); kept == 3 {
			break
		}
	}
	if kept != 3 || q.Waiting()[Needed] != 3 {
		t.Errorf("%d of 10 resizes are kept alive, want the 3 that wait (%v)", kept, q.Waiting())
	}
	runtime.KeepAlive(q)
}
