package controller

import (
	"reflect"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// running is a pod of one Ready container that requests 100m.
func running(uid string, limit cpu.Milli, mine bool) *corev1.Pod {
	start := metav1.NewTime(noon.Add(-time.Hour))
	resources := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(100)},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(limit)},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "shop", UID: types.UID(uid), Generation: 2, Labels: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Resources: resources}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "app", Resources: &resources, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: start}},
			}},
		},
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate}}
	if mine {
		pod.ManagedFields = append(pod.ManagedFields, note)
	}
	return pod
}

// note is how the API server notes that we wrote the limit of container app.
var note = metav1.ManagedFieldsEntry{
	Manager: kube.FieldManager, Subresource: "resize", Operation: metav1.ManagedFieldsOperationUpdate,
	FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:cpu":{}}}}}}}`),
}

func TestTrimKeepsTheProof(t *testing.T) {
	pod := running("p", 500, true)
	pod.Annotations = map[string]string{"big": "x", kube.ManagedKey: "false", kube.MaxCPUKey: "2"}
	pod.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{}}}}}`)
	pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: "kubelet", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`),
	})
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
	full := pod.DeepCopy()
	got, err := trim(pod)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = trim(got); err != nil { // client-go may trim what it has trimmed before
		t.Fatal(err)
	}
	trimmed := got.(*corev1.Pod)
	if len(trimmed.ManagedFields) != 2 || trimmed.ManagedFields[0].FieldsV1 != nil || len(trimmed.Annotations) != 2 || trimmed.Spec.Containers[0].Env != nil {
		t.Errorf("trimmed to %+v", trimmed)
	}
	if !reflect.DeepEqual(kube.WrittenByMBCAS(trimmed), kube.WrittenByMBCAS(full)) || !reflect.DeepEqual(kube.PossiblyWrittenByMBCAS(trimmed), kube.PossiblyWrittenByMBCAS(full)) {
		t.Error("the proof is another after trimming")
	}
	for _, mode := range []kube.Mode{kube.ModeOff, kube.ModeEnforce} {
		after := eligibility.Reasons(eligibility.Pod{Pod: trimmed, Mode: mode, System: "mbcas-system"})
		if !reflect.DeepEqual(after, eligibility.Reasons(eligibility.Pod{Pod: full, Mode: mode, System: "mbcas-system"})) {
			t.Errorf("the reasons are others after trimming: %v", after)
		}
	}
}

func TestLiveness(t *testing.T) {
	const grace = time.Minute
	lease := func(at time.Time) *coordinationv1.Lease {
		renewed := metav1.NewMicroTime(at)
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
	}
	for name, c := range map[string]struct {
		first *coordinationv1.Lease
		want  time.Duration
	}{
		"no lease":                    {&coordinationv1.Lease{}, grace},
		"renewed 10 s ago":            {lease(noon.Add(-10 * time.Second)), 10 * time.Second},
		"renewed an hour ago":         {lease(noon.Add(-time.Hour)), grace},
		"a clock that is ahead":       {lease(noon.Add(30 * time.Second)), 0},
		"a clock that is far ahead":   {lease(noon.Add(time.Hour)), grace},
		"renewed just a minute ago":   {lease(noon.Add(-grace)), grace},
		"renewed almost a minute ago": {lease(noon.Add(-59 * time.Second)), 59 * time.Second},
	} {
		s := newLiveness()
		s.observe("n1", c.first, noon, grace)
		if got := s.age("n1", noon); got != c.want {
			t.Errorf("%s: silent for %v at first sight, want %v", name, got, c.want)
		}
		// A renewal counts, whatever time it claims; seeing the same again does not.
		s.observe("n1", lease(noon.Add(-48*time.Hour)), noon.Add(time.Second), grace)
		if got := s.age("n1", noon.Add(2*time.Second)); got != time.Second {
			t.Errorf("%s: silent for %v after a renewal a second ago", name, got)
		}
		s.observe("n1", lease(noon.Add(-48*time.Hour)), noon.Add(time.Minute), grace)
		if got := s.age("n1", noon.Add(61*time.Second)); got != time.Minute {
			t.Errorf("%s: silent for %v, want the minute since the last renewal", name, got)
		}
	}
}

func TestConfigReportsEverything(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	err := Config{Config: lifecycle.DefaultConfig(), CoordinationInterval: -1}.Validate()
	if got := len(err.(interface{ Unwrap() []error }).Unwrap()); got != 8 {
		t.Errorf("%d complaints, want 8: %v", got, err)
	}
}
