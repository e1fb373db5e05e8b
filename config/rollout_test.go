package config_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// rollout is the DaemonSet of the agents on nodes of its own. The kubelets are the test's: pods of a build whose
// name begins with bad never become Ready.
type rollout struct {
	*testing.T
	e         *environment
	agents    *appsv1.DaemonSet
	available time.Time
}

// builds lets the kubelets do their part, and counts the pods by their build.
func (r *rollout) builds() map[string]int {
	r.Helper()
	ctx, count := context.Background(), map[string]int{}
	var pods corev1.PodList
	must.Succeed(r.T, r.e.Client.List(ctx, &pods, client.InNamespace(r.agents.Namespace)))
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp != nil {
			must.Succeed(r.T, client.IgnoreNotFound(r.e.Client.Delete(ctx, p, client.GracePeriodSeconds(0))))
			continue
		}
		build := p.Spec.Containers[0].Image
		count[build]++
		if p.Spec.NodeName == "" {
			terms := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			target := corev1.ObjectReference{Kind: "Node", Name: terms[0].MatchFields[0].Values[0]}
			must.Succeed(r.T, r.e.Client.SubResource("binding").Create(ctx, p, &corev1.Binding{Target: target}))
			continue
		}
		if len(p.Status.Conditions) == 0 || p.Status.Phase != corev1.PodRunning {
			before := client.MergeFrom(p.DeepCopy())
			p.Status.Phase = corev1.PodRunning
			ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(r.available)}
			if strings.HasPrefix(build, "bad") {
				ready.Status = corev1.ConditionFalse
			}
			p.Status.Conditions = []corev1.PodCondition{ready}
			must.Succeed(r.T, client.IgnoreNotFound(r.e.Client.Status().Patch(ctx, p, before)))
		}
	}
	return count
}

// becomes rolls a build out, and waits until the pods are of these builds and the DaemonSet counts the
// good ones as available: of the others, its controller replaces as many as there are.
func (r *rollout) becomes(build string, want map[string]int) {
	r.Helper()
	patch := client.MergeFrom(r.agents.DeepCopy())
	r.agents.Spec.Template.Spec.Containers[0].Image = build
	must.Succeed(r.T, r.e.Client.Patch(r.Context(), r.agents, patch))
	good := 0
	for of, n := range want {
		if !strings.HasPrefix(of, "bad") {
			good += n
		}
	}
	apiserver.Eventually(r, "pods are "+fmt.Sprint(want), func() (bool, any) {
		have := r.builds()
		now := &appsv1.DaemonSet{}
		must.Succeed(r.T, r.e.Client.Get(r.Context(), client.ObjectKeyFromObject(r.agents), now))
		done := fmt.Sprint(have) == fmt.Sprint(want) && int(now.Status.NumberAvailable) == good
		return done, fmt.Sprint(have, ", available: ", now.Status.NumberAvailable)
	})
}

// TestABadBuildStops: as the real controller of DaemonSets carries a rollout out, a build whose agents do not become
// Ready reaches a tenth of the nodes, the next bad one no more of them, and a good one replaces all.
func TestABadBuildStops(t *testing.T) {
	e := open(t)
	const nodes = 20
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rollout"}}
	e.CreateUntilEnd(t, ns)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "mbcas-agent"}}
	e.create(t, account)
	for i := range nodes {
		e.CreateUntilEnd(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("rollout-%02d", i), Labels: map[string]string{"rollout": "yes"},
		}})
	}
	agents := one[*appsv1.DaemonSet](t, render(t, "base"), "mbcas-agent")
	agents.Namespace, agents.Spec.Template.Spec.NodeSelector = ns.Name, map[string]string{"rollout": "yes"}
	e.CreateUntilEnd(t, agents)
	e.Controllers(t, "daemonset-controller")
	r := &rollout{T: t, e: e, agents: agents, available: time.Now().Add(-time.Hour)}
	r.becomes("good", map[string]int{"good": nodes})
	r.becomes("bad-1", map[string]int{"good": 18, "bad-1": 2})
	r.becomes("bad-2", map[string]int{"good": 18, "bad-2": 2})
	r.becomes("good-2", map[string]int{"good-2": nodes})
	if agents.Spec.MinReadySeconds < 10 {
		t.Errorf("an agent is available after %d s, before a round that hangs ends it", agents.Spec.MinReadySeconds)
	}
	controller := one[*appsv1.Deployment](t, render(t, "base"), "mbcas-controller").Spec
	if s := controller.Strategy.RollingUpdate; s == nil || s.MaxUnavailable.IntValue() != 0 || controller.MinReadySeconds == 0 {
		t.Errorf("a controller that does not become Ready replaces one that is: %+v", controller.Strategy)
	}
}
