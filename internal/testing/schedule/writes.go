package schedule

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/testing/memapi"
)

// Writes are those of MBCAS in a soak. Needed is what changes of limits and of pods cost: a resize, the
// decision that it follows, and two records of it (that it is in flight, and what came of it); for a pod
// that comes, its PodAllocation, its ledger entry, two records, its first decision, and what its agent is told; for
// one that goes, its ledger entry and what its agent is told. Leases, one for each node and 25 s, are neither.
type Writes struct {
	Kinds  map[string]int // what was written
	Beyond map[string]int // of these, what nothing above paid for
	// Resizes are the changes of limits, Moves the pods that came and went.
	Resizes, Moves int

	credit  map[string]int // of a pod and a kind of write: what it may still cost
	stopped bool
}

func newWrites() *Writes {
	return &Writes{Kinds: map[string]int{}, Beyond: map[string]int{}, credit: map[string]int{}}
}

// Total is what was written beyond what was needed.
func (w *Writes) Total() (n int) {
	for _, k := range w.Beyond {
		n += k
	}
	return n
}

func (w *Writes) String() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(w.Kinds)) {
		parts = append(parts, fmt.Sprintf("%s %d (%d)", kind, w.Kinds[kind], w.Beyond[kind]))
	}
	return strings.Join(parts, ", ")
}

// The kinds of writes.
const (
	leases    = "Leases"
	resizes   = "resizes"
	decisions = "decisions"
	figures   = "decisions that change no limit"
	records   = "records in PodAllocations"
	created   = "PodAllocations created or deleted"
	ledgers   = "ledgers"
	telling   = "NodeAllocations"
	others_   = "others"
)

// count takes in a change.
func (w *Writes) count(world *world, e memapi.Event) {
	if w.stopped {
		return
	}
	if e.Resource == "pods" && e.Sub == "" && (e.Before == nil || e.After == nil) {
		w.moved(e)
		return
	}
	fromAgent := strings.HasPrefix(e.Actor, agentActor)
	if !fromAgent && world.life(e.Actor) == nil {
		return
	}
	kind, pod := kindOfWrite(e), e.Key.Name
	if kind == telling || kind == ledgers {
		pod = ""
	}
	w.Kinds[kind]++
	switch kind {
	case leases:
		return
	case resizes:
		w.Resizes++
		w.pay(string(e.After.GetUID()), records, 2)
		return
	case decisions:
		return
	}
	if w.credit[pod+" "+kind]--; w.credit[pod+" "+kind] < 0 {
		w.credit[pod+" "+kind] = 0
		w.Beyond[kind]++
	}
}

func (w *Writes) pay(pod, kind string, n int) { w.credit[pod+" "+kind] += n }

// moved: a pod has come or gone.
func (w *Writes) moved(e memapi.Event) {
	w.Moves++
	w.pay("", telling, 1)
	w.pay("", ledgers, 1)
	if e.After == nil {
		uid := string(e.Before.GetUID())
		maps.DeleteFunc(w.credit, func(key string, _ int) bool { return strings.HasPrefix(key, uid+" ") })
		return
	}
	uid := string(e.After.GetUID())
	w.pay("", telling, 1) // its declared limits, and its PodAllocation
	w.pay(uid, created, 1)
	w.pay(uid, records, 2)
}

func kindOfWrite(e memapi.Event) string {
	switch {
	case e.Resource == "leases":
		return leases
	case e.Resource == "pods" && e.Sub == "resize":
		return resizes
	case e.Resource == "configmaps":
		return ledgers
	case e.Resource == "nodeallocations":
		return telling
	case e.Resource != "podallocations":
		return others_
	case e.Before == nil || e.After == nil:
		return created
	}
	before, after := e.Before.(*v1alpha1.PodAllocation), e.After.(*v1alpha1.PodAllocation)
	switch {
	case equality.Semantic.DeepEqual(before.Spec, after.Spec):
		return records
	case reflect.DeepEqual(before.Spec.Containers, after.Spec.Containers):
		return figures
	}
	return decisions
}
