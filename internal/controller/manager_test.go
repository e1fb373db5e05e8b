package controller

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// The tests here run the controller as it ships: with caches, watches and a queue.

func TestFollowsEvents(t *testing.T) {
	r := newRig(t)
	r.start()
	pod := r.pod("web", "100m", "500m")
	r.allocation(pod, "made", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
	r.publish(pod, "0.000", app(2000))
	made := r.allocation(pod, "applied", stands(v1alpha1.PhaseApplied, reasons.Settled))

	r.must(r.Client.Delete(r.Context(), made))
	r.allocation(pod, "made again", func(pa *v1alpha1.PodAllocation) bool {
		return pa.UID != made.UID && kube.SameLimits(pa.Status.DeclaredLimits, []v1alpha1.ContainerLimit{app(500)})
	})
	if got := r.limit(pod); got != 2000 {
		t.Errorf("limit %v after the allocation was deleted, want 2000m as before", got)
	}

	r.label(pod, "false")
	r.until("back at 500m and without allocation", func() (bool, any) { return r.stored(pod) == nil && r.limit(pod) == 500, r.limit(pod) })
	r.label(pod, "true")
	r.allocation(pod, "made once more", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
	r.publish(pod, "0.000", app(2000))
	r.allocation(pod, "applied again", stands(v1alpha1.PhaseApplied, reasons.Settled))

	r.mode(r.namespace, kube.ModeRestore)
	r.allocation(pod, "restored", stands(v1alpha1.PhaseRestored, reasons.Restoring))
	if got := r.limit(pod); got != 500 {
		t.Errorf("limit %v in mode restore, want 500m", got)
	}
	r.mode(r.namespace, kube.ModeEnforce)
	r.allocation(pod, "applied in mode enforce", stands(v1alpha1.PhaseApplied, reasons.Settled))

	r.resizeAs("somebody", pod, "700m")
	r.allocation(pod, "held", stands(v1alpha1.PhaseNotApplied, reasons.ExternalChange))
	r.must(r.Client.Delete(r.Context(), pod, client.GracePeriodSeconds(0)))
	r.must(r.Client.DeleteAllOf(r.Context(), &v1alpha1.PodAllocation{}, client.InNamespace(r.namespace)))
}

func TestTheCRDMayVanish(t *testing.T) {
	r := newRig(t)
	r.start()
	pod := r.pod("web", "100m", "500m")
	r.allocation(pod, "made", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
	r.publish(pod, "0.000", app(2000))
	r.allocation(pod, "applied", stands(v1alpha1.PhaseApplied, reasons.Settled))

	scheme := runtime.NewScheme()
	r.must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(r.Config, client.Options{Scheme: scheme})
	r.must(err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = "podallocations.allocation.mbcas.io"
	r.must(c.Delete(r.Context(), crd))
	reinstall := func() {
		_, err := envtest.InstallCRDs(r.Config, envtest.CRDInstallOptions{Paths: []string{"../../config/crd"}, MaxTime: time.Minute})
		if err != nil {
			t.Errorf("install the CRD again: %v", err)
		}
	}
	t.Cleanup(reinstall) // the next tests need it
	r.until("the CRD is gone", func() (bool, any) {
		err := c.Get(r.Context(), client.ObjectKeyFromObject(crd), crd)
		return client.IgnoreNotFound(err) == nil && err != nil, err
	})
	r.resizable(pod)
	reinstall()
	pa := r.allocation(pod, "made again", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
	declaredIs(t, pa, app(500))
	if got := r.limit(pod); got != 2000 || r.counter.resizes() != 1 {
		t.Errorf("limit %v after %d resizes, want the 2000m of the one before", got, r.counter.resizes())
	}
}

// resizable fails the test if the pod was touched.
func (r *rig) resizable(pod *corev1.Pod) {
	r.Helper()
	if got := r.limit(pod); got != 2000 {
		r.Errorf("limit %v, want 2000m", got)
	}
}

func TestRestoreAll(t *testing.T) {
	r := newRig(t)
	stop := r.start()
	raised := r.pod("raised", "100m", "500m")
	foreign := r.pod("foreign", "100m", "500m")
	unmoved := r.pod("unmoved", "100m", "500m")
	for _, pod := range []*corev1.Pod{raised, foreign, unmoved} {
		r.allocation(pod, "made", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
	}
	for _, pod := range []*corev1.Pod{raised, foreign} {
		r.publish(pod, "0.000", app(2000))
		r.allocation(pod, "applied", stands(v1alpha1.PhaseApplied, reasons.Settled))
	}
	r.lead()
	r.resizeAs("somebody", foreign, "700m")
	r.allocation(foreign, "held", stands(v1alpha1.PhaseNotApplied, reasons.ExternalChange))

	var out bytes.Buffer
	cluster := &restore.Cluster{
		Client: r.Client, Resize: podresize.New(r.Client, kube.FieldManager), Namespace: r.config.Namespace, Out: &out,
		Parallel: 4, Now: time.Now, Interval: 20 * time.Millisecond,
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := cluster.Restore(ctx); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for pod, want := range map[*corev1.Pod]int{raised: 500, foreign: 700, unmoved: 500} {
		if got := r.limit(pod); got != milli(want) {
			t.Errorf("%s: limit %v, want %dm", pod.Name, got, want)
		}
		if !strings.Contains(out.String(), "/"+pod.Name+": at its declared limits, app=") {
			t.Errorf("%s is not in the list:\n%s", pod.Name, out.String())
		}
	}
	if strings.Contains(out.String(), "did not answer") {
		t.Errorf("the running controller did not answer:\n%s", out.String())
	}
	// The controller that still runs leaves them there.
	r.publish(raised, "0.000", app(3000))
	later := r.pod("later", "100m", "500m")
	r.allocation(later, "made while paused", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
	if got := r.limit(raised); got != 500 {
		t.Errorf("limit %v: moved again after restore", got)
	}
	r.must(r.Client.Delete(r.Context(), later, client.GracePeriodSeconds(0)))
	apiserver.WaitGone(t, r.Client, later)
	stop()

	// Without a controller, without allocations and with a kubelet that does not follow, it says what it could not do.
	r.must(restore.Resume(r.Context(), r.Client, r.config.Namespace, kube.FieldManager))
	r.unlead()
	l := r.live(0, false)
	r.publish(raised, "0.000", app(2500))
	l.settles(raised, v1alpha1.PhaseApplied, reasons.Settled)
	r.vanish(raised, theAllocation)
	r.kubelet.Answer(raised, apiserver.Ignore)
	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	out.Reset()
	err := cluster.Restore(ctx)
	if err == nil || !strings.Contains(err.Error(), "1 of 4 pods") || !strings.Contains(err.Error(), r.namespace+"/raised: ") {
		t.Errorf("error %v\n%s", err, out.String())
	}
	if got := r.limit(raised); got != 500 {
		t.Errorf("limit %v, want the declared 500m in the spec", got)
	}
}

// lead writes the leader's Lease, as a controller with leader election does.
func (r *rig) lead() {
	r.Helper()
	holder := "controller-1"
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name, lease.Spec.HolderIdentity = r.config.Namespace, kube.LeaderLease, &holder
	r.must(r.Client.Create(r.Context(), lease))
}

func (r *rig) unlead() {
	r.Helper()
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = r.config.Namespace, kube.LeaderLease
	r.must(r.Client.Delete(r.Context(), lease))
}

func TestTemplateOfARevision(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	// The template of the StatefulSet is newer (900m) than the revision that the pod was made from (600m).
	set := &appsv1.StatefulSet{}
	set.Namespace, set.Name, set.UID = r.namespace, "db", "11111111-2222-3333-4444-555555555555"
	rev := &appsv1.ControllerRevision{}
	rev.Namespace, rev.Name = r.namespace, "db-7d9f"
	yes := true
	owner := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set.Name, UID: set.UID, Controller: &yes}}
	rev.OwnerReferences = owner
	rev.Data.Raw = []byte(`{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"100m"},"limits":{"cpu":"600m"}}}]}}}}`)
	r.must(r.Client.Create(r.Context(), rev))
	for _, label := range []string{"db-7d9f", "7d9f"} {
		pod := r.pod("db-"+label, "100m", "500m")
		pod.OwnerReferences = owner
		pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: label}
		limits, err := l.template(t.Context(), pod)
		if err != nil || limits["app"] != 600 {
			t.Errorf("label %s: template limits %v, %v: want app=600m", label, limits, err)
		}
	}
}

// slowStatus is a client whose writes of status hang, once they are to, until the test ends.
type slowStatus struct {
	client.Client
	hang    *atomic.Bool
	hanging *atomic.Int64
}

func (c slowStatus) Status() client.SubResourceWriter { return slowWriter{c.Client.Status(), c} }

type slowWriter struct {
	client.SubResourceWriter
	slow slowStatus
}

func (w slowWriter) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if w.slow.hang.Load() {
		w.slow.hanging.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}
	return w.SubResourceWriter.Patch(ctx, o, p, opts...)
}

// TestPauseIsAcknowledgedBeforeAnyStatus: the acknowledgement of a pause waits for no write about a pod, and a pause causes none.
func TestPauseIsAcknowledgedBeforeAnyStatus(t *testing.T) {
	r := newRig(t)
	r.config.Nodes = 1
	var hang atomic.Bool
	var hanging atomic.Int64
	r.start(func(rec *Reconciler) { rec.Client = slowStatus{rec.Client, &hang, &hanging} })
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b", "c", "d"} {
		pods = append(pods, r.pod(name, "100m", "500m"))
	}
	for _, pod := range pods {
		r.allocation(pod, "made", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
		r.publish(pod, "0.000", app(2000))
	}
	for _, pod := range pods {
		r.allocation(pod, "applied", stands(v1alpha1.PhaseApplied, reasons.Settled))
	}
	hang.Store(true)
	r.must(restore.Pause(r.Context(), r.Client, r.config.Namespace, kube.PluginFieldManager, "incident"))
	r.until("acknowledged", func() (bool, any) {
		state, err := restore.ReadState(r.Context(), r.Client, r.config.Namespace)
		r.must(err)
		return state.Acknowledged == "incident", state
	})
	if n := hanging.Load(); n != 0 {
		t.Errorf("%d statuses were written because of the pause, want none", n)
	}
	hang.Store(false)
	r.must(restore.Resume(r.Context(), r.Client, r.config.Namespace, kube.PluginFieldManager))
	r.publish(pods[0], "0.000", app(3000))
	r.allocation(pods[0], "applied after the pause", stands(v1alpha1.PhaseApplied, reasons.Settled))
}
