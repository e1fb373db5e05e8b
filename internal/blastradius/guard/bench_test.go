package guard

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// listed is a cache of one namespace, which lists as that of controller-runtime does: each object
// is copied into the list, and nothing below it.
type listed struct {
	client.Reader
	pods, allocations []runtime.Object
	begins            func() // to list the pods
}

func (l *listed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if _, ok := list.(*corev1.PodList); ok {
		l.begins()
		return meta.SetList(list, l.pods)
	}
	return meta.SetList(list, l.allocations)
}

const (
	benchNodes       = 5000
	benchPodsPerNode = 10
	benchReplicas    = 10
)

// newListed is a namespace of 50,000 pods on 5,000 nodes, of workloads of ten replicas.
func newListed() *listed {
	l := &listed{begins: func() {}}
	for i := range benchNodes * benchPodsPerNode {
		pod, yes := &corev1.Pod{}, true
		owner := fmt.Sprint("db-", i/benchReplicas)
		pod.Namespace, pod.Name, pod.UID = "shop", fmt.Sprint(owner, "-", i%benchReplicas), types.UID(fmt.Sprint("uid-", i))
		pod.Spec.NodeName = fmt.Sprintf("node-%04d", i%benchNodes)
		pod.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(i%benchReplicas-60) * time.Minute))
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "StatefulSet", Name: owner, UID: types.UID(owner), Controller: &yes,
		}}
		pa := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: string(pod.UID)}}
		pa.Spec.PodRef = v1alpha1.PodRef{Name: pod.Name, UID: pod.UID}
		l.pods, l.allocations = append(l.pods, pod), append(l.allocations, pa)
	}
	return l
}

// BenchmarkStageChanges has one workload of 5,000 come to another stage, while 32 nodes are looked at: how long the
// pass over the namespace takes, how long a node waits for it at most, and how many nodes are looked at again.
func BenchmarkStageChanges(b *testing.B) {
	l := newListed()
	again := 0
	g := &Guard{Config: DefaultConfig(), HoldOff: 24 * time.Hour, Client: l, Changed: requeued(&again)}
	ns := namespace(map[string]string{kube.CanaryKey: "25"})
	look := func(node string, now time.Time) {
		if _, err := g.Of(b.Context(), ns, Look{node, now, func(*corev1.Pod) bool { return true }}); err != nil {
			b.Fatal(err)
		}
	}
	now := noon
	look("node-0000", now)
	var pass, longest time.Duration
	first := &l.allocations[0].(*v1alpha1.PodAllocation).Status.FirstAppliedTime
	for b.Loop() {
		now = now.Add(time.Minute)
		*first = metav1.NewMicroTime(now) // the trial has another end
		began, passing := time.Now(), make(chan struct{})
		l.begins = sync.OnceFunc(func() { close(passing) })
		var all sync.WaitGroup
		var mu sync.Mutex
		for i := range 32 {
			all.Go(func() {
				began := time.Now()
				look(fmt.Sprintf("node-%04d", i), now)
				mu.Lock()
				defer mu.Unlock()
				if took := time.Since(began); i > 0 {
					longest = max(longest, took)
				}
			})
			if i == 0 {
				<-passing
			}
		}
		all.Wait()
		pass += time.Since(began)
	}
	b.ReportMetric(float64(pass.Microseconds())/1000/float64(b.N), "ms/pass")
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest-wait")
	b.ReportMetric(float64(again)/float64(b.N), "nodes/change")
}

// requeued counts the nodes that are looked at again.
func requeued(n *int) func(string, []string) {
	return func(_ string, nodes []string) { *n += len(nodes) }
}
