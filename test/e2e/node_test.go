package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/internal/traffic"
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
	text, err := traffic.Get(t.Context(), http.DefaultClient, "http://"+pod.Status.PodIP+":8080/cpu.max")
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

// quotaOf is the CPU limit that the kernel enforces on a container: its CFS quota by its period, from
// cgroup v1 or v2 files. 0: none.
func quotaOf(t *testing.T, pod *corev1.Pod, container string) cpu.Milli {
	t.Helper()
	node, err := cgroup.Detect("/sys/fs/cgroup")
	must.Succeed(t, err)
	st := pod.Status
	all := slices.Concat(st.ContainerStatuses, st.InitContainerStatuses, st.EphemeralContainerStatuses)
	i := slices.IndexFunc(all, func(s corev1.ContainerStatus) bool { return s.Name == container })
	if i < 0 {
		t.Fatalf("pod %s has no container %s that has run", pod.Name, container)
	}
	_, id, _ := strings.Cut(all[i].ContainerID, "://")
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

// resize is an accepted resize, to this total of the pod's limits.
type resize struct {
	user string
	to   cpu.Milli
}

// resizes are the resizes that the API server has accepted in the namespace so far, by pod. A dry run
// is no resize.
func (s *suite) resizes(t *testing.T, namespace string) map[string][]resize {
	t.Helper()
	found := map[string][]resize{}
	err := s.log.Each(func(e audit.Event) {
		if !e.Of("resize") || e.DryRun() || e.ResponseStatus.Code != 200 || e.ObjectRef.Namespace != namespace {
			return
		}
		var pod corev1.Pod
		_ = json.Unmarshal(e.RequestObject, &pod) // the VPA sends a JSON patch, which has no total
		one := resize{user: e.User.Username}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			one.to += cpu.Milli(c.Resources.Limits.Cpu().MilliValue())
		}
		found[e.ObjectRef.Name] = append(found[e.ObjectRef.Name], one)
	})
	must.Succeed(t, err)
	return found
}

// count is the number of resizes in the namespace so far.
func (s *suite) count(t *testing.T, namespace string) (n int) {
	t.Helper()
	for _, all := range s.resizes(t, namespace) {
		n += len(all)
	}
	return n
}

// atRest waits until that many rounds have brought no resize in the namespace, and returns how many
// resizes there were before: a raise of a moment ago may be followed by another.
func (s *suite) atRest(t *testing.T, namespace string, rounds int) int {
	t.Helper()
	for range 10 {
		before := s.count(t, namespace)
		s.rounds(t, rounds)
		if s.count(t, namespace) == before {
			return before
		}
	}
	t.Fatalf("the limits of %s do not come to rest: %+v", namespace, s.resizes(t, namespace))
	return 0
}

// loweredBelow has the resizes by which the controller set a limit below the declared one, by the
// name of the Deployment.
func (s *suite) loweredBelow(t *testing.T, namespace string, declared cpu.Milli) map[string][]cpu.Milli {
	t.Helper()
	lowered := map[string][]cpu.Milli{}
	for pod, all := range s.resizes(t, namespace) {
		app, _, _ := strings.Cut(pod, "-")
		for _, r := range all {
			if r.user == guard.Controller && r.to < declared {
				lowered[app] = append(lowered[app], r.to)
			}
		}
	}
	return lowered
}
