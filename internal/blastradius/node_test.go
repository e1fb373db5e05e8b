package blastradius

import (
	"testing"
	"time"
)

// TestNodesExplainHarm tells harm that a node does to all its pods from harm of one workload.
func TestNodesExplainHarm(t *testing.T) {
	const within, recent = 30 * time.Second, 2 * time.Minute
	old, long := start.Add(-time.Hour), start.Add(-24*time.Hour)
	fine := Health{Created: long, ReadySince: old}
	unready := func(after time.Duration) Health {
		return Health{Created: long, Troubles: []time.Time{start.Add(after)}}
	}
	back := Health{Created: long, ReadySince: start.Add(20 * time.Second)}
	failed := Health{Created: long, ReadySince: start.Add(-time.Second), Troubles: []time.Time{start.Add(-time.Second)}}
	lowered := func(h Health, before time.Duration) Health {
		h.Lowered = start.Add(-before)
		return h
	}
	ready := Node{Ready: true, ReadySince: old}
	with := func(others ...Health) Node { return Node{Ready: true, ReadySince: old, Others: others} }
	for name, c := range map[string]struct {
		node Node
		want bool
	}{
		"alone on its node":             {ready, false},
		"the node is not Ready":         {Node{ReadySince: old}, true},
		"the node is back":              {Node{Ready: true, ReadySince: start.Add(time.Second)}, true},
		"the node was back just before": {Node{Ready: true, ReadySince: start}, false},
		"the others are fine":           {with(fine, fine, fine), false},
		"most others are not Ready":     {with(unready(0), unready(within), fine), true},
		"half of them are":              {with(unready(0), unready(-within), fine, fine), false},
		"one other is":                  {with(unready(0)), false},
		"they were so long before":      {with(unready(-within-1), unready(-time.Hour), fine), false},
		"they are so since":             {with(unready(within+1), unready(time.Hour)), false},
		"containers of most failed":     {with(failed, failed, fine), true},
		"most were not Ready, and are":  {with(back, back, fine), true},
		"they became Ready much later":  {with(Health{Created: long, ReadySince: start.Add(time.Hour)}, back, fine), false},
		"new pods became Ready":         {with(Health{Created: start.Add(-time.Minute), ReadySince: start.Add(time.Second)}, back, fine), false},
		"they were lowered as well":     {with(lowered(unready(0), time.Minute), lowered(unready(0), time.Minute), fine), false},
		"those that were not lowered":   {with(lowered(fine, time.Minute), unready(0), unready(0), lowered(fine, time.Minute)), true},
		"they were lowered long before": {with(lowered(unready(0), time.Hour), lowered(unready(0), recent), fine), true},
	} {
		if got := c.node.Explains(start, within, recent); got != c.want {
			t.Errorf("%s: explained %v, want %v", name, got, c.want)
		}
	}
}
