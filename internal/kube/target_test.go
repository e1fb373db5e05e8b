package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mbcas/mbcas/internal/testing/podtest"
)

func TestTargetOwns(t *testing.T) {
	hash := map[string]string{"pod-template-hash": "7d9f"}
	web := labels.SelectorFromSet(labels.Set{"app": "web"})
	for name, c := range map[string]struct {
		target   Target
		pod      *corev1.Pod
		selector labels.Selector
		want     bool
	}{
		"deployment":                   {Target{"apps/v1", "Deployment", "web"}, podtest.Owned("apps/v1", "ReplicaSet", "web-7d9f", hash), nil, true},
		"another deployment":           {Target{"apps/v1", "Deployment", "web"}, podtest.Owned("apps/v1", "ReplicaSet", "web-x-7d9f", hash), nil, false},
		"a replica set of its own":     {Target{"apps/v1", "Deployment", "web"}, podtest.Owned("apps/v1", "ReplicaSet", "web-7d9f", nil), nil, false},
		"replica set":                  {Target{"apps/v1", "ReplicaSet", "web-7d9f"}, podtest.Owned("apps/v1", "ReplicaSet", "web-7d9f", hash), nil, true},
		"stateful set":                 {Target{"apps/v1", "StatefulSet", "db"}, podtest.Owned("apps/v1", "StatefulSet", "db", nil), nil, true},
		"stateful set of another API":  {Target{"apps/v1", "StatefulSet", "db"}, podtest.Owned("apps.example.org/v1", "StatefulSet", "db", nil), nil, false},
		"an older version of its API":  {Target{"apps/v1beta2", "StatefulSet", "db"}, podtest.Owned("apps/v1", "StatefulSet", "db", nil), nil, true},
		"daemon set":                   {Target{"apps/v1", "DaemonSet", "log"}, podtest.Owned("apps/v1", "DaemonSet", "log", nil), nil, true},
		"job":                          {Target{"batch/v1", "Job", "sum-1"}, podtest.Owned("batch/v1", "Job", "sum-1", nil), nil, true},
		"cron job":                     {Target{"batch/v1", "CronJob", "sum"}, podtest.Owned("batch/v1", "Job", "sum-29012345", nil), nil, true},
		"a job of a cron job's name":   {Target{"batch/v1", "CronJob", "sum"}, podtest.Owned("batch/v1", "Job", "sum-now", nil), nil, false},
		"replication controller":       {Target{"v1", "ReplicationController", "old"}, podtest.Owned("v1", "ReplicationController", "old", nil), nil, true},
		"without an owner":             {Target{"apps/v1", "Deployment", "web"}, podtest.Owned("", "", "", hash), nil, false},
		"custom":                       {Target{"argoproj.io/v1alpha1", "Rollout", "web"}, podtest.Owned("apps/v1", "ReplicaSet", "web-1", map[string]string{"app": "web"}), web, true},
		"custom, others' labels":       {Target{"argoproj.io/v1alpha1", "Rollout", "web"}, podtest.Owned("apps/v1", "ReplicaSet", "web-1", nil), web, false},
		"custom, selector not told":    {Target{"argoproj.io/v1alpha1", "Rollout", "web"}, podtest.Owned("apps/v1", "ReplicaSet", "web-1", map[string]string{"app": "web"}), nil, false},
		"an API that cannot be read":   {Target{"a/b/c", "StatefulSet", "db"}, podtest.Owned("apps/v1", "StatefulSet", "db", nil), nil, false},
		"a built-in ignores selectors": {Target{"apps/v1", "Deployment", "web"}, podtest.Owned("", "", "", map[string]string{"app": "web"}), web, false},
	} {
		if got := c.target.Owns(c.pod, c.selector); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestWorkload(t *testing.T) {
	for want, pod := range map[string]*corev1.Pod{
		"Deployment/web":      podtest.Owned("apps/v1", "ReplicaSet", "web-7d9f", map[string]string{"pod-template-hash": "7d9f"}),
		"ReplicaSet/web-7d9f": podtest.Owned("apps/v1", "ReplicaSet", "web-7d9f", nil),
		"StatefulSet/db":      podtest.Owned("apps/v1", "StatefulSet", "db", nil),
		"Pod/shop-1":          podtest.Owned("", "", "", nil),
	} {
		if got := Workload(pod); got != want {
			t.Errorf("workload %q, want %q", got, want)
		}
	}
}

// TestOrigin: runs of a CronJob have one, and other Jobs each their own.
func TestOrigin(t *testing.T) {
	for want, pod := range map[string]*corev1.Pod{
		"CronJob/sum":    podtest.Owned("batch/v1", "Job", "sum-29012345", nil),
		"Job/sum-now":    podtest.Owned("batch/v1", "Job", "sum-now", nil),
		"StatefulSet/db": podtest.Owned("apps/v1", "StatefulSet", "db", nil),
		"Pod/shop-1":     podtest.Owned("", "", "", nil),
	} {
		if got := Origin(pod); got != want {
			t.Errorf("origin %q, want %q", got, want)
		}
	}
}

func TestFixedToNodeAndSpread(t *testing.T) {
	pod := podtest.Shop()
	if FixedToNode(pod) || TopologySpread(pod) {
		t.Error("a pod without constraints has some")
	}
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1}}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}}}}
	if FixedToNode(pod) || !TopologySpread(pod) {
		t.Error("a preference does not fix the pod to a node, and a constraint spreads")
	}
	selected := podtest.Shop()
	if selected.Spec.NodeSelector = map[string]string{"disk": "ssd"}; FixedToNode(selected) {
		t.Error("a selector that many nodes may match does not fix the pod")
	}
	if selected.Spec.NodeSelector[corev1.LabelHostname] = "n1"; !FixedToNode(selected) {
		t.Error("a selector that names the node pins")
	}
	in := func(key string, values ...string) []corev1.NodeSelectorRequirement {
		return []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}
	}
	for name, c := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		want  bool
	}{
		"of a DaemonSet":   {[]corev1.NodeSelectorTerm{{MatchFields: in("metadata.name", "n1")}}, true},
		"a host":           {[]corev1.NodeSelectorTerm{{MatchExpressions: in(corev1.LabelHostname, "n1")}}, true},
		"one of two hosts": {[]corev1.NodeSelectorTerm{{MatchExpressions: in(corev1.LabelHostname, "n1", "n2")}}, false},
		"this or that":     {[]corev1.NodeSelectorTerm{{MatchExpressions: in(corev1.LabelHostname, "n1")}, {MatchExpressions: in("disk", "ssd")}}, false},
		"a zone":           {[]corev1.NodeSelectorTerm{{MatchExpressions: in(corev1.LabelTopologyZone, "a")}}, false},
	} {
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: c.terms}
		trimmed := pod.DeepCopy()
		trimmed.Spec.Affinity = TrimAffinity(pod.Spec.Affinity)
		if got, after := FixedToNode(pod), FixedToNode(trimmed); got != c.want || after != c.want {
			t.Errorf("%s: fixed %v, and trimmed %v; want %v", name, got, after, c.want)
		}
	}
}
