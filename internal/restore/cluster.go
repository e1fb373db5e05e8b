package restore

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// Cluster returns every pod of the cluster to its declared limits, once, and pauses the controller
// first. An uninstall runs it. What is done stands in the pods alone: a run that was cut short is
// continued by the next.
type Cluster struct {
	// Client reads from the API server itself, not from a cache.
	Client    client.Client
	Resize    podresize.Resizer
	Namespace string
	// Out gets the progress and the report, Audit one line per attempt to resize.
	Out   io.Writer
	Audit *slog.Logger
	// Workers is the number of pods that are restored at the same time, and Rate how many are begun
	// per second at most.
	Workers int
	Rate    float64
	Now     func() time.Time
	// Interval is the time from the first pass to the second; it doubles up to longestInterval.
	Interval time.Duration

	admission admission
}

// longestInterval is the longest time from one pass to the next. A pass lists all pods.
const longestInterval = 15 * time.Second

// vainPasses is after how many passes in a row without progress the pods that are left are given up.
// With the waits between them that is at least 45 s: kubelets and webhooks that are slow need some. Fewer
// leave pods that could be restored yet; more keep an uninstall waiting for a pod that never can be.
const vainPasses = 8

// Restore restores every pod that can be restored, until ctx ends. The error says what is left.
func (r *Cluster) Restore(ctx context.Context) error {
	if err := r.pause(ctx); err != nil {
		return err
	}
	known, err := readRecords(ctx, r.Client, r.Namespace)
	if err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}
	fmt.Fprintf(r.Out, "%d pods have a record of their declared limits\n", len(known.limits))
	began, total, wait := r.Now(), newTally(r.Out, r.Now), r.Interval
	for again := true; again; wait = min(2*wait, longestInterval) {
		t := r.pass(ctx, known, total)
		total.add(t)
		if again = t.open() && total.vain < vainPasses; again {
			select {
			case <-ctx.Done():
				again, total.cut = false, ctx.Err()
			case <-time.After(wait):
			}
		}
	}
	fmt.Fprintln(r.Out, total.summary(r.Now().Sub(began), len(known.limits)))
	return total.left(len(known.limits))
}

// pause stops the running controller, and waits for its acknowledgement: it might resize again what
// is restored.
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
		fmt.Fprintf(r.Out, "no controller renews its Lease in namespace %s any more (last: %s); going on without one\n", r.Namespace, holder)
	}
	return nil
}

// candidate is a pod that is not at its declared limits.
type candidate struct {
	pod      *corev1.Pod
	declared []v1alpha1.ContainerLimit
}

// pass lists the pods of the cluster page by page, and tries each once that is not at its declared
// limits. What a page shows of a pod is enough where nothing is to be done about it.
func (r *Cluster) pass(ctx context.Context, known *records, total *tally) *tally {
	t := newTally(r.Out, r.Now)
	t.before = total
	limiter := flowcontrol.NewTokenBucketRateLimiter(float32(r.Rate), r.Workers)
	work := make(chan candidate, pageSize) // the next page is read meanwhile
	var wg sync.WaitGroup
	for range r.Workers {
		wg.Go(func() {
			for c := range work {
				if ctx.Err() == nil && limiter.Wait(ctx) == nil {
					r.restore(ctx, c, t)
				} else {
					t.leave(c.pod, "not tried", "the time is up")
				}
			}
		})
	}
	err := eachPage(ctx, r.Client, func(page *corev1.PodList) error {
		for i := range page.Items {
			pod := &page.Items[i]
			switch declared, ok, err := r.declared(ctx, pod, known); {
			case err != nil: // it costs this pod, and is tried again in the next pass
				t.leave(pod, "template not read", err.Error())
			case t.look(pod, declared, ok):
				work <- candidate{pod, declared}
			}
		}
		return nil
	})
	close(work)
	wg.Wait()
	if t.cut = err; err == nil && ctx.Err() != nil {
		t.cut = fmt.Errorf("the time is up: %w", ctx.Err())
	}
	return t
}

// declared are the declared limits of a pod, as recorded. An uninstallation deletes the records of pods that it has
// restored, and MBCAS stays the last writer of their limits: for a pod without a record that MBCAS has resized, they are
// those of the template that it was made from, as for the controller. What is found is kept for the next passes.
func (r *Cluster) declared(
	ctx context.Context, pod *corev1.Pod, known *records,
) (limits []v1alpha1.ContainerLimit, ok bool, err error) {
	limits, ok = known.limits[pod.UID]
	certain, possible := kube.Written(pod)
	if ok || len(certain) == 0 || kube.Ended(pod) {
		return limits, ok, nil
	}
	limits, err = Finder{Live: r.Client, Namespace: r.Namespace, templates: known.templates}.ofTemplate(ctx, pod, kube.Limits(pod), possible)
	if err != nil || limits == nil {
		return nil, false, err
	}
	known.add(pod.UID, limits)
	return limits, true, nil
}
