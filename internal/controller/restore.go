package controller

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

// Restorer returns every pod of the cluster to its declared limits, once, and keeps the controller from
// moving them again. It is what an uninstall runs first.
type Restorer struct {
	// Client reads from the API server itself, not from a cache.
	Client    client.Client
	Resize    Resizer
	Namespace string
	Out       io.Writer
	// Pods is how many pods are restored at the same time.
	Pods int
	Now  func() time.Time
	// Look is the time from one look at a pod to the next.
	Look time.Duration
}

// answerWithin is how long a running controller may take to acknowledge the pause: longer than a Lease lasts
// that nobody renews.
const answerWithin = 20 * time.Second

// homeward is one pod on its way back.
type homeward struct {
	uid   types.UID
	entry entry
	done  bool
	// lost: MBCAS set its limits, and no record says what was declared. It can only go away.
	lost   bool
	said   string // what stands in the way
	result string
	// again is when to try again after a refusal.
	again time.Time
}

// All restores until every pod is back that can be, or ctx ends; the error lists the pods that are not.
func (r *Restorer) All(ctx context.Context) error {
	if err := r.pause(ctx); err != nil {
		return err
	}
	pods, err := r.find(ctx)
	if err != nil {
		return err
	}
	for {
		r.look(ctx, pods)
		left := slices.ContainsFunc(pods, func(h *homeward) bool { return !h.done })
		hope := slices.ContainsFunc(pods, func(h *homeward) bool { return !h.done && !h.lost })
		switch {
		case left && !hope:
			return unrestored(pods)
		case !left:
			fmt.Fprintf(r.Out, "%d pods looked at, all at their declared limits\n", len(pods))
			return nil
		}
		select {
		case <-ctx.Done():
			return unrestored(pods)
		case <-time.After(r.Look):
		}
	}
}

func unrestored(pods []*homeward) error {
	var names []string
	for _, h := range pods {
		if !h.done {
			names = append(names, fmt.Sprintf("  %s/%s: %s", h.entry.Namespace, h.entry.Pod, h.said))
		}
	}
	return fmt.Errorf("%d of %d pods are not back at their declared limits; run this again, or recreate them:\n%s",
		len(names), len(pods), strings.Join(names, "\n"))
}

// pause stops the running controller, and waits until it has said so. Where none leads, or the one that led has died,
// there is nothing to wait for; one that lives and does not answer might undo whatever is restored.
func (r *Restorer) pause(ctx context.Context) error {
	value := "restore-" + r.Now().UTC().Format("20060102T150405.000")
	if err := setSwitch(ctx, r.Client, r.Namespace, kube.PausedKey, value); err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "paused MBCAS (ConfigMap %s/%s); delete that ConfigMap to resume\n", r.Namespace, kube.SwitchName)
	var leader kube.Leader
	for end := r.Now().Add(answerWithin); r.Now().Before(end); {
		data, err := readSwitch(ctx, r.Client, r.Namespace)
		if err != nil {
			return err
		}
		if data[kube.AcknowledgedKey] == value {
			return nil
		}
		lease, err := r.lease(ctx)
		if err != nil {
			return err
		}
		switch leader.See(lease, r.Now()) {
		case kube.NoLeader:
			return nil
		case kube.LapsedLeader:
			fmt.Fprintf(r.Out, "the controller %s does not renew its Lease %s/%s any more; going on without it\n", leader.Holder(), r.Namespace, kube.LeaderLease)
			return nil
		case kube.LivingLeader:
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the controller to stop: %w", ctx.Err())
		case <-time.After(r.Look):
		}
	}
	return fmt.Errorf("the controller %s holds Lease %s/%s and has not acknowledged the pause in %v; it might move pods again, so nothing was restored: "+
		"restart it (kubectl -n %s rollout restart deployment/mbcas-controller) and run this again",
		leader.Holder(), r.Namespace, kube.LeaderLease, answerWithin, r.Namespace)
}

// lease is the leader's Lease; nil where there is none.
func (r *Restorer) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: kube.LeaderLease}, lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Lease %s/%s: %w", r.Namespace, kube.LeaderLease, err)
	}
	return lease, nil
}

// find lists the pods whose declared limits are recorded, in allocations or in the ledger, and those without a
// record whose limits are ours all the same.
func (r *Restorer) find(ctx context.Context) ([]*homeward, error) {
	var ledgers corev1.ConfigMapList
	if err := r.Client.List(ctx, &ledgers, client.InNamespace(r.Namespace), client.HasLabels{kube.LedgerLabel}); err != nil {
		return nil, fmt.Errorf("list the records of declared limits: %w", err)
	}
	uids, entries := recorded(ledgers.Items)
	var allocations v1alpha1.PodAllocationList
	if err := r.Client.List(ctx, &allocations); err != nil && !missing(err) {
		return nil, fmt.Errorf("list the PodAllocations: %w", err)
	}
	for _, pa := range allocations.Items {
		uid := pa.Spec.PodRef.UID
		if len(pa.Status.DeclaredLimits) == 0 {
			continue
		}
		if _, known := entries[uid]; !known {
			uids = append(uids, uid)
		}
		entries[uid] = entry{pa.Namespace, pa.Spec.PodRef.Name, pa.Status.DeclaredLimits}
	}
	pods, err := r.lost(ctx, entries)
	if err != nil {
		return nil, err
	}
	for _, uid := range uids {
		pods = append(pods, &homeward{uid: uid, entry: entries[uid]})
	}
	slices.SortFunc(pods, func(a, b *homeward) int {
		return strings.Compare(a.entry.Namespace+"/"+a.entry.Pod, b.entry.Namespace+"/"+b.entry.Pod)
	})
	return pods, nil
}

// lost lists the pods with limits that MBCAS set and of which there is no record.
func (r *Restorer) lost(ctx context.Context, entries map[types.UID]entry) (lost []*homeward, err error) {
	for more := ""; ; {
		var page corev1.PodList
		if err := r.Client.List(ctx, &page, client.Limit(pageOfPods), client.Continue(more)); err != nil {
			return nil, fmt.Errorf("list the pods of the cluster: %w", err)
		}
		for i := range page.Items {
			pod := &page.Items[i]
			if _, known := entries[pod.UID]; known || gone(pod) || len(kube.Ours(pod)) == 0 {
				continue
			}
			lost = append(lost, &homeward{uid: pod.UID, entry: entry{Namespace: pod.Namespace, Pod: pod.Name}, lost: true})
		}
		if more = page.Continue; more == "" {
			return lost, nil
		}
	}
}

// pageOfPods is how many pods are read at once.
const pageOfPods = 500

// look takes every pod that is not back one step further, and prints those that have arrived.
func (r *Restorer) look(ctx context.Context, pods []*homeward) {
	var waiting []*homeward
	for _, h := range pods {
		if !h.done && !r.Now().Before(h.again) {
			waiting = append(waiting, h)
		}
	}
	_ = each(r.Pods, waiting, func(h *homeward) error { r.step(ctx, h); return nil })
	for _, h := range waiting {
		if h.done {
			fmt.Fprintf(r.Out, "%s/%s: %s\n", h.entry.Namespace, h.entry.Pod, h.result)
		}
	}
}

// step takes one pod one step further.
func (r *Restorer) step(ctx context.Context, h *homeward) {
	pod := &corev1.Pod{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: h.entry.Namespace, Name: h.entry.Pod}, pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && (pod.UID != h.uid || gone(pod)):
		h.done, h.result = true, "gone"
		return
	case ctx.Err() != nil && h.said != "": // the last answer says more than that there is no time left
		return
	case err != nil:
		h.said = err.Error()
		return
	case h.lost:
		h.said = fmt.Sprintf("no record of its declared limits; recreate it (%s)", reasons.DeclaredLimitUnknown)
		return
	}
	mine := kube.MaybeOurs(pod)
	move := actuator.Move{UID: string(pod.UID)}
	declared, foreign := byName(h.entry.Limits), false
	for _, l := range kube.Limits(pod) {
		switch d, ok := declared[l.Name]; {
		case !ok || d == l.CPULimit:
		case mine[l.Name]:
			move.Changes = append(move.Changes, actuator.Change{Container: l.Name, From: l.CPULimit, To: d})
		default:
			foreign = true
		}
	}
	if len(move.Changes) > 0 {
		result, way := r.resize(ctx, pod, move), "accepted, not yet in force"
		if result.Outcome == podresize.QuotaExceeded {
			if part, ok := r.affordable(ctx, pod, move); ok {
				result, way = r.resize(ctx, pod, part), "a ResourceQuota has no room for all of it; a part was accepted"
			}
		}
		if ctx.Err() != nil && h.said != "" {
			return
		}
		switch result.Outcome {
		case podresize.Accepted, podresize.NoChange:
			h.said = way
		case podresize.Conflict, podresize.Unknown:
			h.said = "the pod keeps changing"
		default:
			h.said = fmt.Sprintf("%v: %s", result.Outcome, result.Message)
			h.again = r.Now().Add(max(result.RetryAfter, serverRetry))
		}
		return
	}
	progress, said := podresize.Check(pod, declared, pod.Generation)
	if progress != podresize.Done && !foreign {
		h.said = fmt.Sprintf("%v: %s", progress, said)
		return
	}
	h.done, h.result = true, "at its declared limits, "+text(h.entry.Limits)
	if foreign {
		h.result = "left as it is: somebody else changed its limits to " + text(kube.Limits(pod))
	}
}

// resize carries a move out. Defaults that admission would add can never be removed, so it is asked first.
func (r *Restorer) resize(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	result := r.Resize.DryRun(ctx, pod, move)
	if result.Outcome == podresize.Accepted || result.Outcome == podresize.NoDryRun && lacksNothing(pod) {
		return r.Resize.Apply(ctx, pod, move)
	}
	return result
}

// affordable is the part of a move that the quotas of the namespace have room for, however little; false where there is none, or
// where they cannot be read.
func (r *Restorer) affordable(ctx context.Context, pod *corev1.Pod, move actuator.Move) (actuator.Move, bool) {
	var quotas corev1.ResourceQuotaList
	if err := r.Client.List(ctx, &quotas, client.InNamespace(pod.Namespace)); err != nil {
		return move, false
	}
	free := cpu.Milli(math.MaxInt32)
	for i := range quotas.Items {
		q := &quotas.Items[i]
		if room, ok := constraints.QuotaRoomOf(q); ok && constraints.QuotaCounts(q, pod) {
			free = min(free, max(0, room.Hard-room.Used))
		}
	}
	part, worth := shorten(move, free, 0)
	return part, worth && len(part.Changes) > 0
}
