package nodeallocation

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// Refused is the error of pods that are not published: the API server calls their values invalid, or the
// NodeAllocation is full. The others are published, unless Rest says why not.
type Refused struct {
	Pods      []types.UID
	Err, Rest error
}

func (r *Refused) Error() string {
	return fmt.Sprintf("not published: the pods with UIDs %s: %v", joined(r.Pods), r.Err)
}

// Unwrap returns the answers of the API server, and why the others are not published.
func (r *Refused) Unwrap() []error { return []error{r.Err, r.Rest} }

// with joins two refusals; r may be nil.
func (r *Refused) with(other *Refused) *Refused {
	if r == nil {
		return other
	}
	fresh := slices.DeleteFunc(slices.Clone(other.Pods), func(uid types.UID) bool { return slices.Contains(r.Pods, uid) })
	return &Refused{Pods: append(r.Pods, fresh...), Err: errors.Join(r.Err, other.Err)}
}

func joined(pods []types.UID) string {
	parts := make([]string, len(pods))
	for i, uid := range pods {
		parts[i] = string(uid)
	}
	return strings.Join(parts, ", ")
}

const (
	// maxTries is how often one call writes: each write leaves out what the one before showed. The API server
	// names all that breaks the schema in one answer, and what breaks its rules in the next.
	maxTries = 3
	// refusedFirst and refusedMost are how long a refused pod waits, at first and at most. Its value, or the
	// schema, may be another one then.
	refusedFirst = 10 * time.Second
	refusedMost  = 10 * time.Minute
	// maxBytes bounds the pods of a NodeAllocation, as JSON. etcd takes objects of 1.5 MiB.
	maxBytes = 1 << 20
)

// refusal is of a pod of which the API server refused the last value.
type refusal struct {
	n     int       // refusals in a row
	until time.Time // when its value is published again
	out   bool      // the API server refuses what it stored of it, too
}

// refusals are those of a node. Calls for one node come one after another.
func (w *Writer) refusals(node string) map[types.UID]*refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused == nil {
		w.refused = map[string]map[types.UID]*refusal{}
	}
	if w.refused[node] == nil {
		w.refused[node] = map[types.UID]*refusal{}
	}
	return w.refused[node]
}

// refusedPod is how the API server names an entry of the list in what it refuses.
var refusedPod = regexp.MustCompile(`^spec\.pods\[([0-9]+)\]`)

// noteAnswer returns the error of a write of these pods: Refused where it names some of them. Those that are held are sent as they are
// stored; true: which is not what they are to be.
func (w *Writer) noteAnswer(node string, pods []v1alpha1.NodePod, held map[types.UID]bool, err error) error {
	refusals := w.refusals(node)
	if err == nil {
		for _, p := range pods {
			if !held[p.UID] {
				delete(refusals, p.UID)
			}
		}
		return nil
	}
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return err
	}
	refused := &Refused{Err: err}
	for _, cause := range status.Status().Details.Causes {
		m := refusedPod.FindStringSubmatch(cause.Field)
		if m == nil {
			continue
		}
		i, err := strconv.Atoi(m[1])
		if err != nil || i >= len(pods) || slices.Contains(refused.Pods, pods[i].UID) {
			continue
		}
		uid := pods[i].UID
		refused.Pods = append(refused.Pods, uid)
		r := refusals[uid]
		if r == nil {
			r = &refusal{}
			refusals[uid] = r
		}
		if _, r.out = held[uid]; !r.out {
			r.until = w.Now().Add(wait.Jitter(lifecycle.Doubled(refusedFirst, refusedMost, r.n), 0.1))
			r.n++
		}
	}
	if len(refused.Pods) == 0 {
		return err
	}
	return refused
}

// storedPod is what a NodeAllocation, which may be nil, holds of a pod; nil: nothing.
func storedPod(o *v1alpha1.NodeAllocation, pod types.UID) *v1alpha1.NodePod {
	if o == nil {
		return nil
	}
	if i := slices.IndexFunc(o.Spec.Pods, func(p v1alpha1.NodePod) bool { return p.UID == pod }); i >= 0 {
		return &o.Spec.Pods[i]
	}
	return nil
}

// withoutRefused are these pods, in their order, with what is stored in place of what the API server refused a short while ago. held has
// those pods; true: what is stored is another value. A pod is left out of which it refuses both, or stores what is of an earlier
// PodAllocation.
func (w *Writer) withoutRefused(
	was *v1alpha1.NodeAllocation, node string, pods []v1alpha1.NodePod,
) (list []v1alpha1.NodePod, held map[types.UID]bool) {
	refusals, now := w.refusals(node), w.Now()
	if len(refusals) == 0 {
		return pods, nil
	}
	held = map[types.UID]bool{}
	for _, p := range pods {
		r, stored := refusals[p.UID], storedPod(was, p.UID)
		switch {
		case r == nil || !now.Before(r.until):
		case r.out || stored == nil || stored.AllocationUID != p.AllocationUID:
			continue
		default:
			held[p.UID] = !equality.Semantic.DeepEqual(*stored, p)
			p = *stored
		}
		list = append(list, p)
	}
	return list, held
}

// Unpublished says whether the last change of a pod is not published.
func (w *Writer) Unpublished(node string, pod types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unpublished[node][pod]
}

// noteUnpublished notes which of these pods, and of those that do not fit, are not published. It returns those of the latter that
// were published before, and when to call again: soon where a status is to change, else for the next refused pod; zero: no need.
func (w *Writer) noteUnpublished(node string, pods []v1alpha1.NodePod, left []types.UID) (fresh []types.UID, again time.Time) {
	refusals, known, out, now := w.refusals(node), map[types.UID]bool{}, map[types.UID]bool{}, w.Now()
	for _, p := range pods {
		known[p.UID] = true
	}
	maps.DeleteFunc(refusals, func(uid types.UID, _ *refusal) bool { return !known[uid] })
	for uid, r := range refusals {
		if out[uid] = true; r.until.After(now) { // else there was no time for it
			again = lifecycle.Earlier(again, r.until)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.unpublished[node]
	for _, uid := range left {
		if out[uid] = true; !was[uid] {
			fresh = append(fresh, uid)
		}
	}
	if !maps.Equal(was, out) {
		again = now.Add(time.Second)
	}
	if w.unpublished == nil {
		w.unpublished = map[string]map[types.UID]bool{}
	}
	if w.unpublished[node] = out; len(out) == 0 {
		delete(w.unpublished, node)
		delete(w.refused, node)
	}
	return fresh, again
}

// errNodeFull is why a pod is left out that does not fit beside the others of its node.
var errNodeFull = errors.New("the pods of the node are more than one NodeAllocation takes; those with the most containers are left out")

// fitting are these pods, in their order, without the largest ones where they do not all fit into an object.
func fitting(pods []v1alpha1.NodePod) (list []v1alpha1.NodePod, left []types.UID) {
	total := 0
	for i := range pods {
		total += sizeOf(&pods[i])
	}
	if total <= maxBytes && len(pods) <= v1alpha1.MaxNodePods {
		return pods, nil
	}
	order := make([]int, len(pods))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(sizeOf(&pods[b]), sizeOf(&pods[a])), cmp.Compare(b, a))
	})
	out := map[int]bool{}
	for _, i := range order {
		if total <= maxBytes && len(pods)-len(out) <= v1alpha1.MaxNodePods {
			break
		}
		total -= sizeOf(&pods[i])
		out[i] = true
	}
	for i, p := range pods {
		if out[i] {
			left = append(left, p.UID)
		} else {
			list = append(list, p)
		}
	}
	return list, left
}

// sizeOf is what a pod takes at most of a NodeAllocation, in bytes of JSON. Its texts are names of Kubernetes objects, which JSON
// does not escape.
func sizeOf(p *v1alpha1.NodePod) int {
	const pod, constraints, container = 100, 260, 70 // without texts
	size := pod + len(p.UID) + len(p.AllocationUID)
	for _, l := range p.DeclaredLimits {
		size += container + len(l.Name)
	}
	if c := p.Constraints; c != nil {
		size += constraints + len(c.FloorBy) + len(c.CeilingBy) + len(c.NoDecrease) + len(c.DemandBy)
		for _, l := range c.Containers {
			size += container + len(l.Name)
		}
	}
	return size
}
