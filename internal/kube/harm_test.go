package kube

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHarmShows tells trouble of a pod from work that is done, also after the pod was trimmed for the cache.
func TestHarmShows(t *testing.T) {
	at := func(s int64) metav1.Time { return metav1.Unix(s, 0) }
	ended := func(code int32, s int64) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: at(s)}}
	}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(1)}}
	for name, c := range map[string]struct {
		reason          string
		app, other      corev1.ContainerState
		last            corev1.ContainerState // of app
		init            corev1.ContainerState
		unready, failed int64 // 0: not
	}{
		"a failed probe":                     {reason: "ContainersNotReady", app: runs, other: runs, unready: 100},
		"set by the node controller":         {app: runs, other: runs},
		"a Job that is done":                 {reason: "PodCompleted", app: ended(0, 100), other: ended(0, 99)},
		"a Job of which one part is done":    {reason: "ContainersNotReady", app: ended(0, 100), other: runs},
		"a part that was done afterwards":    {reason: "ContainersNotReady", app: ended(0, 130), other: runs, unready: 100},
		"a Job of which one part has failed": {reason: "ContainersNotReady", app: ended(1, 100), other: runs, unready: 100, failed: 100},
		"done, while the other has failed":   {reason: "ContainersNotReady", app: ended(137, 98), other: ended(0, 99), failed: 98},
		"killed, and started again":          {reason: "ContainersNotReady", app: runs, last: ended(137, 100), other: runs, unready: 100, failed: 100},
		"it ended well, and runs again":      {reason: "ContainersNotReady", app: runs, last: ended(0, 100), other: runs, unready: 100},
		"after its init container":           {reason: "ContainersNotReady", app: runs, other: runs, init: ended(0, 50), unready: 100},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: c.reason, LastTransitionTime: at(100),
			}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "app", State: c.app, LastTerminationState: c.last}, {Name: "other", State: c.other},
			},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", State: c.init}},
		}}
		for _, form := range []string{"whole", "trimmed", "trimmed twice"} {
			var unready, failed []time.Time
			if c.unready != 0 {
				unready = []time.Time{at(c.unready).Time}
			}
			if c.failed != 0 {
				failed = []time.Time{at(c.failed).Time}
			}
			if got := UnreadySince(pod); got.IsZero() != (unready == nil) || unready != nil && !got.Equal(unready[0]) {
				t.Errorf("%s, %s: not Ready since %v, want %v", name, form, got, unready)
			}
			if got := FailedAt(&pod.Status.ContainerStatuses[0]); !slices.EqualFunc(got, failed, time.Time.Equal) {
				t.Errorf("%s, %s: failed at %v, want %v", name, form, got, failed)
			}
			TrimPod(pod)
		}
	}
}
