package agent

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
)

// TestPodLevelLimit: a pod of two containers that use its own limit up together is raised by it, on each version of the
// cgroups. Neither container uses the limit up alone, and one of them shows the throttling.
func TestPodLevelLimit(t *testing.T) {
	for _, version := range []kernel.Version{kernel.V1, kernel.V2} {
		t.Run(string(version), func(t *testing.T) {
			w := newWorld(t)
			tree, err := cgroups.New(t.TempDir(), cgroups.Shape{Version: version})
			if err != nil {
				t.Fatal(err)
			}
			w.mu.Lock()
			w.tree = tree
			w.mu.Unlock()
			pa := w.startWhole(apiserver.Pod(w.ns, "whole", apiserver.Container("app", "100m", ""), apiserver.Container("log", "50m", "")))
			w.agent(w.access())
			w.eventually("it is raised", func() bool {
				limits := kube.ByName(w.allocation(pa).Spec.Containers)
				return len(limits) == 1 && limits[v1alpha1.PodLevel] > 500
			})
			if d := w.allocation(pa).Spec.Decision; d.Floor != 160 || d.Usage < 400 || d.Usage > 600 {
				t.Errorf("decided by %+v, want the floor 160m of its request, and about the usage of both, 500m", d)
			}
		})
	}
}

// startWhole starts a pod with its own limit of 500m, which its containers use up.
func (w *world) startWhole(pod *corev1.Pod) *v1alpha1.PodAllocation {
	w.t.Helper()
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: apiserver.Container("", "", "500m").Resources.Limits}
	pod = w.node.Run(w.t, pod)
	uid := string(pod.UID)
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]string, len(pod.Status.ContainerStatuses))
	for i, s := range pod.Status.ContainerStatuses {
		_, ids[i], _ = strings.Cut(s.ContainerID, "://")
	}
	if err := w.tree.AddPod(cgroups.Burstable, uid, ids...); err != nil {
		w.t.Fatal(err)
	}
	for _, id := range append(ids, "") {
		if err := w.tree.Update(uid, id, enforced); err != nil {
			w.t.Fatal(err)
		}
	}
	w.loads = append(w.loads, load{uid, "", 0.5, 0}, load{uid, ids[0], 0.3, 0.9}, load{uid, ids[1], 0.2, 0})
	pa := allocation.New(pod)
	if err := w.api.Client.Create(w.t.Context(), pa); err != nil {
		w.t.Fatal(err)
	}
	w.tell(pa, kube.Limits(pod), nil)
	return pa
}
