package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// sums are sums by a key such as a namespace, and what each node adds to them.
type sums[K comparable] struct {
	mu    sync.Mutex
	nodes map[string]map[K]Cores
	byKey map[K]*sum
}

type sum struct {
	Cores
	nodes int // that have pods of it
}

func newSums[K comparable]() sums[K] {
	return sums[K]{nodes: map[string]map[K]Cores{}, byKey: map[K]*sum{}}
}

// set notes what the pods of a node come to.
func (n *sums[K]) set(node string, now map[K]Cores) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, cores := range n.nodes[node] {
		s := n.byKey[key]
		s.add(cores, -1)
		if s.nodes--; s.nodes == 0 {
			delete(n.byKey, key)
		}
	}
	for key, cores := range now {
		if n.byKey[key] == nil {
			n.byKey[key] = &sum{}
		}
		n.byKey[key].add(cores, 1)
		n.byKey[key].nodes++
	}
	if n.nodes[node] = now; len(now) == 0 {
		delete(n.nodes, node)
	}
}

// largest are so many keys with the highest declared limits, which change least, and the sum of the others. The key
// other stands for the others, so it counts among them.
func (n *sums[K]) largest(most int, other K, compare func(a, b K) int) (named map[K]Cores, rest Cores) {
	n.mu.Lock()
	defer n.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(n.byKey), func(a, b K) int {
		return cmp.Or(cmp.Compare(n.byKey[b].Declared, n.byKey[a].Declared), compare(a, b))
	})
	named = make(map[K]Cores, min(most, len(keys)))
	for _, key := range keys {
		if key == other || len(named) == most {
			rest.add(n.byKey[key].Cores, 1)
		} else {
			named[key] = n.byKey[key].Cores
		}
	}
	return named, rest
}
