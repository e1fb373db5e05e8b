package schedule

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/faults"
	"github.com/mbcas/mbcas/internal/testing/history"
	"github.com/mbcas/mbcas/internal/testing/memapi"
)

// agent is the agent of a node, and what it knows.
type agent struct {
	world   *world
	node    string
	stopped bool
	skew    time.Duration
	client  client.Client
	conn    *faults.Transport
	pods    map[types.UID]*decided
}

// decided is what an agent knows of a pod.
type decided struct {
	allocation types.UID // of the PodAllocation that it was told of
	namespace  string
	at         time.Time // of the published decision; zero: none, or not known
	spec       *decision // the last one; nil: none
	waits      bool      // it is not published yet
	stood      time.Time // when the agent last stood by the published one
}

type decision struct {
	limits []v1alpha1.ContainerLimit
	v1alpha1.Decision
}

// unconfirmedAfter is how long an agent confirms a decision in whose place it wants another one.
const unconfirmedAfter = 30 * time.Second

// newAgent is the agent of a node, with a connection of its own.
func (w *world) newAgent(node string) *agent {
	a := &agent{
		world: w, node: node, conn: &faults.Transport{Next: w.api, Wait: w.wait, Crash: func() {}},
		pods: map[types.UID]*decided{},
	}
	a.client = newClient(a.conn, "agent "+node, nil)
	return a
}

// follow takes in what the agent is told. Of a PodAllocation that is new to it, it reads what is published.
func (a *agent) follow() {
	exists, namespaces := map[types.UID]bool{}, map[types.UID]string{}
	for _, p := range memapi.All[*corev1.Pod](a.world.api) {
		if p.Spec.NodeName == a.node {
			namespaces[p.UID] = p.Namespace
		}
	}
	told := memapi.Get[*v1alpha1.NodeAllocation](a.world.api, "", a.node)
	if told == nil {
		told = &v1alpha1.NodeAllocation{}
	}
	for _, t := range told.Spec.Pods {
		known, namespace := a.pods[t.UID], namespaces[t.UID]
		if exists[t.UID] = namespace != ""; namespace == "" {
			continue // its node is told late that it has gone
		}
		if known != nil && known.allocation == t.AllocationUID {
			continue
		}
		next := &decided{allocation: t.AllocationUID, namespace: namespace}
		pa := memapi.Get[*v1alpha1.PodAllocation](a.world.api, namespace, string(t.UID))
		if pa != nil && pa.UID == t.AllocationUID && pa.Spec.Decision != nil {
			next.at, next.spec = pa.Spec.Decision.ObservedAt.Time, &decision{pa.Spec.Containers, *pa.Spec.Decision}
		} else if known != nil && known.spec != nil {
			next.spec, next.waits = known.spec, true
		}
		a.pods[t.UID] = next
	}
	maps.DeleteFunc(a.pods, func(uid types.UID, _ *decided) bool { return !exists[uid] })
}

// restart is an agent that ends and starts: it knows nothing.
func (a *agent) restart() { a.pods = map[types.UID]*decided{} }

// decide decides on limits for a pod, and publishes them.
func (a *agent) decide(uid types.UID, d *decision, script []string) {
	a.follow()
	if pod := a.pods[uid]; pod != nil && !a.stopped {
		pod.spec, pod.waits = d, true
		a.publish(uid, script)
	}
}

// publishAll publishes what waits.
func (a *agent) publishAll(script []string) {
	if a.follow(); a.stopped {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(a.pods)) {
		if a.pods[uid].waits {
			a.publish(uid, script)
		}
	}
}

// publish writes a decision as agents do.
func (a *agent) publish(uid types.UID, script []string) {
	w, pod := a.world, a.pods[uid]
	d := pod.spec.DeepCopy()
	d.ObservedAt = metav1.NewMicroTime(w.now.Add(a.skew))
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.allocation},
		"spec":     map[string]any{"desiredCPULimit": kube.Total(pod.spec.limits), "containers": pod.spec.limits, "decision": d},
	})
	if err != nil {
		panic(err) // it is numbers and strings
	}
	a.conn.Play(nil)
	if len(script) > 0 {
		text, _, _ := strings.Cut(script[0], "@")
		if f, err := faults.Parse(text); err == nil && !strings.HasPrefix(text, "crash") {
			w.counts["agent "+text]++
			a.conn.Play(faults.Rules(faults.Rule{Fault: f}))
		}
	}
	acting := w.acting
	w.acting = nil
	to := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: pod.namespace, Name: string(uid)}}
	err = a.client.Patch(w.context(), to, client.RawPatch(types.MergePatchType, raw), client.FieldOwner("mbcas-agent"))
	w.acting = acting
	if err != nil {
		pod.at = time.Time{} // it may have been written
		return
	}
	pod.waits, pod.at, pod.stood = false, d.ObservedAt.Time, w.now
}

// renew renews the Lease, which confirms the published decisions that the agent stands by.
func (a *agent) renew() {
	w := a.world
	if a.stopped || memapi.Get[*v1alpha1.NodeAllocation](w.api, "", a.node) == nil && len(a.pods) > 0 {
		a.pods = map[types.UID]*decided{}
	}
	if a.stopped || !w.exists(a.node) {
		return
	}
	a.follow()
	said := allocation.NodeMarket{}
	var unconfirmed []types.UID
	for uid, pod := range a.pods {
		if !pod.waits {
			pod.stood = w.now
		}
		if pod.at.After(said.Epoch.Time) {
			said.Epoch.Time = pod.at
		}
		if pod.spec != nil && w.now.Sub(pod.stood) > unconfirmedAfter {
			unconfirmed = append(unconfirmed, uid)
		}
	}
	if said.Unconfirmed = allocation.UnconfirmedOf(unconfirmed); memapi.Get[*v1alpha1.NodeAllocation](w.api, "", a.node) == nil {
		said.Unconfirmed = allocation.AllPods // what is published is not known
	}
	said.Quotas = w.reported(a.node)
	w.writeLease(a, said.Text())
	for _, uid := range slices.Sorted(maps.Keys(a.pods)) {
		pa := memapi.Get[*v1alpha1.PodAllocation](w.api, a.pods[uid].namespace, string(uid))
		if !said.Unconfirmed.Has(uid) && pa != nil && pa.Spec.Decision != nil {
			w.note(history.Event{Kind: history.Published, Pod: string(uid), Node: a.node, Stamp: pa.Spec.Decision.ObservedAt.Time})
		}
	}
}

// writeLease renews the Lease of an agent.
func (w *world) writeLease(a *agent, market string) {
	// As it is stored: the cache would show more digits than the API server.
	at := metav1.NewMicroTime(w.now.Add(a.skew).Truncate(time.Microsecond))
	change := func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = &at
		l.Annotations = map[string]string{kube.MarketKey: market}
	}
	if !memapi.Change(w.api, "agent "+a.node, w.Namespace, kube.AgentLease(a.node), change) {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: kube.AgentLease(a.node)}}
		change(l)
		w.create("agent "+a.node, l)
	}
}

// decideStep publishes limits for the first container of a pod, and a fifth for each other one.
func (w *world) decideStep(name, limit, price string, script []string) {
	pod := w.pod(name)
	if pod == nil {
		return
	}
	first := cpu.Milli(number(limit))
	d := &decision{Decision: v1alpha1.Decision{
		Budget: 100, Demand: first, Floor: 10, Ceiling: 4000, BoundBy: v1alpha1.BoundByNothing,
	}}
	for i, c := range kube.Containers(pod) {
		to := first
		if i > 0 {
			to = max(10, first/5)
		}
		d.limits = append(d.limits, v1alpha1.ContainerLimit{Name: c.Spec.Name, CPULimit: to})
	}
	if err := d.Price.UnmarshalText([]byte(price)); err == nil {
		w.agents[pod.Spec.NodeName].decide(pod.UID, d, script)
	}
}
