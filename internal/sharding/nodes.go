package sharding

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// nodes are those of the cluster that this replica has looked at, and whether it owned them then.
type nodes struct {
	mu    sync.Mutex
	owned map[string]bool
	mine  int
	count func(mine, all int) // is called when a number has changed; nil: none is
}

// Counts has f called with the number of nodes that the replica owns, and of all nodes that it knows.
func (r *Replica) Counts(f func(mine, all int)) {
	if r != nil {
		r.nodes.count = f
	}
}

// Saw takes a node in, and whether it exists. The numbers of all replicas' own nodes never add up to
// more than there are, but for the moment after a node has moved.
func (r *Replica) Saw(node string, exists bool) {
	if r == nil {
		return
	}
	n := &r.nodes
	n.mu.Lock()
	defer n.mu.Unlock()
	was, known := n.owned[node]
	is := exists && r.Owns(node)
	if known == exists && was == is {
		return
	}
	if n.owned == nil {
		n.owned = map[string]bool{}
	}
	if n.owned[node] = is; !exists {
		delete(n.owned, node)
	}
	if was {
		n.mine--
	}
	if is {
		n.mine++
	}
	n.tell()
}

// recount finds out anew which nodes are owned.
func (n *nodes) recount(owns func(string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mine = 0
	for node := range n.owned {
		if n.owned[node] = owns(node); n.owned[node] {
			n.mine++
		}
	}
	n.tell()
}

func (n *nodes) tell() {
	if n.count != nil {
		n.count(n.mine, len(n.owned))
	}
}

// Elsewhere is the share of pods that this replica does not own the nodes of.
func (r *Replica) Elsewhere(pods []corev1.Pod) float64 {
	n := 0
	for i := range pods {
		if !r.Owns(pods[i].Spec.NodeName) {
			n++
		}
	}
	return float64(n) / float64(max(len(pods), 1))
}
