package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/fakekubelet"
)

// The objects of a cluster that has been there for long are written to etcd as the API server
// stores them. To create 30,000 pods through the API server takes minutes and measures nothing of
// MBCAS.

// store writes to etcd by its JSON gateway.
type store struct {
	url     string
	pending []put
	encoder runtime.Encoder
}

// put is a key and a value; encoding/json writes bytes as base64, as the gateway wants.
type put struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// batch is how many keys are written at once: a request to etcd may have 1.5 MiB.
const batch = 64

func newStore(url string) *store {
	scheme := runtime.NewScheme()
	return &store{url: url, encoder: protobuf.NewSerializer(scheme, scheme)}
}

// add writes a core object.
func (s *store) add(ctx context.Context, key, kind string, o runtime.Object) error {
	o.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	var value bytes.Buffer
	if err := s.encoder.Encode(o, &value); err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	return s.put(ctx, key, value.Bytes())
}

func (s *store) put(ctx context.Context, key string, value []byte) error {
	s.pending = append(s.pending, put{[]byte("/registry/" + key), value})
	if len(s.pending) < batch {
		return nil
	}
	return s.flush(ctx)
}

// flush writes what is pending.
func (s *store) flush(ctx context.Context) error {
	type operation struct {
		Put put `json:"requestPut"`
	}
	operations := make([]operation, len(s.pending))
	for i, p := range s.pending {
		operations[i].Put = p
	}
	s.pending = s.pending[:0]
	body, err := json.Marshal(map[string]any{"success": operations})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v3/kv/txn", bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("write to etcd: %w", err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("write to etcd: %s %s: %w", response.Status, text, err)
	}
	return nil
}

// Requests and limits of the simulated pods.
var sizes = []struct{ request, limit cpu.Milli }{{50, 200}, {100, 300}, {250, 500}, {500, 1000}}

// specOf is what the i-th pod of the cluster is like. generation counts its successors.
func (w *world) specOf(i, generation int) fakekubelet.Spec {
	const perWorkload = 10
	workload := i / perWorkload
	size := sizes[workload%len(sizes)]
	return fakekubelet.Spec{
		Namespace: namespaceName(workload % w.namespaces()), Workload: fmt.Sprintf("service-%d", workload),
		Node: nodeName(i % w.nodes), Index: i%perWorkload + perWorkload*generation,
		Request: size.request, Limit: size.limit, Sidecar: i%4 == 0,
	}
}

func nodeName(i int) string      { return fmt.Sprintf("node-%05d", i) }
func namespaceName(i int) string { return fmt.Sprintf("team-%03d", i) }

// namespaces is how many the cluster has.
func (w *world) namespaces() int { return max(5, w.pods/300) }

// seedCluster writes nodes, pods and, unless they are to be created, their PodAllocations.
func (w *world) seedCluster(ctx context.Context, s *store) error {
	now := time.Now()
	since := metav1.NewTime(now.Add(-time.Hour).Truncate(time.Second))
	for i := range w.nodes {
		n := fakekubelet.NodeObject(nodeName(i), w.cores, now)
		n.UID, n.CreationTimestamp, n.Generation = uuid.NewUUID(), since, 1
		if err := s.add(ctx, "minions/"+n.Name, "Node", n); err != nil {
			return err
		}
		// Each node has a revision of its own: of keys that share one, the node informer of the API server's
		// admission may miss some when it resumes its watch, and it refuses resizes on nodes that it does not know.
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	for i := range w.pods {
		p := fakekubelet.PodObject(w.specOf(i, 0))
		p.UID, p.CreationTimestamp, p.Generation = uuid.NewUUID(), since, 1
		p.Status = fakekubelet.Running(p, since)
		fakekubelet.SetManagers(p, since)
		if err := s.add(ctx, "pods/"+p.Namespace+"/"+p.Name, "Pod", p); err != nil {
			return err
		}
		if w.seed {
			if err := w.seedAllocation(ctx, s, p, since); err != nil {
				return err
			}
		}
	}
	return s.flush(ctx)
}

// seedAllocation writes the PodAllocation of a pod as agent and controller leave it in recommend mode,
// while CPU is not scarce.
func (w *world) seedAllocation(ctx context.Context, s *store, pod *corev1.Pod, since metav1.Time) error {
	pa := allocation.New(pod)
	pa.APIVersion, pa.Kind = v1alpha1.GroupVersion.String(), "PodAllocation"
	pa.UID, pa.CreationTimestamp, pa.Generation = uuid.NewUUID(), since, 1
	declared := kube.Limits(pod)
	pa.Status.DeclaredLimits = declared
	if w.contended == 0 {
		pa.Spec.Containers, pa.Spec.Decision = w.decided(pod, declared[0], since)
		pa.Spec.DesiredCPULimit = &pa.Spec.Containers[0].CPULimit
		pa.Status.Phase, pa.Status.Reason = v1alpha1.PhaseNotApplied, string(reasons.Recommending)
		pa.Status.Message = reasons.Recommending.Sentence()
		allocation.SetConditions(&pa.Status, since.Time)
	}
	value, err := json.Marshal(pa)
	if err != nil {
		return err
	}
	return s.put(ctx, v1alpha1.GroupVersion.Group+"/podallocations/"+pa.Namespace+"/"+pa.Name, value)
}

// peak is how far above its mean the demand of a calm pod has been at some time.
const peak = 1 + 2*noiseSwing

// decided is the last decision about the only container of a pod with a limit: its ceiling if it
// has been throttled or has used half of its limit, else its limit.
func (w *world) decided(
	pod *corev1.Pod, declared v1alpha1.ContainerLimit, at metav1.Time,
) ([]v1alpha1.ContainerLimit, *v1alpha1.Decision) {
	kind, budget := w.kindOf(pod), kube.Milli(pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU])
	rng := drawn(fakekubelet.ContainerID(pod.UID, declared.Name))
	usage := mean(rng, kind, float64(budget), float64(declared.CPULimit))
	limit := declared.CPULimit
	ceiling := min(cpu.Milli(1000*w.cores), demand.RaiseCeiling(limit, demand.DefaultMaxRaise))
	if kind != calm || usage*peak > float64(limit)/2 {
		limit = ceiling
	}
	d := &v1alpha1.Decision{
		Demand: cpu.Milli(usage), Usage: cpu.Milli(min(usage, float64(declared.CPULimit))), Budget: int64(budget),
		PriorityPercent: 100, Floor: budget + cpu.Quantum, Ceiling: ceiling, BoundBy: v1alpha1.BoundByNothing,
		ObservedAt: metav1.NewMicroTime(at.Time),
	}
	return []v1alpha1.ContainerLimit{{Name: declared.Name, CPULimit: limit}}, d
}

// drawn is a generator that always draws the same for a name.
func drawn(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name)
	return rand.New(rand.NewPCG(h.Sum64(), 1))
}
