package flowcontrol

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkQueue is what one turn costs, with its end and the look at its node that follows, while so many
// pods wait: all in one namespace, or in a hundred; under the default budgets of nodes, so that most
// wait for a token of their node, or without them.
func BenchmarkQueue(b *testing.B) {
	for _, pods := range []int{300, 3000, 30000} {
		for _, namespaces := range []int{1, 100} {
			for _, bounded := range []bool{false, true} {
				b.Run(fmt.Sprintf("%d-in-%d/bounded=%v", pods, namespaces, bounded), func(b *testing.B) {
					queueOf(b, pods, namespaces, bounded)
				})
			}
		}
	}
}

func queueOf(b *testing.B, pods, namespaces int, bounded bool) {
	const each = 30 // pods of a node
	c := DefaultConfig()
	c.PerSecond, c.MaxPerSecond, c.Burst = 1e9, 1e9, 1<<30
	if !bounded {
		c.NodePerSecond, c.NodeBurst = 1e9, 1<<30
	}
	q, now := NewQueue[int](c), noon
	nodes := map[string][]Request[int]{}
	for i := range pods {
		node := fmt.Sprint("n", i/each)
		nodes[node] = append(nodes[node], Request[int]{
			Pod: types.UID(fmt.Sprint(i)), Namespace: fmt.Sprint("ns", i%namespaces), Node: node, Priority: Decrease,
		})
	}
	for node, list := range nodes {
		q.Replace(node, list, exists, now)
	}
	for b.Loop() {
		r, ok, _ := q.Next(now)
		if !ok {
			now = now.Add(wakeEvery)
			continue
		}
		q.Finish(r.Pod, 0, Charged, now)
		q.Take(r.Pod, now)
		q.Replace(r.Node, nodes[r.Node], exists, now)
		now = now.Add(time.Millisecond)
	}
}
