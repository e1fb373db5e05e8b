package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/cgroup"
)

// quota is the CPU limit that the kernel enforces on the pod's first container. 0: none.
func (s *suite) quota(t *testing.T, pod *corev1.Pod) cpu.Milli {
	t.Helper()
	if s.remote {
		return ownQuota(t, pod)
	}
	return quotaOf(t, pod, pod.Spec.Containers[0].Name)
}

// ownQuota is the same, from the file that the container sees on a node with cgroup v2.
func ownQuota(t *testing.T, pod *corev1.Pod) cpu.Milli {
	t.Helper()
	text, err := get(t.Context(), "http://"+pod.Status.PodIP+":8080/cpu.max")
	if err != nil {
		t.Fatalf("pod %s: %v", pod.Name, err)
	}
	if strings.HasPrefix(text, "max ") {
		return 0
	}
	var quota, period int64
	if _, err := fmt.Sscan(text, &quota, &period); err != nil {
		t.Fatalf("pod %s: cpu.max is %q: %v", pod.Name, text, err)
	}
	return cpu.Milli(quota * 1000 / period)
}

// quotaOf is the CPU limit that the kernel enforces on a container: its CFS quota by its period, from cgroup v1 or v2
// files. 0: none.
func quotaOf(t *testing.T, pod *corev1.Pod, container string) cpu.Milli {
	t.Helper()
	node, err := cgroup.Detect("/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if s.Name != container {
			continue
		}
		_, id, _ := strings.Cut(s.ContainerID, "://")
		files, err := node.Find(id)
		if err != nil {
			t.Fatalf("pod %s, container %s: %v", pod.Name, container, err)
		}
		q, err := files.Quota()
		if err != nil {
			t.Fatalf("pod %s, container %s: %v", pod.Name, container, err)
		}
		return cpu.Milli(q)
	}
	t.Fatalf("pod %s has no container %s that has run", pod.Name, container)
	return 0
}

// resizes are the resizes that the API server has accepted in the namespace so far, by pod. A dry run
// is no resize.
func (s *suite) resizes(t *testing.T, namespace string) map[string][]audit.Event {
	t.Helper()
	found := map[string][]audit.Event{}
	err := audit.Each(s.audit, s.audited, func(e audit.Event) {
		if e.Of("resize") && !e.DryRun() && e.ResponseStatus.Code == 200 && e.ObjectRef.Namespace == namespace {
			found[e.ObjectRef.Name] = append(found[e.ObjectRef.Name], e)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// count is the number of resizes in the namespace so far.
func (s *suite) count(t *testing.T, namespace string) (n int) {
	t.Helper()
	for _, w := range s.resizes(t, namespace) {
		n += len(w)
	}
	return n
}
