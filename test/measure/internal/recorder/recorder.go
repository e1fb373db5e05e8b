// Package recorder records what happens to a script's pods: their resources by the API server,
// their counters by the kernel, and their requests. What MBCAS reports about itself is shown beside
// it, and no figure depends on it.
//
// Promises:
//   - A changed limit is a change: TestLimitChangesAreRecorded.
//   - A request belongs to the phase of its intended arrival:
//     TestRequestsBelongToTheirIntendedPhase.
//   - Throttling after a step counts from the fifth second: TestThrottledAfterTheStep.
//   - Usage does, too, and is of a hog or a service: TestUsage.
package recorder

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/watch"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// Labels of the objects of a measurement.
const (
	App         = "app.kubernetes.io/name" // of the pods of a workload, with its name
	PartOf      = "app.kubernetes.io/part-of"
	PartOfValue = "mbcas-measure"
)

// Pod is a pod as the API server has it.
type Pod struct {
	UID, Name, App  string
	IP, ContainerID string
	Request, Limit  cpu.Milli // 0: none
	Ready           bool
	Created         time.Time
}

// Change is a new CPU limit of a pod.
type Change struct {
	At       time.Time
	App      string
	From, To cpu.Milli
}

// NewPod is a pod that came and went, and what the quota had for it.
type NewPod struct {
	Second    float64  `json:"s"`
	Free      int64    `json:"free_m"` // just before
	Refused   string   `json:"refused,omitempty"`
	Ready     *float64 `json:"ready_after_s"`
	FreeAgain *float64 `json:"headroom_free_after_s"`
}

// New is a recorder of the pods of a script on a node.
func New(s *script.Script, node cgroup.Node) *Recorder {
	return &Recorder{
		Script: s, Node: node,
		pods: map[string]*entry{}, decisions: map[string]decision{}, desired: map[string]int{},
	}
}

// Recorder is safe for use by several goroutines.
type Recorder struct {
	Script *script.Script
	Node   cgroup.Node

	mu         sync.Mutex
	pods       map[string]*entry // by UID
	decisions  map[string]decision
	desired    map[string]int // replicas, by HPA
	used, hard cpu.Milli      // of the quota
	changes    []Change
	failures   int
}

type entry struct {
	Pod
	bound bool // it has a node, so its spec is final
	order int
}

// decision is what MBCAS reports about a pod.
type decision struct {
	demand cpu.Milli
	price  string
	at     time.Time // of the counters behind it
	phase  v1alpha1.Phase
}

// Watch records until ctx ends. It returns once everything that exists is recorded.
func (r *Recorder) Watch(ctx context.Context, config *rest.Config) error {
	ours := labels.SelectorFromSet(labels.Set{PartOf: PartOfValue})
	return watch.Objects(ctx, config, map[client.Object]labels.Selector{
		&corev1.Pod{}: ours, &autoscalingv2.HorizontalPodAutoscaler{}: ours, &corev1.ResourceQuota{}: ours,
		&v1alpha1.PodAllocation{}: nil,
	}, func(o client.Object) { r.see(time.Now(), o) }, r.deleted)
}

// see records an object as the API server has it at a time.
func (r *Recorder) see(now time.Time, o client.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o := o.(type) {
	case *corev1.Pod:
		r.seePod(now, o)
	case *v1alpha1.PodAllocation:
		r.seeDecision(o)
	case *autoscalingv2.HorizontalPodAutoscaler:
		r.desired[o.Name] = int(o.Status.DesiredReplicas)
	case *corev1.ResourceQuota:
		used, hard := o.Status.Used[corev1.ResourceLimitsCPU], o.Status.Hard[corev1.ResourceLimitsCPU]
		r.used, r.hard = cpu.Milli(used.MilliValue()), cpu.Milli(hard.MilliValue())
	}
}

func (r *Recorder) deleted(o client.Object) {
	if pod, ok := o.(*corev1.Pod); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.pods, string(pod.UID))
		delete(r.decisions, string(pod.UID))
	}
}

func (r *Recorder) seePod(now time.Time, pod *corev1.Pod) {
	p := read(pod)
	e, known := r.pods[p.UID]
	if !known {
		e = &entry{order: slices.IndexFunc(r.Script.Workloads, func(w script.Workload) bool { return w.Name == p.App })}
		r.pods[p.UID] = e
	}
	if e.bound && e.Limit != p.Limit {
		r.changes = append(r.changes, Change{now, p.App, e.Limit, p.Limit})
	}
	e.Pod, e.bound = p, pod.Spec.NodeName != ""
}

func read(pod *corev1.Pod) Pod {
	p := Pod{
		UID: string(pod.UID), Name: pod.Name,
		App: pod.Labels[App], IP: pod.Status.PodIP, Created: pod.CreationTimestamp.Time,
	}
	for _, c := range pod.Spec.Containers {
		p.Request += cpu.Milli(c.Resources.Requests.Cpu().MilliValue())
		p.Limit += cpu.Milli(c.Resources.Limits.Cpu().MilliValue())
	}
	for _, s := range pod.Status.ContainerStatuses {
		if _, id, ok := strings.Cut(s.ContainerID, "://"); ok && s.State.Running != nil {
			p.ContainerID = id
		}
	}
	p.Ready = slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
	})
	return p
}

func (r *Recorder) seeDecision(pa *v1alpha1.PodAllocation) {
	d := decision{phase: pa.Status.Phase}
	if pa.Spec.Decision != nil {
		d.demand, d.price = pa.Spec.Decision.Demand, pa.Spec.Decision.Price.String()
		d.at = pa.Spec.Decision.ObservedAt.Time
	}
	uid := string(pa.Spec.PodRef.UID)
	if d.phase == v1alpha1.PhaseFailed && r.decisions[uid].phase != v1alpha1.PhaseFailed {
		r.failures++
	}
	r.decisions[uid] = d
}

// Pods are those of a workload, or with "" all of them: in the order of the script, Ready ones
// first.
func (r *Recorder) Pods(app string) (pods []Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*entry
	for _, e := range r.pods {
		if app == "" || e.App == app {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int {
		if a.order == b.order && a.Ready != b.Ready {
			return map[bool]int{true: -1, false: 1}[a.Ready]
		}
		return cmp.Or(cmp.Compare(a.order, b.order), strings.Compare(a.Name, b.Name))
	})
	for _, e := range all {
		pods = append(pods, e.Pod)
	}
	return pods
}

// Pod is the first pod of a workload.
func (r *Recorder) Pod(app string) (Pod, error) {
	if all := r.Pods(app); len(all) > 0 {
		return all[0], nil
	}
	return Pod{}, fmt.Errorf("workload %s has no pod", app)
}

// Quota is what the quota controller counts as used, and the quota.
func (r *Recorder) Quota() (used, hard cpu.Milli) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used, r.hard
}

// Changes are those between two times.
func (r *Recorder) Changes(from, to time.Time) (in []Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.changes {
		if !c.At.Before(from) && c.At.Before(to) {
			in = append(in, c)
		}
	}
	return in
}

// Failures is how often MBCAS itself reported a failed resize.
func (r *Recorder) Failures() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures
}

// NotRestored are the managed pods whose limit differs from the declared one, by the API server and
// by the kernel.
func (r *Recorder) NotRestored() (wrong []string) {
	for _, p := range r.Pods("") {
		w, _ := r.Script.Find(p.App)
		if p.Limit != w.Limit {
			wrong = append(wrong, fmt.Sprintf("%s has limit %v, declared %v", p.Name, p.Limit, w.Limit))
			continue
		}
		files, err := r.Node.Find(p.ContainerID)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", p.Name, err))
		} else if quota, err := files.Quota(); err != nil || cpu.Milli(quota) != w.Limit {
			text := "%s has limit %dm in the kernel, declared %v; %v"
			wrong = append(wrong, fmt.Sprintf(text, p.Name, quota, w.Limit, err))
		}
	}
	return wrong
}
