package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestRemembersNoMoreThanTheCache: the API server's answer to a resize is kept as the cache would keep the pod, and only until the
// cache shows it.
func TestRemembersNoMoreThanTheCache(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := apiserver.Pod(r.namespace, "web", apiserver.Container("app", "100m", "500m"))
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LONG", Value: "text"}}
	pod = r.kubelet.Run(r, pod)
	l.look(pod)
	r.publish(pod, "0.000", app(2000))
	l.until("resized", func() (bool, any) { l.look(pod); return l.counter.resizes() == 1, nil })
	rec := l.memory.nodes[r.kubelet.Node][pod.UID]
	if rec.pod == nil || rec.pod.Spec.Containers[0].Env != nil || len(rec.pod.Spec.Containers[0].Resources.Limits) == 0 {
		t.Errorf("remembered after the resize: %+v, want the pod as the cache keeps it", rec.pod)
	}
	if rec.pa == nil || rec.pa.ManagedFields != nil {
		t.Errorf("remembered after the resize: %+v, want the allocation as the cache keeps it", rec.pa)
	}
	l.until("forgotten", func() (bool, any) {
		l.look(pod)
		rec := l.memory.nodes[r.kubelet.Node][pod.UID]
		return rec.pod == nil && rec.pa == nil, rec
	})
}

// TestForgetsWhatTheCacheShows: an own write is remembered for as long as the cache is behind it, and no longer.
func TestForgetsWhatTheCacheShows(t *testing.T) {
	podAt := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod", ResourceVersion: version}}
	}
	paAt := func(uid types.UID, version string) *v1alpha1.PodAllocation {
		return &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}
	}
	for reason, c := range map[string]struct {
		pod             *corev1.Pod
		pa              *v1alpha1.PodAllocation
		late            bool // much later
		keepPod, keepPA bool
	}{
		"both are behind":                    {pod: podAt("9"), pa: paAt("ours", "19"), keepPod: true, keepPA: true},
		"the pod is there":                   {pod: podAt("10"), pa: paAt("ours", "19"), keepPA: true},
		"the pod is newer":                   {pod: podAt("11"), pa: paAt("ours", "19"), keepPA: true},
		"the allocation is there":            {pod: podAt("9"), pa: paAt("ours", "20"), keepPod: true},
		"the allocation is newer":            {pod: podAt("9"), pa: paAt("ours", "21"), keepPod: true},
		"the allocation is yet to come":      {pod: podAt("10"), keepPA: true},
		"the allocation before ours":         {pod: podAt("10"), pa: paAt("before", "21"), keepPA: true},
		"what never comes is not waited for": {pod: podAt("9"), pa: paAt("ours", "19"), late: true},
	} {
		rec := &record{pod: podAt("10"), podAt: noon, pa: paAt("ours", "20"), paAt: noon}
		now := noon.Add(lag / 2)
		if c.late {
			now = noon.Add(31 * lag)
		}
		rec.newest(c.pod, c.pa, now)
		if (rec.pod != nil) != c.keepPod || (rec.pa != nil) != c.keepPA {
			t.Errorf("%s: pod kept %v, want %v; allocation kept %v, want %v", reason, rec.pod != nil, c.keepPod, rec.pa != nil, c.keepPA)
		}
	}
}
