package objectcache

import (
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/eligibility"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
	"github.com/mbcas/mbcas/internal/testing/fakekubelet"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// BenchmarkCacheBytesPerPod reports what a pod of a production cluster and its PodAllocation take in
// the caches of the controller, whole and trimmed, with the indexes of a cache.
func BenchmarkCacheBytesPerPod(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(bytesPerPod(b, 1000, func(o any) (any, error) { return o, nil }), "whole-B/pod")
		b.ReportMetric(bytesPerPod(b, 1000, NewTransform()), "trimmed-B/pod")
	}
}

// TestAtMost6KB: so much does the live heap grow by for a pod with its PodAllocation.
func TestAtMost6KB(t *testing.T) {
	if got := bytesPerPod(t, 1000, NewTransform()); got > 6<<10 {
		t.Errorf("%.0f bytes for a pod with its PodAllocation, want at most %d", got, 6<<10)
	}
}

// changes are differences between pods that decisions may depend on.
var changes = []func(*corev1.Pod){
	func(p *corev1.Pod) { p.Labels["tier"] = "other" },
	func(p *corev1.Pod) { p.Labels = nil },
	func(p *corev1.Pod) { p.Annotations = map[string]string{kube.MaxCPUKey: "2", kube.ManagedKey: "false"} },
	func(p *corev1.Pod) { p.OwnerReferences = nil },
	func(p *corev1.Pod) { p.OwnerReferences[0].Name = "another-1234567890" },
	func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil },
	func(p *corev1.Pod) { p.ManagedFields = nil },
	func(p *corev1.Pod) { p.ManagedFields = p.ManagedFields[:1] },
	func(p *corev1.Pod) { p.ManagedFields[0].Manager = "ancient-changes" },
	func(p *corev1.Pod) { p.ManagedFields = append(p.ManagedFields, resizedAt(1_700_000_000)) },
	func(p *corev1.Pod) { p.ManagedFields = append(p.ManagedFields, resizedAt(1_700_000_001)) },
	func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1")
	},
	func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1000m")
	},
	func(p *corev1.Pod) { delete(p.Spec.Containers[0].Resources.Requests, corev1.ResourceMemory) },
	func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}} },
	func(p *corev1.Pod) { p.Spec.Containers[0].ResizePolicy[0].RestartPolicy = corev1.RestartContainer },
	func(p *corev1.Pod) {
		sidecar := *p.Spec.Containers[0].DeepCopy()
		sidecar.Name, sidecar.RestartPolicy = "sidecar", ptr.To(corev1.ContainerRestartPolicyAlways)
		p.Spec.InitContainers = append(p.Spec.InitContainers, sidecar)
		status := *p.Status.ContainerStatuses[0].DeepCopy()
		status.Name = "sidecar"
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, status)
	},
	func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} },
	func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure },
	func(p *corev1.Pod) {
		s := &p.Status.ContainerStatuses[0]
		s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError"}
	},
	func(p *corev1.Pod) { p.Spec.Tolerations = nil },
	func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = nil },
	func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "n1", "disk": "ssd"}
	},
	func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 2}}
	},
	func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{Namespaces: []string{"other"}}},
		}}
	},
	func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](60) },
	func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("sandboxed") },
	func(p *corev1.Pod) { p.Spec.Priority, p.Spec.PriorityClassName = ptr.To[int32](9000), "high" },
	func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} },
	func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{} },
	func(p *corev1.Pod) {
		p.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}
	},
	func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
	func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed },
	func(p *corev1.Pod) { p.Status.ObservedGeneration = 1 },
	func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{}, ptr.To[int64](30)
	},
	func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Resources = nil },
	func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 3 },
	func(p *corev1.Pod) {
		end := &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.Unix(1_700_000_100, 0)}
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = end
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: end}
	},
	func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} },
	func(p *corev1.Pod) {
		for i := range p.Status.Conditions {
			p.Status.Conditions[i].Status, p.Status.Conditions[i].Reason = corev1.ConditionFalse, "ContainersNotReady"
		}
	},
	func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "no room",
			ObservedGeneration: 3,
		}, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
	},
}

// resizedAt is how the API server records that another manager wrote the limit of a container.
func resizedAt(seconds int64) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: "another-client", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "resize",
		Time: new(metav1.Unix(seconds, 0)), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(
			`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:cpu":{}}}}}}}`),
	}
}

// TestTrimmedPodsDecideTheSame: everything that decisions read of a pod reads the same before and
// after it went into a cache with others.
func TestTrimmedPodsDecideTheSame(t *testing.T) {
	transform := NewTransform()
	rapid.Check(t, func(t *rapid.T) {
		pod := livePod(rapid.IntRange(0, 40).Draw(t, "pod"))
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(changes)-1), 0, 3, rapid.ID[int]).Draw(t, "changes") {
			if len(pod.OwnerReferences) > 0 && len(pod.ManagedFields) > 0 && len(pod.Spec.Tolerations) > 0 && pod.Labels != nil &&
				pod.Status.ContainerStatuses[0].Resources != nil {
				changes[i](pod)
			}
		}
		whole := pod.DeepCopy()
		for range 2 { // client-go may transform what was transformed before
			if _, err := transform(pod); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(readOf(whole), readOf(pod)); d != "" {
			t.Fatalf("read of the whole pod (-) and of the one in the cache (+):\n%s", d)
		}
	})
}

// readOf is what decisions read of a pod.
func readOf(pod *corev1.Pod) map[string]any {
	declared := []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 300}}
	quota := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("9"), corev1.ResourceRequestsMemory: resource.MustParse("9Gi")},
	}}
	now := time.Unix(1_700_000_050, 0)
	read := map[string]any{
		"facts":       allocation.Facts(pod, declared, 16000, nil),
		"exclusions":  eligibility.Reasons(eligibility.Pod{Pod: pod, Mode: kube.ModeEnforce, System: "mbcas-system"}),
		"bounds":      constraints.BoundsOf(pod, declared, 16000, nil),
		"ours":        [2]map[string]bool{kube.WrittenByMBCAS(pod), kube.PossiblyWrittenByMBCAS(pod)},
		"others'":     kube.ResizedByOthers(pod),
		"workload":    kube.Workload(pod),
		"spread":      [3]bool{kube.TopologySpread(pod), kube.FixedToNode(pod), kube.CrossesNamespaces(pod)},
		"quota usage": constraints.QuotaUsage(pod),
		"pod quota":   kube.PodQuota(pod),
		"counts":      constraints.CountsAgainstQuota(pod, now),
		"specified":   kube.FullySpecified(pod),
		"tolerations": pod.Spec.Tolerations,
		"labels":      pod.Labels,
	}
	container, value := constraints.MissingValue(quota, pod)
	read["missing"] = container + value
	for _, scope := range []corev1.ResourceQuotaScope{
		corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopePriorityClass,
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity,
	} {
		quota.Spec.Scopes = []corev1.ResourceQuotaScope{scope}
		read["scope "+string(scope)] = constraints.QuotaSelects(quota, pod)
	}
	progress, said := podresize.Check(pod, kube.ByName(kube.Limits(pod)), pod.Generation)
	read["progress"] = fmt.Sprint(progress, said)
	return read
}

// TestSharingChangesNothing: an object that shares what others have in common equals one that is
// only trimmed.
func TestSharingChangesNothing(t *testing.T) {
	transform := NewTransform()
	for i := range 100 {
		pod := livePod(i)
		pa := liveAllocation(pod)
		if i < len(changes) {
			changes[i](pod)
		}
		for _, o := range []runtime.Object{pod, pa} {
			trimmed := o.DeepCopyObject()
			if _, err := kube.Trim(trimmed); err != nil {
				t.Fatal(err)
			}
			if _, err := transform(o); err != nil {
				t.Fatal(err)
			}
			if !equality.Semantic.DeepEqual(trimmed, o) {
				t.Fatalf("object %d: (-trimmed +shared)\n%s", i, cmp.Diff(trimmed, o))
			}
		}
	}
}

// bytesPerPod fills caches with that many pods and PodAllocations as they come from the API server,
// and measures the live heap.
func bytesPerPod(t testing.TB, pods int, trim cache.TransformFunc) float64 {
	t.Helper()
	byNode := cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		"node": func(o any) ([]string, error) {
			if pod, ok := o.(*corev1.Pod); ok {
				return []string{pod.Spec.NodeName}, nil
			}
			return []string{o.(*v1alpha1.PodAllocation).Spec.NodeName}, nil
		},
	}
	stores := [2]cache.Indexer{
		cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNode), cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNode),
	}
	add := func(store cache.Indexer, o any) {
		kept, err := trim(o)
		if err == nil {
			err = store.Add(kept)
		}
		must.Succeed(t, err)
	}
	before := liveHeap()
	for i := range pods {
		pod := livePod(i)
		text, err := pod.Marshal()
		must.Succeed(t, err)
		received := &corev1.Pod{} // no string shared with another pod
		must.Succeed(t, received.Unmarshal(text))
		add(stores[0], received)
		if text, err = json.Marshal(liveAllocation(pod)); err != nil {
			t.Fatal(err)
		}
		pa := &v1alpha1.PodAllocation{}
		must.Succeed(t, json.Unmarshal(text, pa))
		add(stores[1], pa)
	}
	after := liveHeap()
	goruntime.KeepAlive(stores)
	goruntime.KeepAlive(trim)
	return (after - before) / float64(pods)
}

func liveHeap() float64 {
	goruntime.GC()
	goruntime.GC() // what finalizers held on to is free after a second one
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// livePod is a running pod whose limit MBCAS changed: ten of a workload, 30 on a node, every fourth
// with a sidecar.
func livePod(i int) *corev1.Pod {
	since := metav1.NewTime(time.Unix(1_700_000_000, 0))
	pod := fakekubelet.PodObject(fakekubelet.Spec{
		Namespace: fmt.Sprintf("team-%d", i/300), Workload: fmt.Sprintf("service-%d", i/10), Index: i,
		Node: fmt.Sprintf("node-%05d", i/30), Request: 100, Limit: cpu.Milli(300 + 10*(i%40)), Sidecar: i%4 == 0,
	})
	pod.UID, pod.ResourceVersion = types.UID(fmt.Sprintf("6f2c0d7e-58a4-4f7e-9a51-%012d", i)), fmt.Sprint(1_000_000+i)
	pod.Generation, pod.CreationTimestamp = 3, since
	pod.Status = fakekubelet.Running(pod, since)
	fakekubelet.SetManagers(pod, since)
	fakekubelet.AddResizer(pod, kube.FieldManager, since)
	return pod
}

// liveAllocation is the PodAllocation of such a pod, decided and applied.
func liveAllocation(pod *corev1.Pod) *v1alpha1.PodAllocation {
	at := metav1.NewMicroTime(time.Unix(1_700_000_000, 0))
	pa := allocation.New(pod)
	pa.UID, pa.ResourceVersion, pa.Generation = "a"+pod.UID, pod.ResourceVersion, 7
	pa.ManagedFields = pod.ManagedFields[:1]
	limits := kube.Limits(pod)
	limit := kube.Total(limits)
	pa.Spec.DesiredCPULimit, pa.Spec.Containers = &limit, limits
	pa.Spec.Decision = &v1alpha1.Decision{
		Demand: 120, Usage: 80, Budget: 100, PriorityPercent: 100, Price: 0.25, Floor: 100, Ceiling: 4000,
		BoundBy: v1alpha1.BoundByPrice, ObservedAt: at,
	}
	s := &pa.Status
	s.Phase, s.Reason, s.Message = v1alpha1.PhaseApplied, string(reasons.Settled), reasons.Settled.Sentence()
	s.DeclaredLimits, s.AppliedLimits, s.AppliedCPULimit = limits, limits, &limit
	s.LastAppliedTime, s.LastIncreaseTime, s.ObservedGeneration = at, at, 7
	allocation.SetConditions(s, at.Time)
	return pa
}
