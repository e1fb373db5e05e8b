package dispatch

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/audit"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// resizeDeadline is how long a resize may take with its dry run and a read of the pod after a lost answer.
const resizeDeadline = 3 * podresize.Timeout

// carryOut carries out a resize whose turn it is. It returns the resize with its answer, and what becomes of
// its tokens.
func (d *Dispatcher) carryOut(ctx context.Context, z Resize) (*Resize, flowcontrol.Charge) {
	d.Gate.InFlight.Add(1)
	defer d.Gate.InFlight.Add(-1)
	bounded, cancel := context.WithTimeout(ctx, resizeDeadline)
	defer cancel()
	err := flowcontrol.Guard(func() error {
		admitted, err := d.admit(bounded, &z)
		if err == nil && admitted {
			err = d.attempt(bounded, &z)
		}
		return err
	})
	if err != nil { // the pod backs off
		d.Failed(ctx, z.Pod, err)
		z.Answer = &Answer{Result: podresize.Result{Outcome: podresize.Unavailable, Message: err.Error()}}
	}
	switch {
	case z.Answer == nil:
		return &z, flowcontrol.NotAttempted
	case z.Answer.MayHaveChanged():
		return &z, flowcontrol.Charged
	}
	return &z, flowcontrol.Refunded
}

// admit checks again everything that may have changed since the decision, and says whether the resize may be
// made now. If not, the node is looked at again.
func (d *Dispatcher) admit(ctx context.Context, z *Resize) (bool, error) {
	if !d.Owns(z.Pod.Spec.NodeName) {
		return false, nil
	}
	now := d.Now()
	age := now.Sub(z.At)
	if z.Purpose == lifecycle.Allocate || z.Purpose == lifecycle.Startup {
		age += z.Age
	}
	if age >= d.FreezeAfter { // the agent may not stand by it any more
		return false, nil
	}
	if allowed, err := d.allowed(ctx, z); err != nil || !allowed {
		return false, err
	}
	if reserved, err := d.Quotas.reserve(ctx, z, now); err != nil || !reserved {
		return false, err
	}
	if _, _, admitted := d.Breakers.Admit(z.Pod.Namespace, now, true); !admitted {
		d.Quotas.release(z)
		return false, nil
	}
	return true, nil
}

// allowed says whether resizes are possible, and the mode of the namespace is still that of the decision.
func (d *Dispatcher) allowed(ctx context.Context, z *Resize) (bool, error) {
	if suspended, err := d.Suspended(ctx); err != nil || suspended != "" {
		return false, err
	}
	var ns metav1.PartialObjectMetadata
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	switch err := d.Client.Get(ctx, client.ObjectKey{Name: z.Pod.Namespace}, &ns); {
	case apierrors.IsNotFound(err): // its pods go as well
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read namespace %s: %w", z.Pod.Namespace, err)
	}
	mode, _ := kube.ModeOf(ns.Labels, d.DefaultMode)
	return mode == z.Mode, nil
}

// attempt resizes, and notes the outcome; after a panic that is Unknown. An error says that nothing was
// sent.
func (d *Dispatcher) attempt(ctx context.Context, z *Resize) error {
	started := d.Now()
	z.Answer = &Answer{}
	tried := true
	err := flowcontrol.Guard(func() (err error) {
		z.Answer.Result, tried, err = d.try(ctx, z)
		return err
	})
	if !tried {
		z.Answer = nil
		d.Quotas.release(z)
		return err
	}
	if err != nil {
		d.Failed(ctx, z.Pod, err)
		z.Answer.Result = podresize.Result{Outcome: podresize.Unknown, Message: err.Error()}
	}
	d.audit(z, started)
	if err == nil {
		d.account(z)
	}
	if z.Answer.Pod != nil {
		kube.TrimPod(z.Answer.Pod)
	}
	if o := z.Answer.Outcome; o == podresize.Unknown || o == podresize.Conflict {
		z.Answer.Found, z.Answer.Err = ReadLive(ctx, d.Live, z.Pod)
	}
	return nil
}

// try resizes. Before the first resize of a pod, the first one under other LimitRanges, and the first one
// since admission was seen to change a pod of its namespace, a dry run shows what admission would change:
// what that adds to a pod can never be removed. A pause or another mode that began meanwhile leaves it untried,
// and so does a change by admission that another pod of the namespace showed meanwhile.
func (d *Dispatcher) try(ctx context.Context, z *Resize) (result podresize.Result, tried bool, err error) {
	ranges, namespace := z.Admission.Ranges, z.Pod.Namespace
	number := d.mutations.Number(namespace)
	defer func() {
		if result.Outcome == podresize.WouldMutate {
			d.mutations.Found(namespace, number, z.Checked != "")
			z.Checked = ""
		}
	}()
	if under := fmt.Sprint(number, " ", ranges); z.Checked != under {
		result = d.Resizer.DryRun(ctx, z.Pod, *z.Move)
		if !result.Harmless(ranges != "" && !kube.FullySpecified(z.Pod)) {
			if result.Outcome == podresize.Unknown { // a dry run changes nothing
				result.Outcome, result.WebhookFailed = podresize.Unavailable, true
			}
			return result, true, nil
		}
		z.Checked = under
		if allowed, err := d.allowed(ctx, z); err != nil || !allowed {
			return result, false, err
		}
		if d.mutations.Number(namespace) != number {
			return result, false, nil
		}
	}
	z.Answer.Sent = true
	return d.Resizer.Apply(ctx, z.Pod, *z.Move), true, nil
}

// account tells everything that bounds resizes what came of one.
func (d *Dispatcher) account(z *Resize) {
	now, namespace, result := d.Now(), z.Pod.Namespace, &z.Answer.Result
	switch result.Outcome {
	case podresize.Unknown:
		d.Breakers.Failed(namespace, result.Webhook, now)
	case podresize.Unavailable:
		if result.WebhookFailed {
			d.Breakers.Failed(namespace, result.Webhook, now)
		}
	case podresize.NotAllowed: // here; whether everywhere, the gate finds out
		d.Breakers.Refused(namespace, reasons.PermissionMissing, now)
		d.Gate.Recheck()
	case podresize.NotServed:
		d.Breakers.Refused(namespace, reasons.ResizeNotServed, now)
		d.Gate.Recheck()
	case podresize.Accepted, podresize.WouldMutate, podresize.PolicyRefused, podresize.NoDryRun, podresize.QuotaExceeded:
		d.Breakers.Answered(namespace)
	}
	d.Quotas.settle(z, now)
}

// audit writes the line of one attempt.
func (d *Dispatcher) audit(z *Resize, started time.Time) {
	took, age := d.Now().Sub(started), time.Duration(0)
	if !z.ObservedAt.IsZero() {
		age = max(0, started.Sub(z.ObservedAt))
		d.Metrics.Age.Observe(age.Seconds())
	}
	audit.Write(d.Audit, audit.Attempt{
		Pod: z.Pod, Move: *z.Move, Purpose: string(z.Purpose), Reason: z.Reason, Evidence: z.Evidence, Generation: z.Generation,
		Result: z.Answer.Result, Latency: took, Waited: started.Sub(z.Since), Priority: z.Priority.String(), Age: age,
	})
	d.Metrics.Resizes.WithLabelValues(string(z.Purpose), z.Answer.Outcome.String()).Inc()
	if z.Answer.Outcome == podresize.Accepted {
		d.Metrics.Resized(*z.Move)
	}
}

// ReadLive reads a pod from the API server itself, trimmed as in the cache. It is not found where another has taken
// its name.
func ReadLive(ctx context.Context, live client.Reader, pod *corev1.Pod) (*corev1.Pod, error) {
	fresh := &corev1.Pod{}
	if err := live.Get(ctx, client.ObjectKeyFromObject(pod), fresh); err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if fresh.UID != pod.UID {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	kube.TrimPod(fresh)
	return fresh, nil
}
