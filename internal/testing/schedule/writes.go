package schedule

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/testing/memapi"
)

// Writes are those of MBCAS in a soak. Some of them are needed: decisions that change a limit, each with a
// record (that the pod waits, or does not any more); resizes, each with two records (that it is in flight,
// and what came of it); for a pod that comes, goes, or
// is managed otherwise from now on because its owner says so, a PodAllocation created or deleted, two
// records, a ledger entry, and two changes of what the agent is told. All others are beyond: records of
// what else becomes of a pod, such as that its agent is silent or a webhook refuses its resizes, and
// decisions that change no limit. Leases, one for each node and 25 s, are neither.
type Writes struct {
	Kinds  map[string]int // what was written
	Beyond map[string]int // of these, what nothing above paid for
	Why    map[string]int // of records beyond: what they say
	// Resizes are the changes of limits, Moves the pods that came and went.
	Resizes, Moves int

	credit  map[string]credit // of a pod and a kind of write: what it may still cost
	stopped bool
}

// credit is how many writes were paid for, until they are no more.
type credit struct {
	n     int
	until time.Time
}

// creditLasts is how long a record may come after its cause.
const creditLasts = 10 * time.Minute

func newWrites() *Writes {
	return &Writes{Kinds: map[string]int{}, Beyond: map[string]int{}, Why: map[string]int{}, credit: map[string]credit{}}
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
	return strings.Join(parts, ", ") + fmt.Sprint(" ", w.Why)
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
	elsewhere = "others"
)

// count takes in a change.
func (w *Writes) count(world *world, e memapi.Event) {
	if w.stopped {
		return
	}
	for _, uid := range managedOtherwise(world, e) {
		w.moved(e.At, uid)
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
		w.pay(e.At, string(e.After.GetUID()), records, 2)
		return
	case decisions:
		w.pay(e.At, pod, records, 1)
		return
	}
	if !w.paid(e.At, pod, kind) {
		w.Beyond[kind]++
		if pa, ok := e.After.(*v1alpha1.PodAllocation); ok && kind == records {
			w.Why[string(pa.Status.Phase)+" "+pa.Status.Reason]++
		}
	}
}

func (w *Writes) pay(at time.Time, pod, kind string, n int) {
	c := w.credit[pod+" "+kind]
	if at.After(c.until) {
		c.n = 0
	}
	w.credit[pod+" "+kind] = credit{c.n + n, at.Add(creditLasts)}
}

// paid says whether a write was paid for, and takes the pay.
func (w *Writes) paid(at time.Time, pod, kind string) bool {
	c := w.credit[pod+" "+kind]
	if c.n == 0 || at.After(c.until) {
		return false
	}
	w.credit[pod+" "+kind] = credit{c.n - 1, c.until}
	return true
}

// moved pays for a pod that comes, goes, or is managed otherwise.
func (w *Writes) moved(at time.Time, uid types.UID) {
	w.Moves++
	w.pay(at, "", telling, 2)
	w.pay(at, "", ledgers, 1)
	w.pay(at, string(uid), created, 1)
	w.pay(at, string(uid), records, 2)
}

// managedOtherwise are the pods that come or go, and those of which their owner, or a user, changes how
// they are managed: their annotations, the mode of their namespace, their PodAllocation.
func managedOtherwise(world *world, e memapi.Event) (uids []types.UID) {
	of := e.After
	if e.After == nil {
		of = e.Before
	}
	switch o := of.(type) {
	case *corev1.Pod:
		if e.Before == nil || e.After == nil || !maps.Equal(e.Before.GetAnnotations(), e.After.GetAnnotations()) {
			uids = append(uids, o.UID)
		}
	case *corev1.Namespace:
		for _, pod := range memapi.All[*corev1.Pod](world.api) {
			if pod.Namespace == o.Name {
				uids = append(uids, pod.UID)
			}
		}
	case *v1alpha1.PodAllocation:
		if e.Actor == "user" {
			uids = append(uids, o.Spec.PodRef.UID)
		}
	}
	return uids
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
		return elsewhere
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
