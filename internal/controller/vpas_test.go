package controller

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/autoscalers"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

const (
	vpaGroup = "/apis/autoscaling.k8s.io/v1"
	cannot   = "cannot tell which pods a VerticalPodAutoscaler writes"
)

// vpaState is what a whole controller knows of VPAs.
func vpaState(r *Reconciler) autoscalers.VPAState { return r.lookups.vpas.(*autoscalers.VPAs).State() }

// vpa makes a VPA of a Deployment.
func (r *rig) vpa(deployment, mode string) client.Object {
	r.Helper()
	vpa := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"targetRef":    map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
		"updatePolicy": map[string]any{"updateMode": mode},
	}}}
	vpa.SetGroupVersionKind(constraints.VPAKind)
	vpa.SetNamespace(r.namespace)
	vpa.SetName(deployment)
	r.must(r.Client.Create(r.Context(), vpa))
	return vpa
}

// TestVPAsWithAnOldRole: a controller that may not read VPAs resizes no pod but to restore it, and says
// once which right it lacks and what to do. Once it has the right it needs no restart; and if it
// loses it again, the same. That VPAs are unknown until they are listed: TestUnknownUntilListed
// (internal/autoscalers).
func TestVPAsWithAnOldRole(t *testing.T) {
	r := newRig(t)
	r.install(apiserver.CustomResource("verticalpodautoscalers", constraints.VPAKind.Group, constraints.VPAKind.Kind, false))
	r.vpa("tuned", "Recreate")
	tuned, free := r.ownedPod("tuned", "tuned", "200m", "900m"), r.ownedPod("free", "free", "200m", "900m")
	raised := r.pod("raised", "100m", "500m")
	r.live().settlesAt(raised, 2000)
	role := r.oldRole()
	rules := role.Rules
	there, w := r.wired(r.User(t, role.Name).Config())
	var ahead atomic.Int64
	var rec *Reconciler
	there.start(clockAhead(&ahead), func(re *Reconciler) { rec = re })
	unknown := stands(v1alpha1.PhaseNotApplied, reasons.AutoscalerLookupFailed)
	pa := r.allocation(free, "skipped", unknown)
	for _, part := range []string{"may not list verticalpodautoscalers", "config/rbac"} {
		if !strings.Contains(pa.Status.Message, part) {
			t.Errorf("message %q does not say %q", pa.Status.Message, part)
		}
	}
	r.publish(free, "0.000", app(2000))
	before := w.requests(http.MethodGet, vpaGroup)
	r.until("looked for VPAs again", func() (bool, any) { n := w.requests(http.MethodGet, vpaGroup); return n > before+1, n })
	if n := strings.Count(there.log.String(), cannot); n != 1 || strings.Contains(there.log.String(), "not dealt with") {
		t.Errorf("said %d times, want once, and of no pod:\n%s", n, there.log)
	}
	r.limitIs(free, 900, "while VPAs are not known")
	r.mode(r.namespace, kube.ModeRestore)
	r.allocation(raised, "restored", stands(v1alpha1.PhaseRestored, reasons.Restoring))
	r.mode(r.namespace, kube.ModeEnforce)

	vpas := []string{"verticalpodautoscalers"}
	role.Rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{constraints.VPAKind.Group}, Resources: vpas, Verbs: []string{"list"}})
	r.must(r.Client.Update(r.Context(), role))
	r.allocation(free, "still skipped", func(pa *v1alpha1.PodAllocation) bool { return strings.Contains(pa.Status.Message, "may not watch") })
	role.Rules[len(rules)].Verbs = []string{"list", "watch"}
	r.must(r.Client.Update(r.Context(), role))
	r.reaches(free, 2000)
	r.until("left to its VPA", func() (bool, any) { return r.stored(tuned) == nil, r.stored(tuned) })

	role.Rules = rules
	r.must(r.Client.Update(r.Context(), role))
	r.until("VPAs are unknown", func() (bool, any) {
		ahead.Add(int64(time.Second)) // rights are checked once a minute
		return vpaState(rec) == autoscalers.VPAsUnknown, vpaState(rec)
	})
	r.publish(free, "0.000", app(3000))
	r.allocation(free, "skipped", unknown)
	r.limitIs(free, 2000, "as before the right was lost")
}

// oldRole makes a user of the role that the controller ships with, without the right to VPAs.
func (r *rig) oldRole() *rbacv1.ClusterRole {
	r.Helper()
	data, err := os.ReadFile("../../config/rbac/controller_role.yaml")
	r.must(err)
	documents := bytes.Split(data, []byte("\n---\n"))
	all, own := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	r.must(yaml.UnmarshalStrict(documents[0], all))
	r.must(yaml.UnmarshalStrict(documents[1], own))
	name := "old-" + r.config.Namespace
	all.Rules = slices.DeleteFunc(all.Rules, func(p rbacv1.PolicyRule) bool { return slices.Contains(p.APIGroups, constraints.VPAKind.Group) })
	user := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	everywhere := &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, Subjects: user}
	here := &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: user}
	own.Namespace, here.Namespace = r.config.Namespace, r.config.Namespace
	for _, o := range []client.Object{all, own, everywhere, here} {
		o.SetName(name)
		r.CreateUntilEnd(r, o)
	}
	return all
}

// TestVPAPodsAreLeftAlone: a pod whose CPU a VPA writes goes back to its declared limits and is left to
// it, also if VPAs are installed later. However often a node is looked at, the API server is not asked
// for VPAs.
func TestVPAPodsAreLeftAlone(t *testing.T) {
	r := newRig(t)
	there, w := r.wired(nil)
	var rec *Reconciler
	there.start(func(re *Reconciler) { rec = re })
	pod := r.ownedPod("web", "web", "200m", "900m")
	r.at(pod, 2000)

	remove := r.install(apiserver.CustomResource("verticalpodautoscalers", constraints.VPAKind.Group, constraints.VPAKind.Kind, false))
	vpa := r.vpa("web", "Off")
	r.until("VPAs are watched", func() (bool, any) { return vpaState(rec) == autoscalers.VPAsWatched, "not watched" })
	before := w.requests(http.MethodGet, "verticalpodautoscalers")
	r.limitIs(pod, 2000, "under a VPA that writes nothing")
	left := func(m string) {
		t.Helper()
		r.merge(vpa, `{"spec":{"updatePolicy":{"updateMode":"`+m+`"}}}`)
		r.until("restored and forgotten under "+m, func() (bool, any) { return r.limit(pod) == 900 && r.stored(pod) == nil, r.limit(pod) })
	}
	left("Initial")
	r.merge(vpa, `{"spec":{"updatePolicy":{"updateMode":"Off"}}}`)
	r.at(pod, 2000)
	left("Recreate")
	if n := w.requests(http.MethodGet, "verticalpodautoscalers") - before; n != 0 {
		t.Errorf("%d lists of VPAs while nodes were looked at, want none", n)
	}
	remove()
	r.until("VPAs are gone", func() (bool, any) { return vpaState(rec) == autoscalers.NoVPAs, "still there" })
	r.at(pod, 2000)
}

// rollout is a custom scale target.
var rollout = kube.Target{APIVersion: "example.mbcas.io/v1", Kind: "Rollout", Name: "shop"}

// TestAFailedLookupIsRepeated: a node is reconciled again, without another cause, until the scale
// subresource of the target of an HPA answers.
func TestAFailedLookupIsRepeated(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		answer := errLost
		scales := interceptor.NewClient(r.Client, interceptor.Funcs{SubResourceGet: func(
			_ context.Context, _ client.Client, _ string, _, scale client.Object, _ ...client.SubResourceGetOption,
		) error {
			scale.(*unstructured.Unstructured).Object["status"] = map[string]any{"selector": "app=shop"}
			return answer
		}})
		l.lookups.scaleTargets = autoscalers.NewScaleTargets(scales, l.Log, l.Reconciler.Now)
		r.must(r.Client.Create(t.Context(), hpa(r.namespace, "shop", rollout, 100)))
		pod := r.ownedPod("shop", "shop", "200m", "900m")
		l.settles(pod, v1alpha1.PhaseNotApplied, reasons.AutoscalerLookupFailed)
		result, err := l.once()
		if r.must(err); result.RequeueAfter == 0 || result.RequeueAfter > failedRetry {
			t.Errorf("reconciled again after %v, want at most %v", result.RequeueAfter, failedRetry)
		}
		answer = nil
		l.pass(failedRetry)
		l.look(pod)
		if c := r.publishedConstraints(pod); c == nil || c.NoDecrease != string(reasons.ScaledByHPA) {
			t.Errorf("constraints %+v, want no decrease because of %s", c, reasons.ScaledByHPA)
		}
	})
}

// TestATargetThatDoesNotAnswer: the pods of a custom scale target are those that its scale subresource
// selects. While that has never answered, the pods that an HPA of the target would protect are not
// resized. That its node is reconciled again by itself: TestAFailedLookupIsRepeated.
func TestATargetThatDoesNotAnswer(t *testing.T) {
	r := newRig(t)
	r.install(apiserver.CustomResource("rollouts", "example.mbcas.io", "Rollout", true))
	target := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": rollout.APIVersion, "kind": rollout.Kind, "metadata": map[string]any{"namespace": r.namespace, "name": rollout.Name},
		"spec": map[string]any{"replicas": int64(1)},
	}}
	r.must(r.Client.Create(r.Context(), target))
	target.Object["status"] = map[string]any{"replicas": int64(1), "selector": "app=shop"}
	r.must(r.Client.Status().Update(r.Context(), target))
	r.must(r.Client.Create(r.Context(), hpa(r.namespace, "shop", rollout, 100)))

	there, w := r.wired(nil)
	w.fail("/apis/example.mbcas.io/v1/namespaces/" + r.namespace + "/rollouts/shop/scale")
	var ahead atomic.Int64
	there.start(there.hurries(&ahead))
	pod := r.ownedPod("shop", "shop", "200m", "900m")
	pa := r.allocation(pod, "skipped", stands(v1alpha1.PhaseNotApplied, reasons.AutoscalerLookupFailed))
	want := reasons.AutoscalerLookupFailed.Sentence() +
		": the pods of HorizontalPodAutoscaler shop, by its target Rollout/shop: no answer of the API server"
	if pa.Status.Message != want {
		t.Errorf("message %q, want %q", pa.Status.Message, want)
	}
	decide := func() { r.publish(pod, "0.500", app(220)) } // which has the node looked at
	asked := w.requests(http.MethodGet, "/scale")
	r.until("asked again", func() (bool, any) {
		decide()
		n := w.requests(http.MethodGet, "/scale")
		return n > asked, n
	})
	r.limitIs(pod, 900, "while it is not known that an HPA scales the pod")
	w.fail("")
	var c *v1alpha1.Constraints
	r.until("left to its HPA", func() (bool, any) {
		decide()
		c = r.publishedConstraints(pod)
		return c != nil && c.NoDecrease == string(reasons.ScaledByHPA), c
	})
	if *c.Containers[0].Floor != 240 {
		t.Errorf("constraints %+v", c)
	}
	r.limitIs(pod, 900, "as before")
}

// TestAVPAWakesItsNamespace: a VPA that changes has the nodes with pods of its namespace looked at, and no others,
// unless so many have changed that all are.
func TestAVPAWakesItsNamespace(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l := r.live()
		elsewhere, namespace := r.Kubelet(t, "elsewhere"), r.Namespace(t)
		r.pod("web", "100m", "500m")
		elsewhere.Run(t, apiserver.Pod(namespace, "web", apiserver.Container("app", "100m", "500m")))
		for namespace, node := range map[string]string{r.namespace: r.kubelet.Node, namespace: elsewhere.Node} {
			l.requeue.Namespace(namespace)
			var names []string
			for _, q := range l.nodesOf(t.Context(), (<-l.requeue.Some).Object) {
				names = append(names, q.Name)
			}
			if !slices.Equal(names, []string{node}) {
				t.Errorf("nodes %v are looked at, want %s", names, node)
			}
		}
		if len(l.requeue.All) != 0 {
			t.Error("all nodes are looked at")
		}
		for range cap(l.requeue.Some) + 1 {
			l.requeue.Namespace(namespace)
		}
		if len(l.requeue.All) != 1 {
			t.Error("a change that found no room is forgotten")
		}
	})
}
