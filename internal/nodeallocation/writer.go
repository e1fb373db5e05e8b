// Package nodeallocation tells the agent of each node what to decide about: it writes one
// NodeAllocation per node, and remembers its own last writes until the cache shows them.
//
// What it promises, each a test of the same name:
//   - OneWriteForManyPods: what changes for pods of a node within a moment is one write.
//   - WritesOnlyChanges: what is told already is not written again.
//   - ToldIsKnownAtOnce: what was written is known before the cache shows it.
//   - ForgetsWhatTheCacheShows: after a restore of the store, what the cache shows counts.
//   - DeletedIsWrittenAgain: a NodeAllocation that another client deletes is created again.
//   - LessIsStored: what an older CRD drops is not written again and again.
//   - OldWriterIsRefused: a writer that has not seen the newest version changes nothing.
//   - ContestsAreErrors: what another writer has changed since is not changed back at once.
//   - MetadataIsNoContest: that counts only of what an agent is told.
//   - ANewTenureIsNoContest: and not where another replica may have owned the node since.
//   - LeavesOutTheRefused: where the API server calls the value of a pod invalid, what it stored before stays, and the
//     others are published. The pod is tried again after a back-off.
//   - TightensInContest: a lower ceiling and NoDecrease are told all the same.
package nodeallocation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// Writer writes NodeAllocations. Those of different nodes may be written at the same time.
type Writer struct {
	Client client.Client
	Now    func() time.Time
	// Served says whether the CRD is installed. While it is not, nothing is told.
	Served func() bool
	// Tenure is another number when another replica may have owned the node since, see sharding.Replica.
	Tenure func(node string) int
	// Interval is the least time from one write about a node to the next. Shorter tells sooner; longer
	// saves writes where pods of a node come one after another.
	Interval time.Duration

	mu sync.Mutex
	// last is the last write about a node, until a change by another writer is seen.
	last map[string]last
	// written are the own last writes, by node, until the cache has caught up.
	written map[string]write
	// dropped is what was last told, by node, where the API server stored less of it: its CRD is of an
	// older version.
	dropped map[string]dropped
	// refused are the pods whose values the API server refused, by node, and unpublished those whose last change
	// is not published.
	refused     map[string]map[types.UID]*refusal
	unpublished map[string]map[types.UID]bool
}

type write struct {
	object *v1alpha1.NodeAllocation
	at     time.Time
}

type last struct {
	at      time.Time
	tenure  int
	version string
	stored  kube.Stamp
}

type dropped struct {
	told   []v1alpha1.NodePod
	stored string // the version
}

// kept is how long a write is remembered that the cache does not show. A version that is still later
// than the cached one then is from before a restore of the store.
const kept = 30 * kube.CacheLag

// Interval is what is usual for the least time from one write about a node to the next.
const Interval = 200 * time.Millisecond

// Told is what the agent of a node is told, by the UIDs of pods. Nothing changes it.
type Told map[types.UID]*v1alpha1.NodePod

// Constraints are those that the agent is told for a pod; nil: none.
func (t Told) Constraints(pod types.UID) *v1alpha1.Constraints {
	if p := t[pod]; p != nil {
		return p.Constraints
	}
	return nil
}

// Of is what is told of some pods.
func (t Told) Of(pods []types.UID) (list []v1alpha1.NodePod) {
	for _, uid := range pods {
		if p := t[uid]; p != nil {
			list = append(list, *p)
		}
	}
	return list
}

// Told is what the agent of a node is told.
func (w *Writer) Told(ctx context.Context, node string) (Told, error) {
	o, err := w.newest(ctx, node)
	if err != nil {
		return nil, err
	}
	told := Told{}
	if o != nil {
		for i := range o.Spec.Pods {
			told[o.Spec.Pods[i].UID] = &o.Spec.Pods[i]
		}
	}
	return told, nil
}

// newest is the newest known version of a NodeAllocation; nil: there is none.
func (w *Writer) newest(ctx context.Context, node string) (*v1alpha1.NodeAllocation, error) {
	if !w.Served() {
		return nil, nil
	}
	cached := &v1alpha1.NodeAllocation{}
	err := w.Client.Get(ctx, types.NamespacedName{Name: node}, cached)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read NodeAllocation %s: %w", node, err)
	}
	if err != nil {
		cached = nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	own, ok := w.written[node]
	switch {
	case !ok:
		return cached, nil
	case cached == nil && w.Now().Sub(own.at) < kube.CacheLag,
		cached != nil && kube.Newer(own.object, cached) && w.Now().Sub(own.at) <= kept:
		return own.object, nil
	}
	delete(w.written, node)
	return cached, nil
}

// Tell tells the agent of a node about these pods and no others, or says when to ask again, as it was told
// something just now. Where another writer has told it something else since, that is an error at first, and it
// is told as Tighten says. A node without a UID does not exist. Where some pods are not published, the error is
// Refused.
func (w *Writer) Tell(
	ctx context.Context, node string, uid types.UID, pods []v1alpha1.NodePod,
) (again time.Time, err error) {
	again, err = w.tell(ctx, node, uid, pods, false)
	if errors.Is(err, kube.ErrContested) {
		var failed error
		again, failed = w.Tighten(ctx, node, uid, pods)
		var refused *Refused
		if errors.As(failed, &refused) {
			refused.Rest = errors.Join(err, refused.Rest)
			return again, refused
		}
		err = errors.Join(err, failed)
	}
	return again, err
}

// Tighten tells the agent of a node what it is told, with what only tightens the constraints of those pods. A
// contest thus ends with the tightest, and not with one write after another.
func (w *Writer) Tighten(
	ctx context.Context, node string, uid types.UID, pods []v1alpha1.NodePod,
) (again time.Time, err error) {
	return w.tell(ctx, node, uid, pods, true)
}

func (w *Writer) tell(
	ctx context.Context, node string, uid types.UID, pods []v1alpha1.NodePod, contested bool,
) (again time.Time, err error) {
	slices.SortFunc(pods, func(a, b v1alpha1.NodePod) int { return cmp.Compare(a.UID, b.UID) })
	pods, left := fitting(pods)
	var refused *Refused
	for range maxTries {
		again, err = w.tellAccepted(ctx, node, uid, pods, contested)
		var r *Refused
		if !errors.As(err, &r) {
			break
		}
		refused = refused.with(r)
	}
	fresh, later := w.noteUnpublished(node, pods, left)
	if len(fresh) > 0 {
		refused = refused.with(&Refused{Pods: fresh, Err: errNodeFull})
	}
	if refused == nil {
		return lifecycle.Earlier(again, later), err
	}
	refused.Rest = err
	return w.Now().Add(time.Second), refused // for the status of each
}

func (w *Writer) tellAccepted(
	ctx context.Context, node string, uid types.UID, pods []v1alpha1.NodePod, contested bool,
) (again time.Time, err error) {
	if uid == "" || !w.Served() {
		return time.Time{}, nil
	}
	was, err := w.newest(ctx, node)
	if err != nil {
		return time.Time{}, err
	}
	if was != nil && contested {
		pods = tighter(was.Spec.Pods, pods)
	}
	pods, held := w.withoutRefused(was, node, pods)
	note := func(err error) error {
		if err == nil && contested { // what was sent is tighter than what is stored, and no more
			return nil
		}
		return w.noteAnswer(node, pods, held, err)
	}
	patch := w.changes(was, allocation.NewNode(node, uid), pods)
	if was == nil && len(pods) == 0 || was != nil && len(patch) == 0 {
		return time.Time{}, note(nil)
	}
	if again := w.notBefore(node); !again.IsZero() {
		return again, nil
	}
	if was != nil {
		if !contested && w.contested(was, uid) {
			return time.Time{}, fmt.Errorf("NodeAllocation %s: %w", node, kube.ErrContested)
		}
		return time.Time{}, note(w.patch(ctx, was, patch, pods))
	}
	next := allocation.NewNode(node, uid)
	next.Spec.Pods = slices.Clone(pods) // the answer is read into it
	if err := w.Client.Create(ctx, next, client.FieldOwner(kube.FieldManager)); err != nil {
		return time.Time{}, note(fmt.Errorf("create NodeAllocation %s: %w", node, err))
	}
	w.keep(next, pods)
	return time.Time{}, note(nil)
}

// notBefore is when a node may be written about again; zero: now.
func (w *Writer) notBefore(node string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.last[node]; ok {
		if age := w.Now().Sub(last.at); age >= 0 && age < w.Interval {
			return last.at.Add(w.Interval)
		}
	}
	return time.Time{}
}

// contested says, once, whether another writer has changed what the agent is told since it was last written in
// this tenure.
func (w *Writer) contested(was *v1alpha1.NodeAllocation, node types.UID) bool {
	tenure := w.Tenure(was.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.last[was.Name]
	if !ok || last.tenure != tenure || last.version == was.ResourceVersion {
		return false
	}
	contested := last.stored.Contested(stampOf(was, owned(was, node)))
	if contested {
		delete(w.last, was.Name)
	}
	return contested
}

// stampOf is of what the writer writes of a NodeAllocation.
func stampOf(o *v1alpha1.NodeAllocation, owned bool) kube.Stamp {
	return kube.StampOf(o, []any{o.Spec.Pods, owned})
}

// owned says whether the node owns its NodeAllocation. That of an earlier node of this name goes with that node.
func owned(o *v1alpha1.NodeAllocation, node types.UID) bool {
	return slices.ContainsFunc(o.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == node })
}

// changes are what a merge patch makes of the newest version, so that it tells about these pods.
func (w *Writer) changes(was, next *v1alpha1.NodeAllocation, pods []v1alpha1.NodePod) map[string]any {
	patch := map[string]any{}
	if was == nil {
		return patch
	}
	if !same(was.Spec.Pods, pods) && !w.drops(was, pods) {
		patch["spec"] = map[string]any{"pods": pods}
	}
	if !owned(was, next.OwnerReferences[0].UID) {
		patch["metadata"] = map[string]any{"ownerReferences": next.OwnerReferences}
	}
	return patch
}

// same says whether two nodes' pods are told the same.
func same(a, b []v1alpha1.NodePod) bool {
	return len(a)+len(b) == 0 || equality.Semantic.DeepEqual(a, b)
}

// drops says whether this version is what the API server stored of these pods.
func (w *Writer) drops(was *v1alpha1.NodeAllocation, pods []v1alpha1.NodePod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	d, ok := w.dropped[was.Name]
	return ok && d.stored == was.ResourceVersion && same(d.told, pods)
}

// patch sends a merge patch, which is refused where there is a newer version than that one.
func (w *Writer) patch(
	ctx context.Context, was *v1alpha1.NodeAllocation, patch map[string]any, told []v1alpha1.NodePod,
) error {
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["uid"], metadata["resourceVersion"] = was.UID, was.ResourceVersion
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("patch of NodeAllocation %s: %w", was.Name, err)
	}
	answer := &v1alpha1.NodeAllocation{ObjectMeta: metav1.ObjectMeta{Name: was.Name}}
	err = w.Client.Patch(ctx, answer, client.RawPatch(types.MergePatchType, body), client.FieldOwner(kube.FieldManager))
	if err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			w.forget(was.Name)
		}
		return fmt.Errorf("write NodeAllocation %s: %w", was.Name, err)
	}
	w.keep(answer, told)
	return nil
}

// keep remembers a NodeAllocation as the API server returned it, of what it was to tell.
func (w *Writer) keep(o *v1alpha1.NodeAllocation, told []v1alpha1.NodePod) {
	o.ManagedFields = nil
	tenure, stamp := w.Tenure(o.Name), stampOf(o, true)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.written == nil {
		w.written, w.dropped, w.last = map[string]write{}, map[string]dropped{}, map[string]last{}
	}
	w.last[o.Name] = last{w.Now(), tenure, o.ResourceVersion, stamp}
	delete(w.dropped, o.Name)
	if !same(o.Spec.Pods, told) {
		w.dropped[o.Name] = dropped{told, o.ResourceVersion}
	}
	w.written[o.Name] = write{o, w.Now()}
}

// Drop forgets a node that does not exist any more, or that another replica owns.
func (w *Writer) Drop(node string) {
	w.forget(node)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.refused, node)
	delete(w.unpublished, node)
}

// forget has the NodeAllocation of a node read again.
func (w *Writer) forget(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.written, node)
	delete(w.dropped, node)
	delete(w.last, node)
}
