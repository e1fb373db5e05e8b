package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/doctor"
	"github.com/mbcas/mbcas/internal/cli/format"
)

// until asks again and again what is missing, until nothing is. It prints each answer once. The error at the end of the
// time is the last answer. That the API server does not answer for a while is an answer, too.
func (r *run) until(ctx context.Context, most time.Duration, missing func(context.Context) (string, error)) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	said := ""
	for end := r.Now().Add(most); ; {
		text, err := missing(ctx)
		if err != nil && ctx.Err() == nil && transient(err) {
			text, err = format.OneLine(err.Error()), nil
		}
		if err != nil || text == "" {
			return err
		}
		if r.Now().After(end) {
			return lateError{text, most}
		}
		if text != said {
			r.say("waiting: %s", text)
			said = text
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted while %s: %w; what is done stays, and the command can be repeated", text, ctx.Err())
		case <-tick.C:
		}
	}
}

// lateError is that something is missing after the time for it.
type lateError struct {
	missing string
	after   time.Duration
}

func (e lateError) Error() string { return fmt.Sprintf("%s after %v", e.missing, e.after) }

// waitReady waits until each agent and each replica of the controller runs as the manifests say.
func (r *run) waitReady(ctx context.Context) error {
	err := r.until(ctx, r.o.Wait, r.notReady)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w; Kubernetes goes on with it. See what is wrong with: kubectl mbcas doctor", err)
	}
	return err
}

// notReady says what is not ready yet, and why; "": all is.
func (r *run) notReady(ctx context.Context) (string, error) {
	ds, err := cluster.Get(ctx, r.Client, &appsv1.DaemonSet{}, r.key(cluster.AgentName))
	if err != nil {
		return "", err
	}
	d, err := cluster.Get(ctx, r.Client, &appsv1.Deployment{}, r.key(cluster.ControllerName))
	if err != nil {
		return "", err
	}
	if ds == nil || d == nil {
		return "", fmt.Errorf("another client has deleted DaemonSet %s or Deployment %s of namespace %s; install again",
			cluster.AgentName, cluster.ControllerName, r.System)
	}
	agents, replicas := ds.Status, d.Status
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	haveAgents := min(agents.UpdatedNumberScheduled, agents.NumberReady)
	haveReplicas := min(replicas.UpdatedReplicas, replicas.AvailableReplicas)
	agentsDone := agents.ObservedGeneration >= ds.Generation && haveAgents == agents.DesiredNumberScheduled
	replicasDone := replicas.ObservedGeneration >= d.Generation && haveReplicas == wanted && replicas.Replicas == wanted
	if agentsDone && replicasDone {
		return "", nil
	}
	pods := &corev1.PodList{}
	if err := r.Client.List(ctx, pods, client.InNamespace(r.System)); err != nil {
		return "", fmt.Errorf("list pods of namespace %s: %w", r.System, err)
	}
	why := ""
	if !agentsDone {
		why = doctor.WhyNotReady(pods.Items, cluster.AgentName)
	}
	if why == "" && !replicasDone {
		why = doctor.WhyNotReady(pods.Items, cluster.ControllerName)
	}
	return fmt.Sprintf("%d of %d agents and %d of %d replicas of the controller are ready%s", haveAgents,
		agents.DesiredNumberScheduled, haveReplicas, wanted, why), nil
}

func (r *run) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: r.System, Name: name}
}

// nudgeAfter is for how long the API server may take to delete a CustomResourceDefinition, and then again between two
// writes to it.
const nudgeAfter = 10 * time.Second

// waitGone waits until the API server has none of the objects any more.
func (r *run) waitGone(ctx context.Context, objects []*unstructured.Unstructured, most time.Duration) error {
	since := map[string]time.Time{} // a CustomResourceDefinition was seen being deleted, or was written to
	err := r.until(ctx, most, func(ctx context.Context) (string, error) {
		for _, o := range objects {
			u := o.DeepCopy()
			err := r.Client.Get(ctx, client.ObjectKeyFromObject(o), u)
			switch {
			case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			case err != nil:
				return "", explained("read", o, err)
			default:
				r.nudge(ctx, u, since)
				return nameOf(o) + " is still there" + terminating(u), nil
			}
		}
		return "", nil
	})
	if late := (lateError{}); errors.As(err, &late) {
		return fmt.Errorf("%w, though it was deleted; its status and its finalizers say what it waits for, and kubectl mbcas "+
			"uninstall can be repeated", err)
	}
	return err
}

// nudge writes the time into an annotation of a CustomResourceDefinition that is long deleted. Where the API server could
// not delete its objects at the first try, such as soon after an upgrade, its next try may meet its own last write as a
// conflict; it then waits for a change other than its own, or for minutes (apiextensions-apiserver,
// pkg/controller/finalizer/crd_finalizer.go). A write that fails is no error: the object is waited for as before.
func (r *run) nudge(ctx context.Context, u *unstructured.Unstructured, since map[string]time.Time) {
	if u.GetKind() != crdKind || u.GetDeletionTimestamp() == nil {
		return
	}
	now := r.Now()
	seen, known := since[u.GetName()]
	if known && now.Sub(seen) < nudgeAfter {
		return
	}
	since[u.GetName()] = now
	if known {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"mbcas.io/deletion-seen":%q}}}`, now.UTC().Format(time.RFC3339))
		_ = r.Client.Patch(ctx, u, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
}

// terminating is what the API server says of the deletion of a CustomResourceDefinition.
func terminating(u *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Terminating" && c["message"] != nil {
			return fmt.Sprintf(" (%v: %v)", c["reason"], c["message"])
		}
	}
	return ""
}
