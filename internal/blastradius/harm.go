package blastradius

import (
	"maps"
	"slices"
	"time"
)

// Spread is when harm counts as spreading.
type Spread struct {
	// Workloads is from how many harmed workloads on the installation stops; 0: it never does.
	Workloads int
	// Window is how far back harm counts.
	Window time.Duration
	// Settle is how long after harm it counts, and how near to it trouble of other pods comes at
	// once. Longer finds more nodes that harm their pods; shorter holds sooner.
	Settle time.Duration
}

// Tally is which workloads were harmed, and when last. The zero value holds none.
type Tally struct{ harmed map[string]time.Time }

// Note notes that a workload was harmed.
func (t *Tally) Note(workload string, at time.Time) {
	if t.harmed == nil {
		t.harmed = map[string]time.Time{}
	}
	t.harmed[workload] = later(t.harmed[workload], at)
}

// Harmed are the workloads that were harmed within the window and after a time, by name. What is older than the
// window is forgotten.
func (t *Tally) Harmed(s Spread, now, after time.Time) []string {
	maps.DeleteFunc(t.harmed, func(_ string, at time.Time) bool { return at.Before(now.Add(-s.Window)) })
	var names []string
	for name, at := range t.harmed {
		if at.After(after) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Stops says whether so many harmed workloads stop the installation.
func (s Spread) Stops(harmed []string) bool { return s.Workloads > 0 && len(harmed) >= s.Workloads }
