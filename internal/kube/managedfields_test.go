package kube

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/internal/testing/podtest"
)

// by is how the API server records that a manager wrote the CPU limits of containers.
func by(manager, subresource, list string, containers ...string) metav1.ManagedFieldsEntry {
	fields := ""
	for i, c := range containers {
		if i > 0 {
			fields += ","
		}
		fields += `"k:{\"name\":\"` + c + `\"}":{"f:resources":{"f:limits":{"f:cpu":{}}}}`
	}
	return metav1.ManagedFieldsEntry{
		Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate,
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"` + list + `":{` + fields + `}}}`),
	}
}

// applied is an entry of a server-side apply.
func applied(m metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
	m.Operation = metav1.ManagedFieldsOperationApply
	return m
}

func TestWrittenByMBCAS(t *testing.T) {
	creator := by("kube-controller-manager", "", "f:containers", "app", "proxy")
	all := map[string]bool{"app": true, "proxy": true}
	for name, c := range map[string]struct {
		generation  int64
		entries     []metav1.ManagedFieldsEntry
		ours, maybe map[string]bool
	}{
		"resized by us":          {2, []metav1.ManagedFieldsEntry{creator, by(FieldManager, "resize", "f:containers", "app")}, map[string]bool{"app": true}, map[string]bool{"app": true}},
		"its sidecar resized":    {2, []metav1.ManagedFieldsEntry{creator, by(FieldManager, "resize", "f:initContainers", "proxy")}, map[string]bool{"proxy": true}, map[string]bool{"proxy": true}},
		"resized by hand":        {2, []metav1.ManagedFieldsEntry{creator, by("kubectl-mbcas", "resize", "f:containers", "app")}, nil, nil},
		"not through the resize": {2, []metav1.ManagedFieldsEntry{creator, by(FieldManager, "", "f:containers", "app")}, nil, nil},
		"never changed":          {1, []metav1.ManagedFieldsEntry{creator}, nil, nil},
		"never changed, wiped":   {1, nil, nil, nil},
		"only its creator":       {2, []metav1.ManagedFieldsEntry{creator}, nil, nil},
		"claimed in our name":    {2, []metav1.ManagedFieldsEntry{creator, applied(by(FieldManager, "resize", "f:containers", "app"))}, nil, nil},
		"ours of other fields":   {2, []metav1.ManagedFieldsEntry{creator, by(FieldManager, "resize", "f:containers")}, nil, nil},
		// What does not tell everything excludes nothing.
		"wiped":             {2, nil, nil, all},
		"folded":            {2, []metav1.ManagedFieldsEntry{creator, {Manager: ancientManager}}, nil, all},
		"without a creator": {2, []metav1.ManagedFieldsEntry{by(FieldManager, "resize", "f:containers", "app")}, map[string]bool{"app": true}, all},
		"cannot be read":    {2, []metav1.ManagedFieldsEntry{creator, {Manager: FieldManager, Subresource: "resize", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`not json`)}}, nil, all},
	} {
		pod := podtest.Shop()
		pod.Generation, pod.ManagedFields = c.generation, c.entries
		check := func(what string) {
			t.Helper()
			if diff := cmp.Diff(some(c.ours), some(WrittenByMBCAS(pod))); diff != "" {
				t.Errorf("%s, %s: ours (-want +got):\n%s", name, what, diff)
			}
			if diff := cmp.Diff(some(c.maybe), some(PossiblyWrittenByMBCAS(pod))); diff != "" {
				t.Errorf("%s, %s: maybe ours (-want +got):\n%s", name, what, diff)
			}
		}
		check("whole")
		pod.ManagedFields = TrimManagedFields(append(slices.Clone(pod.ManagedFields), metav1.ManagedFieldsEntry{
			Manager: "kubelet", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`),
		}))
		if slices.ContainsFunc(pod.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == "kubelet" }) {
			t.Errorf("%s: the bulk is kept", name)
		}
		check("trimmed")
		pod.ManagedFields = TrimManagedFields(pod.ManagedFields)
		check("trimmed twice")
	}
}

// TestResizedByOthers: of limits that other managers wrote through the subresource, and of no others.
func TestResizedByOthers(t *testing.T) {
	noon := metav1.Unix(1_700_000_000, 0)
	at := func(seconds int, m metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
		m.Time = new(metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second)))
		return m
	}
	pod := podtest.Shop()
	pod.ManagedFields = []metav1.ManagedFieldsEntry{
		at(9, by("kube-controller-manager", "", "f:containers", "app", "proxy", "other")),
		at(1, by("kubectl", "resize", "f:containers", "app")),
		at(3, applied(by("gitops", "resize", "f:containers", "app"))),
		at(2, by("kubectl", "resize", "f:initContainers", "proxy")),
		at(9, by(FieldManager, "resize", "f:containers", "other")),
		at(9, by("memory-only", "resize", "f:containers")),
		at(9, by(ancientManager, "resize", "f:containers", "other")),
		by("without-a-time", "resize", "f:containers", "other"),
	}
	want := map[string]time.Time{"app": noon.Add(3 * time.Second), "proxy": noon.Add(2 * time.Second)}
	for _, what := range []string{"whole", "trimmed", "trimmed twice"} {
		if diff := cmp.Diff(want, ResizedByOthers(pod)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		pod.ManagedFields = TrimManagedFields(pod.ManagedFields)
	}
	if n := len(pod.ManagedFields); n != 7 {
		t.Errorf("%d entries are kept, want all but the one of memory", n)
	}
}

// some is a set without the difference between none and empty.
func some(set map[string]bool) map[string]bool {
	if len(set) == 0 {
		return nil
	}
	return set
}
