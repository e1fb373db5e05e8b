package guard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/blastradius"
	"github.com/mbcas/mbcas/internal/kube"
)

// canaries remember what was judged of the workloads of each namespace that has a canary. All of it may be lost.
type canaries struct {
	mu         sync.Mutex
	namespaces map[string]*judged
	swept      time.Time // when what nothing asks about was last forgotten
}

// judged is what holds for the workloads of a namespace, since at.
type judged struct {
	pass sync.Mutex // held while they are judged, before mu

	asked time.Time // about it last; canaries.mu guards it

	mu    sync.Mutex // of all below
	rule  blastradius.Canary
	at    time.Time
	valid time.Duration
	workloads
	// awaited is the node that looks again, because it was answered from memory; "": none is.
	awaited string
}

// workloads is what holds for those of a namespace: for each of its pods that were judged.
type workloads struct {
	verdicts map[string]blastradius.Verdict // by workload; nil: not judged
	pods     map[types.UID]bool
}

// A namespace is judged at most once in leastValid, and in a second more for each podsPerSecond pods: each time all
// its pods are walked. Longer finds harm later; shorter costs more CPU.
const (
	leastValid    = time.Second
	podsPerSecond = 5000
)

// stopShown is how long it takes at most until the status of a pod shows that its workload was stopped.
const stopShown = time.Minute

// askedWithin is for how long what was judged is kept that nothing asks about: of a namespace that was deleted.
const askedWithin = time.Hour

// forget forgets a namespace without a canary.
func (c *canaries) forget(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.namespaces, namespace)
}

// of is what was judged of a namespace. What nothing has asked about for askedWithin is forgotten.
func (c *canaries) of(namespace string, now time.Time) *judged {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.swept) >= askedWithin {
		c.swept = now
		maps.DeleteFunc(c.namespaces, func(_ string, j *judged) bool { return now.Sub(j.asked) >= askedWithin })
	}
	j := c.namespaces[namespace]
	if j == nil {
		if c.namespaces == nil {
			c.namespaces = map[string]*judged{}
		}
		j = &judged{}
		c.namespaces[namespace] = j
	}
	j.asked = now
	return j
}

// judge is what holds for the workloads of a namespace. Of the nodes that are answered from memory
// one looks again, because what has brought it here may not count yet. While another node has the
// namespace judged, no node waits for that which can be answered from memory.
func (g *Guard) judge(
	ctx context.Context, rule blastradius.Canary, namespace string, l Look,
) (w workloads, again time.Time, err error) {
	j := g.canaries.of(namespace, l.Now)
	if w, again, known := j.remembered(rule, l, false); known {
		return w, again, nil
	}
	if !j.pass.TryLock() {
		if w, again, known := j.remembered(rule, l, true); known {
			return w, again, nil
		}
		j.pass.Lock()
	}
	defer j.pass.Unlock()
	if w, again, known := j.remembered(rule, l, false); known {
		return w, again, nil // they were judged meanwhile
	}
	w, pods, err := g.judgeAll(ctx, rule, namespace, l)
	if err != nil {
		return w, again, err
	}
	if changed := j.take(rule, l.Now, w); len(changed) > 0 {
		g.Changed(namespace, nodesOf(pods, changed))
	}
	return w, again, nil
}

// remembered is what was judged last by that rule. It is known for as long as it is valid, or however old it is.
func (j *judged) remembered(rule blastradius.Canary, l Look, old bool) (w workloads, again time.Time, known bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	age := l.Now.Sub(j.at)
	if j.verdicts == nil || j.rule != rule || !old && (age < 0 || age >= j.valid) {
		return w, again, false
	}
	if j.awaited = cmp.Or(j.awaited, l.Node); j.awaited == l.Node {
		again = j.at.Add(j.valid)
	}
	if old && !again.IsZero() {
		again = l.Now.Add(leastValid)
	}
	return j.workloads, again, true
}

// take takes in what was judged, and names the workloads that have come to another stage, or whose
// stage ends at another time.
func (j *judged) take(rule blastradius.Canary, now time.Time, w workloads) map[string]bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for name, v := range j.verdicts { // a stop that the caches do not show yet
		if _, exists := w.verdicts[name]; exists && v.Stage == blastradius.Stopped && now.Sub(v.FoundAt) < stopShown {
			w.verdicts[name] = v
		}
	}
	changed := map[string]bool{}
	for name, v := range w.verdicts {
		if b, known := j.verdicts[name]; known && (b.Stage != v.Stage || !b.Until.Equal(v.Until)) {
			changed[name] = true
		}
	}
	j.rule, j.at, j.workloads, j.awaited = rule, now, w, ""
	j.valid = leastValid + time.Duration(len(w.pods))*time.Second/podsPerSecond
	return changed
}

// nodesOf are the nodes of some workloads, each once.
func nodesOf(pods []corev1.Pod, of map[string]bool) (nodes []string) {
	for i := range pods {
		if pod := &pods[i]; pod.Spec.NodeName != "" && of[kube.Workload(pod)] {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// judgeAll judges the workloads of a namespace by its pods, which it returns too, and PodAllocations, both from caches.
func (g *Guard) judgeAll(
	ctx context.Context, rule blastradius.Canary, namespace string, l Look,
) (w workloads, _ []corev1.Pod, _ error) {
	var pods corev1.PodList
	var allocations v1alpha1.PodAllocationList
	for _, list := range []client.ObjectList{&pods, &allocations} {
		if err := g.Client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil && !kube.NotServed(err) {
			return w, nil, fmt.Errorf("list %T of namespace %s: %w", list, namespace, err)
		}
	}
	of := make(map[types.UID]*v1alpha1.PodAllocation, len(allocations.Items))
	for i := range allocations.Items {
		of[allocations.Items[i].Spec.PodRef.UID] = &allocations.Items[i]
	}
	replicas := map[string][]blastradius.Replica{}
	w = workloads{map[string]blastradius.Verdict{}, make(map[types.UID]bool, len(pods.Items))}
	for i := range pods.Items {
		if pod := &pods.Items[i]; l.Managed(pod) {
			name := kube.Workload(pod)
			replicas[name] = append(replicas[name], replicaOf(pod, of[pod.UID]))
			w.pods[pod.UID] = true
		}
	}
	for name, list := range replicas {
		w.verdicts[name] = rule.Judge(list, l.Now)
	}
	return w, pods.Items, nil
}
