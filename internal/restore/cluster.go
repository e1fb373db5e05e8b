package restore

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/quota"
)

// Resizer resizes pods; a *podresize.Client is one.
type Resizer interface {
	Apply(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result
	DryRun(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result
}

// Cluster returns every pod of the cluster to its declared limits, once, and pauses the controller first. An uninstall runs it.
type Cluster struct {
	// Client reads from the API server itself, not from a cache.
	Client    client.Client
	Resize    Resizer
	Namespace string
	Out       io.Writer
	// Parallel is the number of pods that are restored at the same time.
	Parallel int
	Now      func() time.Time
	// Interval is the time from one check of a pod to the next.
	Interval time.Duration
}

// retryAfter is how soon a server is asked again that could not answer and did not say when.
const retryAfter = 5 * time.Second

// candidate is one pod that is to be restored.
type candidate struct {
	uid   types.UID
	entry Entry
	// lost: MBCAS set its limits, and no record says what was declared. It can only be recreated.
	lost    bool
	done    bool
	message string    // what is in the way; once done, the result
	retryAt time.Time // after a refusal
}

func (c *candidate) finish(result string) { c.done, c.message = true, result }

// Restore restores every pod that can be restored, until ctx ends. The error lists the others.
func (r *Cluster) Restore(ctx context.Context) error {
	if err := r.pause(ctx); err != nil {
		return err
	}
	pods, err := r.find(ctx)
	if err != nil {
		return err
	}
	for {
		r.pass(ctx, pods)
		open := slices.ContainsFunc(pods, func(c *candidate) bool { return !c.done })
		possible := slices.ContainsFunc(pods, func(c *candidate) bool { return !c.done && !c.lost })
		switch {
		case open && !possible:
			return unrestored(pods)
		case !open:
			fmt.Fprintf(r.Out, "%d pods looked at, all at their declared limits\n", len(pods))
			return nil
		}
		select {
		case <-ctx.Done():
			return unrestored(pods)
		case <-time.After(r.Interval):
		}
	}
}

func unrestored(pods []*candidate) error {
	var lines []string
	for _, c := range pods {
		if !c.done {
			lines = append(lines, fmt.Sprintf("  %s/%s: %s", c.entry.Namespace, c.entry.Pod, c.message))
		}
	}
	return fmt.Errorf("%d of %d pods are not back at their declared limits; run this again, or recreate them:\n%s",
		len(lines), len(pods), strings.Join(lines, "\n"))
}

// pause stops the running controller, and waits for its acknowledgement: it might resize again what is restored.
func (r *Cluster) pause(ctx context.Context) error {
	value := "restore-" + r.Now().UTC().Format("20060102T150405.000")
	if err := Pause(ctx, r.Client, r.Namespace, kube.FieldManager, value); err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "paused MBCAS (ConfigMap %s/%s); delete that ConfigMap to resume\n", r.Namespace, kube.SwitchName)
	answer, holder, err := Waiter{Client: r.Client, Namespace: r.Namespace, Now: r.Now, Interval: r.Interval}.Wait(ctx, value)
	if err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}
	if answer == DeadController {
		fmt.Fprintf(r.Out, "the controller %s does not renew its Lease %s/%s any more; going on without it\n", holder, r.Namespace, kube.LeaderLease)
	}
	return nil
}

// find lists the pods whose declared limits are recorded, and the pods without a record whose limits MBCAS set. What the list shows
// of a pod is enough where nothing is to be done about it.
func (r *Cluster) find(ctx context.Context) ([]*candidate, error) {
	entries, err := Recorded(ctx, r.Client, r.Namespace)
	if err != nil && !kube.NotServed(err) {
		return nil, fmt.Errorf("read the records of declared limits: %w", err)
	}
	var pods []*candidate
	for more := ""; ; {
		var page corev1.PodList
		if err := r.Client.List(ctx, &page, client.Limit(pageSize), client.Continue(more)); err != nil {
			return nil, fmt.Errorf("list the pods of the cluster: %w", err)
		}
		for i := range page.Items {
			pod := &page.Items[i]
			entry, known := entries[pod.UID]
			delete(entries, pod.UID)
			lost := !known && !kube.Ended(pod) && len(kube.WrittenByMBCAS(pod)) > 0
			if lost {
				entry = Entry{Namespace: pod.Namespace, Pod: pod.Name}
			}
			if known || lost {
				c := &candidate{uid: pod.UID, entry: entry, lost: lost}
				c.assess(pod)
				pods = append(pods, c)
			}
		}
		if more = page.Continue; more == "" {
			break
		}
	}
	for uid, entry := range entries {
		pods = append(pods, &candidate{uid: uid, entry: entry, done: true, message: "gone"})
	}
	slices.SortFunc(pods, func(a, b *candidate) int {
		return strings.Compare(a.entry.Namespace+"/"+a.entry.Pod, b.entry.Namespace+"/"+b.entry.Pod)
	})
	for _, c := range pods {
		r.print(c)
	}
	return pods, nil
}

func (r *Cluster) print(c *candidate) {
	if c.done {
		fmt.Fprintf(r.Out, "%s/%s: %s\n", c.entry.Namespace, c.entry.Pod, c.message)
	}
}

// pass takes every pod that is not done one step further.
func (r *Cluster) pass(ctx context.Context, pods []*candidate) {
	now := r.Now()
	slots := make(chan struct{}, r.Parallel)
	var wg sync.WaitGroup
	var tried []*candidate
	for _, c := range pods {
		if c.done || now.Before(c.retryAt) {
			continue
		}
		tried = append(tried, c)
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			r.step(ctx, c)
		})
	}
	wg.Wait()
	for _, c := range tried {
		r.print(c)
	}
}

// step takes one pod one step further. Once the time is up, the last message says more than that.
func (r *Cluster) step(ctx context.Context, c *candidate) {
	pod := &corev1.Pod{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: c.entry.Namespace, Name: c.entry.Pod}, pod)
	switch {
	case apierrors.IsNotFound(err):
		c.finish("gone")
		return
	case ctx.Err() != nil && c.message != "":
		return
	case err != nil:
		c.message = err.Error()
		return
	}
	move := c.assess(pod)
	if len(move.Changes) == 0 {
		return
	}
	result, accepted := r.resize(ctx, pod, move), "accepted, not yet in force"
	if result.Outcome == podresize.QuotaExceeded {
		if part, ok := r.affordable(ctx, pod, move); ok {
			result, accepted = r.resize(ctx, pod, part), "a ResourceQuota has no room for all of it; a part was accepted"
		}
	}
	if ctx.Err() != nil && c.message != "" {
		return
	}
	switch result.Outcome {
	case podresize.Accepted, podresize.NoChange:
		c.message = accepted
	case podresize.Conflict, podresize.Unknown:
		c.message = "the pod keeps changing"
	default:
		c.message = fmt.Sprintf("%v: %s", result.Outcome, result.Message)
		c.retryAt = r.Now().Add(max(result.RetryAfter, retryAfter))
	}
}

// assess says what is to be changed of the pod as it is now; without changes, the candidate is done or says what it waits for.
func (c *candidate) assess(pod *corev1.Pod) actuator.Move {
	switch {
	case pod.UID != c.uid || kube.Ended(pod):
		c.finish("gone")
		return actuator.Move{}
	case c.lost:
		c.message = fmt.Sprintf("no record of its declared limits; recreate it (%s)", reasons.DeclaredLimitUnknown)
		return actuator.Move{}
	}
	move, external := ToDeclared(pod, c.entry.Limits)
	if len(move.Changes) > 0 {
		return move
	}
	switch progress, said := podresize.Check(pod, kube.ByName(c.entry.Limits), pod.Generation); {
	case len(external) > 0:
		c.finish("left as it is: another writer changed its limits to " + kube.LimitsText(kube.Limits(pod)))
	case progress == actuator.Done:
		c.finish("at its declared limits, " + kube.LimitsText(c.entry.Limits))
	default:
		c.message = fmt.Sprintf("%v: %s", progress, said)
	}
	return move
}

// resize asks first what admission would make of the resize: defaults that it adds can never be removed.
func (r *Cluster) resize(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	result := r.Resize.DryRun(ctx, pod, move)
	if result.Outcome == podresize.Accepted || result.Outcome == podresize.NoDryRun && kube.FullySpecified(pod) {
		return r.Resize.Apply(ctx, pod, move)
	}
	return result
}

// affordable is the part of a resize that the quotas of the namespace have room for; false if there is none, or if they cannot be read.
func (r *Cluster) affordable(ctx context.Context, pod *corev1.Pod, move actuator.Move) (actuator.Move, bool) {
	var quotas corev1.ResourceQuotaList
	if err := r.Client.List(ctx, &quotas, client.InNamespace(pod.Namespace)); err != nil {
		return move, false
	}
	free := cpu.Milli(math.MaxInt32)
	for i := range quotas.Items {
		q := &quotas.Items[i]
		if room, ok := constraints.CPUQuotaOf(q); ok && constraints.QuotaSelects(q, pod) {
			free = min(free, max(0, room.Hard-room.Used))
		}
	}
	part, worth := quota.Shorten(move, free, 0)
	return part, worth && len(part.Changes) > 0
}
