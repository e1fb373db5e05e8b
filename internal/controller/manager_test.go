package controller

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // simulations make much garbage, and keep little
	os.Exit(apiserver.Main(m))
}

// The tests here run the controller as it ships: with caches, watches and a queue.

func TestFollowsEvents(t *testing.T) {
	r := newRig(t)
	r.start()
	pod := r.pod("web", "100m", "500m")
	r.at(pod, 2000)
	made := r.stored(pod)
	r.must(r.Client.Delete(r.Context(), made))
	r.declaredIs(r.allocation(pod, "made again", func(pa *v1alpha1.PodAllocation) bool { return pa.UID != made.UID && recorded(pa) }), app(500))
	r.limitIs(pod, 2000, "after the allocation was deleted")

	r.publish(pod, "2.000", app(1000))
	r.allocation(pod, "lowered in steps", stands(v1alpha1.PhaseApplied, reasons.Settled))
	r.limitIs(pod, 1000, "as decided")
	if r.counter.resizes() != 3 {
		t.Errorf("%d resizes, want one up and two steps down: %v", r.counter.resizes(), r.counter.moves)
	}

	r.label(pod, "false")
	r.until("back at 500m and without allocation", func() (bool, any) { return r.stored(pod) == nil && r.limit(pod) == 500, r.limit(pod) })
	r.label(pod, "true")
	r.at(pod, 2000)

	r.mode(r.namespace, kube.ModeRestore)
	r.allocation(pod, "restored", stands(v1alpha1.PhaseRestored, reasons.Restoring))
	r.limitIs(pod, 500, "in mode restore")
	r.mode(r.namespace, kube.ModeEnforce)
	r.allocation(pod, "applied in mode enforce", stands(v1alpha1.PhaseApplied, reasons.Settled))

	r.resizeAs("another-client", pod, "700m")
	r.allocation(pod, "held off", stands(v1alpha1.PhaseNotApplied, reasons.ExternalChange))
}

// TestAllocatableIsFollowed: when the node gets smaller, limits above what it has left come down.
func TestAllocatableIsFollowed(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.start()
		pod := r.pod("web", "100m", "500m")
		r.at(pod, 4000)
		n := &corev1.Node{}
		r.must(r.Client.Get(r.Context(), client.ObjectKey{Name: r.kubelet.Node}, n))
		before := n.DeepCopy()
		n.Status.Allocatable[corev1.ResourceCPU] = kube.Quantity(3000)
		r.must(r.Client.Status().Patch(r.Context(), n, client.MergeFrom(before)))
		r.reaches(pod, 3000)
	})
}

func TestTheCRDMayVanish(t *testing.T) {
	r := newRig(t)
	r.start()
	pod := r.pod("web", "100m", "500m")
	r.at(pod, 2000)

	c := r.extensions()
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
		return apierrors.IsNotFound(err), err
	})
	r.limitIs(pod, 2000, "without the CRD")
	reinstall()
	r.declaredIs(r.allocation(pod, "made again", stands(v1alpha1.PhasePending, reasons.NoDecisionYet)), app(500))
	r.limitIs(pod, 2000, "with the CRD again")
	if r.counter.resizes() != 1 {
		t.Errorf("%d resizes, want the one before", r.counter.resizes())
	}
}

// TestRestoreAll: beside a running controller every pod is restored, and stays there. What cannot be
// restored is named: TestEndsWithoutProgress (internal/restore).
func TestRestoreAll(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.start()
		raised, external, unmoved := r.pod("raised", "100m", "500m"), r.pod("external", "100m", "500m"), r.pod("unmoved", "100m", "500m")
		r.at(raised, 2000)
		r.at(external, 2000)
		r.allocation(unmoved, "made", recorded)
		holder := "controller-1" // as a controller with leader election does
		lease := &coordinationv1.Lease{}
		lease.Namespace, lease.Name, lease.Spec.HolderIdentity = r.config.Namespace, kube.LeaderLease, &holder
		r.must(r.Client.Create(r.Context(), lease))
		r.resizeAs("another-client", external, "700m")
		r.allocation(external, "held off", stands(v1alpha1.PhaseNotApplied, reasons.ExternalChange))

		var out bytes.Buffer
		cluster := &restore.Cluster{
			Client: r.Client, Resize: podresize.New(r.Client, kube.FieldManager), Namespace: r.config.Namespace, Out: &out,
			Audit: slog.New(slog.DiscardHandler), Workers: 4, Rate: 100, Now: time.Now, Interval: 20 * time.Millisecond,
		}
		if err := cluster.Restore(t.Context()); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		r.limitIs(raised, 500, "as declared")
		r.limitIs(external, 700, "as another client set it")
		r.limitIs(unmoved, 500, "as declared")
		report := "2 at their declared limits before, 0 left as another client set them, 0 not restored" // the change is adopted
		if !strings.Contains(out.String(), "1 pods restored in") || !strings.Contains(out.String(), report) {
			t.Errorf("want 1 pod restored, %s:\n%s", report, out.String())
		}
		// The controller that still runs leaves them there.
		r.publish(raised, "0.000", app(3000))
		r.allocation(r.pod("later", "100m", "500m"), "made while paused", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
		time.Sleep(time.Minute)
		r.limitIs(raised, 500, "after the restore")
	})
}

// pause pauses, and waits until the controller has acknowledged that.
func (r *rig) pause() {
	r.Helper()
	r.must(restore.Pause(r.Context(), r.Client, r.config.Namespace, kube.PluginFieldManager, "incident"))
	r.until("acknowledged", func() (bool, any) {
		state, err := restore.ReadState(r.Context(), r.Client, r.config.Namespace)
		r.must(err)
		return state.Acknowledged == "incident", state
	})
}

// TestPauseCausesNoStatus: a pause is acknowledged, and causes no write about a pod that this might wait for.
func TestPauseCausesNoStatus(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.config.Nodes = 1
		there, w := r.wired(nil)
		there.start()
		pods := []*corev1.Pod{r.pod("a", "100m", "500m"), r.pod("b", "100m", "500m")}
		for _, pod := range pods {
			r.at(pod, 2000)
		}
		before := w.requests(http.MethodPatch, "/status")
		r.pause()
		time.Sleep(10 * time.Second)
		if n := w.requests(http.MethodPatch, "/status") - before; n != 0 || before == 0 {
			t.Errorf("%d statuses were written because of the pause after %d before, want none after some", n, before)
		}
		r.must(restore.Resume(r.Context(), r.Client, r.config.Namespace, kube.PluginFieldManager))
		r.at(pods[0], 3000)
	})
}

// TestPauseWaitsForNoStatus: a pause is acknowledged, and no pod is resized any more, while the API server
// answers no write about any PodAllocation.
func TestPauseWaitsForNoStatus(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		there, w := r.wired(nil)
		there.start()
		var pods []*corev1.Pod
		for i := range 10 {
			pods = append(pods, r.pod(fmt.Sprint("web-", i), "100m", "500m"))
		}
		for _, pod := range pods {
			r.at(pod, 2000)
		}
		release := w.hold("/status")
		defer release()
		before := w.requests(http.MethodPatch, "/status")
		for _, pod := range pods {
			r.publish(pod, "0.000", app(3000))
		}
		r.until("the controller waits for a status", func() (bool, any) { return w.requests(http.MethodPatch, "/status") > before, nil })
		r.pause()
		resizes := w.requests(http.MethodPatch, "/resize")
		release()
		pod := r.pod("later", "100m", "500m")
		r.allocation(pod, "made while paused", recorded)
		time.Sleep(10 * time.Second)
		if n := w.requests(http.MethodPatch, "/resize") - resizes; n != 0 {
			t.Errorf("%d resizes after the acknowledgement", n)
		}
		r.must(restore.Resume(r.Context(), r.Client, r.config.Namespace, kube.PluginFieldManager))
		r.at(pod, 2000)
	})
}
