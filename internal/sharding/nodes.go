package sharding

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// nodes are those of the cluster that this replica has looked at.
type nodes struct {
	mu    sync.Mutex
	known map[string]node
	mine  int
	count func(mine, all int) // is called when a number has changed; nil: none is
}

// node is whether a node was owned when it was looked at last, and in how many divisions another
// replica owned it.
type node struct {
	owned bool
	moves int
}

// OnNodeCount has f called with the number of nodes that the replica owns, and of all nodes that it knows.
func (r *Replica) OnNodeCount(f func(mine, all int)) {
	if r != nil {
		r.nodes.count = f
	}
}

// ObserveNode takes a node in, and whether it exists. The numbers of all replicas' own nodes never add up to
// more than there are, but for the moment after a node has moved.
func (r *Replica) ObserveNode(name string, exists bool) {
	if r == nil {
		return
	}
	n := &r.nodes
	n.mu.Lock()
	defer n.mu.Unlock()
	mine, all := n.mine, len(n.known)
	n.add(name)
	last, is := n.known[name], exists && r.Owns(name)
	if last.owned {
		n.mine--
	}
	if is {
		n.mine++
	}
	if n.known[name] = (node{is, last.moves}); !exists {
		delete(n.known, name)
	}
	if mine != n.mine || all != len(n.known) {
		n.tell()
	}
}

// recount finds out anew which nodes are owned, by a view that divides them in another way than the
// one before.
func (n *nodes) recount(v view) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mine = 0
	for name, is := range n.known {
		if is.owned = v.ownership(name, time.Now()) == Owned; is.owned {
			n.mine++
		}
		if v.owner(name) != v.self {
			is.moves++
		}
		n.known[name] = is
	}
	n.tell()
}

// moves is in how many divisions another replica owned a node. They count from the first call on.
func (n *nodes) moves(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.add(name) {
		n.tell()
	}
	return n.known[name].moves
}

// add adds a node that is not known yet.
func (n *nodes) add(name string) bool {
	if _, known := n.known[name]; known {
		return false
	}
	if n.known == nil {
		n.known = map[string]node{}
	}
	n.known[name] = node{}
	return true
}

func (n *nodes) tell() {
	if n.count != nil {
		n.count(n.mine, len(n.known))
	}
}

// UnownedFraction is the part of pods that this replica does not own the nodes of.
func (r *Replica) UnownedFraction(pods []corev1.Pod) float64 {
	n := 0
	for i := range pods {
		if !r.Owns(pods[i].Spec.NodeName) {
			n++
		}
	}
	return float64(n) / float64(max(len(pods), 1))
}
