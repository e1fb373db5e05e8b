// Package ledger watches the demo's pods and writes down everything that happens to their resources. It
// judges from the API server alone, so what MBCAS says about itself does not count.
//
// Promises:
//   - A changed limit is a change: TestLimitChangesAreWrittenDown.
//   - Any other change of a pod's spec is a fault: TestOtherChangesAreFaults.
//   - Any change of a witness is a fault: TestWitnessesMustNotChange.
package ledger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/test/demo/internal/shop"
)

// Pod is a pod as it stands.
type Pod struct {
	UID, Namespace, Name, App string
	IP, ContainerID           string
	Request, Limit            int64 // CPU in thousandths of a core; 0: none
	Ready                     bool
	Workload                  shop.Workload
}

// Change is a new CPU limit of a pod.
type Change struct {
	At       time.Time
	UID, App string
	From, To int64
}

// Decision is what MBCAS says about a pod.
type Decision struct {
	Demand int64
	Price  string
	Phase  string
	Reason string
}

// Ledger is safe for use by several goroutines.
type Ledger struct {
	mu        sync.Mutex
	pods      map[string]*entry
	decisions map[string]Decision
	changes   []Change
	faults    []string
	failures  int
}

type entry struct {
	Pod
	bound      bool   // it has a node, so its spec is final
	rest       string // its spec without CPU limits
	generation int64
	restarts   int32
}

// New is an empty ledger.
func New() *Ledger {
	return &Ledger{pods: map[string]*entry{}, decisions: map[string]Decision{}}
}

// See writes down a pod as the API server shows it at a time.
func (l *Ledger) See(now time.Time, pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := read(pod)
	was, known := l.pods[p.UID]
	if !known {
		was = &entry{}
		l.pods[p.UID] = was
	}
	before := was.Pod
	was.Pod = p
	if pod.Spec.NodeName == "" {
		return
	}
	rest, err := withoutLimits(pod)
	if err != nil {
		l.faults = append(l.faults, fmt.Sprintf("%s: %v", p.Name, err))
		return
	}
	if !was.bound {
		was.bound, was.rest, was.generation = true, rest, pod.Generation
		return
	}
	if before.Limit != p.Limit {
		l.changes = append(l.changes, Change{now, p.UID, p.App, before.Limit, p.Limit})
	}
	if rest != was.rest {
		was.rest = rest
		l.faults = append(l.faults, fmt.Sprintf("%s: its spec changed in more than CPU limits", p.Name))
	}
	if !p.Workload.Managed() && pod.DeletionTimestamp == nil && (before.Limit != p.Limit || pod.Generation != was.generation) {
		was.generation = pod.Generation
		l.faults = append(l.faults, fmt.Sprintf("%s (%s): was touched: limit %dm, then %dm", p.Name, p.Workload.Witness, before.Limit, p.Limit))
	}
	if n := restarts(pod); n > was.restarts {
		was.restarts = n
		l.faults = append(l.faults, fmt.Sprintf("%s: its container was restarted", p.Name))
	}
}

// Gone forgets a pod that is deleted; what was written about it stays.
func (l *Ledger) Gone(uid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pods, uid)
	delete(l.decisions, uid)
}

// Decide writes down what MBCAS says.
func (l *Ledger) Decide(pa *v1alpha1.PodAllocation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := Decision{Phase: string(pa.Status.Phase), Reason: pa.Status.Reason}
	if pa.Spec.Decision != nil {
		d.Demand, d.Price = int64(pa.Spec.Decision.Demand), pa.Spec.Decision.Price
	}
	uid := string(pa.Spec.PodRef.UID)
	if failed := string(v1alpha1.PhaseFailed); d.Phase == failed && l.decisions[uid].Phase != failed {
		l.failures++
	}
	l.decisions[uid] = d
}

// Failures is how often MBCAS itself said that a resize failed, such as one that the kubelet did not carry out.
func (l *Ledger) Failures() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures
}

// Pods are those there are, in the order of shop.Workloads.
func (l *Ledger) Pods() []Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	var pods []Pod
	for _, e := range l.pods {
		pods = append(pods, e.Pod)
	}
	order := map[string]int{}
	for i, w := range shop.Workloads() {
		order[w.Name] = i
	}
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(order[a.App], order[b.App]), strings.Compare(a.Name, b.Name))
	})
	return pods
}

// Pod is the one of a Deployment.
func (l *Ledger) Pod(app string) (Pod, error) {
	for _, p := range l.Pods() {
		if p.App == app {
			return p, nil
		}
	}
	return Pod{}, fmt.Errorf("no pod of %s is there", app)
}

// Decision is the last one about a pod.
func (l *Ledger) Decision(uid string) (Decision, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, ok := l.decisions[uid]
	return d, ok
}

// Changes are those between two times.
func (l *Ledger) Changes(from, to time.Time) []Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	var in []Change
	for _, c := range l.changes {
		if !c.At.Before(from) && c.At.Before(to) {
			in = append(in, c)
		}
	}
	return in
}

// Faults are what must never happen and did.
func (l *Ledger) Faults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.faults)
}

func read(pod *corev1.Pod) Pod {
	p := Pod{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name,
		App: pod.Labels[shop.App], IP: pod.Status.PodIP,
	}
	p.Workload, _ = shop.Find(p.App)
	for _, c := range pod.Spec.Containers {
		p.Request += c.Resources.Requests.Cpu().MilliValue()
		p.Limit += c.Resources.Limits.Cpu().MilliValue()
	}
	for _, s := range pod.Status.ContainerStatuses {
		if _, id, ok := strings.Cut(s.ContainerID, "://"); ok && s.State.Running != nil {
			p.ContainerID = id
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			p.Ready = c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return p
}

func restarts(pod *corev1.Pod) (n int32) {
	for _, s := range pod.Status.ContainerStatuses {
		n += s.RestartCount
	}
	return n
}

func withoutLimits(pod *corev1.Pod) (string, error) {
	spec := pod.Spec.DeepCopy()
	for i := range spec.Containers {
		delete(spec.Containers[i].Resources.Limits, corev1.ResourceCPU)
	}
	spec.TerminationGracePeriodSeconds = nil // a deletion may change it
	text, err := json.Marshal(spec)
	return string(text), err
}
