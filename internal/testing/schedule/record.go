package schedule

import (
	"maps"
	"net/http"
	"reflect"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
	"github.com/mbcas/mbcas/internal/testing/faults"
	"github.com/mbcas/mbcas/internal/testing/history"
	"github.com/mbcas/mbcas/internal/testing/memapi"
)

// stored notes a change of the API server's.
func (w *world) stored(e memapi.Event) {
	p := w.life(e.Actor)
	switch e.Resource {
	case "pods":
		w.storedPod(e, p)
		return
	case "leases":
		if e.After == nil {
			return
		}
		if node, ok := kube.AgentLeaseNode(e.After); ok {
			w.note(history.Event{Kind: history.Renewed, Node: node})
			return
		}
	case "namespaces":
		for _, pod := range memapi.All[*corev1.Pod](w.api) {
			if pod.Namespace == e.Key.Name {
				w.note(history.Event{Kind: history.Told, Pod: string(pod.UID)})
			}
		}
	case "podallocations":
		w.storedAllocation(e, p)
		return
	case "configmaps":
		if node, ok := strings.CutPrefix(e.Key.Name, kube.LedgerPrefix); ok && p != nil {
			w.storedLedger(e, p)
			return
		} else if ok && e.After == nil {
			w.note(history.Event{Kind: history.Forgotten, Node: node})
		}
	}
	if p != nil {
		w.note(history.Event{Kind: history.Wrote, By: p.life, Text: e.Verb + " " + e.Resource + " " + e.Key.String()})
	}
}

// life is the process that an actor is; nil: it is none.
func (w *world) life(actor string) *process {
	if p := w.processes[actor[:1]]; p != nil && strings.HasPrefix(actor, p.name) {
		if p.life == actor {
			return p
		}
		return &process{world: w, name: p.name, life: actor, cache: p.cache} // one before, whose request comes late
	}
	return nil
}

func (w *world) storedPod(e memapi.Event, p *process) {
	before, _ := e.Before.(*corev1.Pod)
	after, _ := e.After.(*corev1.Pod)
	switch {
	case before == nil:
		w.note(history.Event{
			Kind: history.Created, Namespace: after.Namespace, Pod: string(after.UID), Node: after.Spec.NodeName,
			Limits: containerLimits(after), Template: metav1.GetControllerOf(after) != nil,
		})
	case after == nil:
		w.note(history.Event{Kind: history.Gone, Pod: string(before.UID)})
	case e.Sub == "resize" && e.Actor == uninstaller:
		w.note(history.Event{
			Kind: history.Uninstalled, Pod: string(after.UID), Before: containerLimits(before), Limits: containerLimits(after), NotRunning: down(before),
		})
	case e.Sub == "resize" && p == nil:
		w.note(history.Event{Kind: history.External, Pod: string(after.UID), Before: containerLimits(before), Limits: containerLimits(after)})
	case e.Sub == "resize":
		w.note(history.Event{
			Kind: history.Resized, By: p.life, Pod: string(after.UID), Node: after.Spec.NodeName,
			Before: containerLimits(before), Limits: containerLimits(after), NotRunning: down(before),
			Guarded: e.UID == before.UID && e.Version == before.ResourceVersion, Other: others(before, after),
			Mutated: w.webhooks[after.Namespace] == "mutate",
		})
	case p != nil:
		w.note(history.Event{Kind: history.Wrote, By: p.life, Text: e.Verb + " pod " + e.Key.String()})
	default:
		if progress, _ := podresize.Check(after, kube.ByName(kube.Limits(after)), after.Generation); progress != actuator.InProgress {
			w.note(history.Event{Kind: history.Actuated, Pod: string(after.UID)})
		}
	}
}

// others names what a resize changed beside CPU limits; "" for nothing.
func others(before, after *corev1.Pod) string {
	b, a := before.DeepCopy(), after.DeepCopy()
	for _, pod := range []*corev1.Pod{b, a} {
		for _, c := range kube.Containers(pod) {
			delete(c.Spec.Resources.Limits, corev1.ResourceCPU)
		}
	}
	switch {
	case !equality.Semantic.DeepEqual(b.Spec, a.Spec):
		return "more than CPU limits"
	case !maps.Equal(b.Labels, a.Labels) || !maps.Equal(b.Annotations, a.Annotations) || !reflect.DeepEqual(b.Finalizers, a.Finalizers):
		return "metadata"
	case !equality.Semantic.DeepEqual(b.Status, a.Status):
		return "the status"
	}
	return ""
}

func (w *world) storedAllocation(e memapi.Event, p *process) {
	before, _ := e.Before.(*v1alpha1.PodAllocation)
	after, _ := e.After.(*v1alpha1.PodAllocation)
	switch {
	case p == nil && after == nil:
		w.note(history.Event{Kind: history.Forgotten, Pod: string(before.Spec.PodRef.UID)})
	case p == nil:
		stamp := time.Time{}
		if after.Spec.Decision != nil {
			stamp = after.Spec.Decision.ObservedAt.Time
		}
		w.note(history.Event{Kind: history.Published, Pod: string(after.Spec.PodRef.UID), Stamp: stamp})
	case after != nil && len(after.Status.DeclaredLimits) > 0 &&
		(before == nil || !kube.SameLimits(before.Status.DeclaredLimits, after.Status.DeclaredLimits)):
		w.note(history.Event{
			Kind: history.Recorded, By: p.life, Pod: string(after.Spec.PodRef.UID), Limits: kube.ByName(after.Status.DeclaredLimits),
			Reason: after.Status.Reason,
		})
	default:
		n := history.Event{Kind: history.Wrote, By: p.life, Pod: e.Key.Name, Text: e.Verb + " podallocation " + e.Sub + " of " + e.Key.String()}
		if after != nil {
			n.Reason = after.Status.Reason
			n.Text += ": " + string(after.Status.Phase) + " " + n.Reason
		}
		w.note(n)
	}
}

func (w *world) storedLedger(e memapi.Event, p *process) {
	before, _ := e.Before.(*corev1.ConfigMap)
	after, _ := e.After.(*corev1.ConfigMap)
	for uid, line := range after.Data {
		entry, ok := restore.ReadEntry(after, types.UID(uid))
		if ok && (before == nil || before.Data[uid] != line) {
			w.note(history.Event{Kind: history.Ledgered, By: p.life, Pod: uid, Limits: kube.ByName(entry.Limits)})
		}
	}
}

// view is what the process sees now of what bounds a pod.
func (p *process) view(pod *corev1.Pod) history.View {
	ctx := p.world.context()
	v := history.View{Requests: history.Limits{}, InForce: history.Limits{}}
	for _, c := range kube.Containers(pod) {
		v.Requests[c.Spec.Name], v.InForce[c.Spec.Name] = c.Request(), c.InForce()
	}
	var ns corev1.Namespace
	if p.cache.Get(ctx, client.ObjectKey{Name: pod.Namespace}, &ns) == nil {
		v.Enforced = ns.Labels[kube.ModeLabel] == string(kube.ModeEnforce)
	}
	if state, err := restore.ReadState(ctx, p.cache, p.world.Namespace); err == nil {
		v.Paused = state.Paused()
	}
	var node corev1.Node
	if p.cache.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, &node) == nil {
		v.Node = kube.Milli(node.Status.Allocatable[corev1.ResourceCPU])
	}
	var quotas corev1.ResourceQuotaList
	if p.cache.List(ctx, &quotas, client.InNamespace(pod.Namespace)) == nil {
		v.Quota = len(quotas.Items) > 0
	}
	var hpas autoscalingv2.HorizontalPodAutoscalerList
	var pdbs policyv1.PodDisruptionBudgetList
	if p.cache.List(ctx, &hpas) == nil && p.cache.List(ctx, &pdbs) == nil {
		v.Most, _ = kube.MaxCPU(pod) // one that cannot be read is none
		v.Keep = pod.Labels["app"] == "web" && len(hpas.Items)+len(pdbs.Items) > 0
	}
	return v
}

// answered notes what the process learns from the answer to a request.
func (p *process) answered(q *http.Request) {
	c := faults.CallOf(q)
	for _, pa := range memapi.All[*v1alpha1.PodAllocation](p.world.api) {
		if pa.Name == c.Name {
			p.seen(memapi.Event{After: pa})
		}
	}
	if lease := memapi.Get[*coordinationv1.Lease](p.world.api, p.world.Namespace, c.Name); lease != nil {
		p.seen(memapi.Event{After: lease})
	}
}

// seen notes that the process sees a renewal or a decision.
func (p *process) seen(e memapi.Event) {
	var name string
	n := history.Event{Kind: history.Shown, By: p.life}
	switch o := e.After.(type) {
	case *coordinationv1.Lease:
		node, ok := kube.AgentLeaseNode(o)
		if !ok || o.Spec.RenewTime == nil {
			return
		}
		name, n.Node, n.Stamp = node, node, o.Spec.RenewTime.Time
	case *v1alpha1.PodAllocation:
		if o.Spec.Decision == nil {
			return
		}
		name, n.Stamp, n.Node = string(o.Spec.PodRef.UID), o.Spec.Decision.ObservedAt.Time, o.Spec.NodeName
		n.Pod = name
	default:
		return
	}
	last, known := p.shown[name]
	if known && last.Equal(n.Stamp) {
		return
	}
	n.First, p.shown[name] = !known, n.Stamp
	p.world.note(n)
}

// admit is the admission of resizes.
func (w *world) admit(_, after *corev1.Pod) *apierrors.StatusError {
	switch w.webhooks[after.Namespace] {
	case "down":
		return memapi.FailedWebhook()
	case "deny":
		return memapi.DeniedByWebhook()
	case "mutate":
		after.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("64Mi")
	}
	return nil
}

// hangs says whether a webhook keeps a resize from being answered.
func (w *world) hangs(q *http.Request) bool {
	for ns, how := range w.webhooks {
		if how == "hang" && strings.Contains(q.URL.Path, "/namespaces/"+ns+"/pods/") {
			return true
		}
	}
	return false
}
