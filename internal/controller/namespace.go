package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/autoscalers"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/nodeallocation"
	"github.com/mbcas/mbcas/internal/quota"
)

// namespaceState is a namespace with all that constrains decisions about its pods.
type namespaceState struct {
	constraints.NamespaceObjects
	exists    bool
	mode      kube.Mode
	shares    map[types.UID]share // of quotas that are short
	recheckAt time.Time           // when they may change though nothing does; zero: they will not
	// signalsKnown: the DemandSignals have been listed since the start.
	signalsKnown bool
	// unknownAutoscaler says what is not known of the autoscalers of any pod; "" where all is.
	unknownAutoscaler string
}

// gatherNamespace gathers a namespace, once for each look at a node.
func (r *Reconciler) gatherNamespace(ctx context.Context, s *snapshot, name string) (*namespaceState, error) {
	if n := s.namespaces[name]; n != nil {
		return n, nil
	}
	n := &namespaceState{signalsKnown: true}
	var ns metav1.PartialObjectMetadata
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	switch err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &ns); {
	case apierrors.IsNotFound(err):
		return n, nil
	case err != nil:
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	n.exists = true
	n.mode, _ = kube.ModeOf(ns.Labels, r.Config.Mode)
	if n.mode != kube.ModeOff && !kube.AlwaysUnmanaged(name, r.Config.Namespace) {
		if err := r.gatherConstraints(ctx, n, name); err != nil {
			return nil, err
		}
	}
	s.namespaces[name] = n
	s.recheckAt = lifecycle.Earlier(s.recheckAt, n.recheckAt)
	return n, nil
}

// gatherConstraints reads the objects of the namespace that constrain its pods.
func (r *Reconciler) gatherConstraints(ctx context.Context, n *namespaceState, name string) error {
	var hpas autoscalingv2.HorizontalPodAutoscalerList
	var pdbs policyv1.PodDisruptionBudgetList
	var ranges corev1.LimitRangeList
	var quotas corev1.ResourceQuotaList
	for _, list := range []client.ObjectList{&hpas, &pdbs, &ranges, &quotas} {
		if err := r.list(ctx, list, client.InNamespace(name)); err != nil {
			return err
		}
	}
	n.HPAs, n.PDBs, n.LimitRanges, n.Quotas = hpas.Items, pdbs.Items, ranges.Items, quotas.Items
	var err error
	if n.VPAs, n.unknownAutoscaler, err = r.lookups.vpas.List(ctx, name); err != nil {
		return err
	}
	n.Signals, n.signalsKnown = r.lookups.percentages(name)
	if err := r.lookUpSelectors(ctx, n, name); err != nil {
		return err
	}
	return r.divide(ctx, n, name)
}

// lookUpSelectors finds the pods of the targets that are not known by their owners. They are looked
// up side by side, so that targets that hang delay the node no longer than one.
func (r *Reconciler) lookUpSelectors(ctx context.Context, n *namespaceState, name string) error {
	n.Selectors, n.LookupErrors = map[kube.Target]labels.Selector{}, map[kube.Target]string{}
	var mu sync.Mutex
	return each(r.Config.Pods, n.SelectedTargets(), func(t kube.Target) error {
		s, err := r.lookups.scaleTargets.Selector(ctx, name, t)
		if ctx.Err() != nil {
			return fmt.Errorf("find the pods of %s in namespace %s: %w", t, name, ctx.Err())
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			n.LookupErrors[t] = autoscalers.Cause(err)
		} else if s != nil {
			n.Selectors[t] = s
		}
		return nil
	})
}

// versions names the versions of LimitRanges; "" where there are none.
func versions(ranges []corev1.LimitRange) string {
	names := make([]string, len(ranges))
	for i, l := range ranges {
		names[i] = l.Name + "=" + l.ResourceVersion
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// unmanaged names one of a workload's pods, and why MBCAS does not resize it; "" if it resizes one
// of them, or will, or if that is not known at present.
func (r *Reconciler) unmanaged(ctx context.Context, pods []*corev1.Pod) (name string, why reasons.Reason) {
	namespace := pods[0].Namespace
	if closed, _ := r.Gate.Closed(); closed == reasons.CRDNotInstalled {
		return "", ""
	}
	allocations, err := r.allocations(ctx, client.InNamespace(namespace))
	if err != nil {
		return "", ""
	}
	if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return allocations[allocationOf(p)] != nil }) {
		return "", "" // the usual case, known without the other objects of the namespace
	}
	n, err := r.gatherNamespace(ctx, &snapshot{namespaces: map[string]*namespaceState{}}, namespace)
	if err != nil {
		return "", ""
	}
	for _, pod := range pods {
		reason := n.exclusion(pod, r.Config.Namespace).Reason
		if reason == "" {
			return "", "" // its PodAllocation is on its way
		}
		if name == "" {
			name, why = pod.Name, reason
		}
	}
	return name, why
}

// quotaState is what is known of the quotas of all namespaces. Several nodes are reconciled at the
// same time.
type quotaState struct {
	mu           sync.Mutex
	reservations *quota.Reservations
	drift        quota.Drift
}

// share is the highest total limit that short quotas leave a pod, and the quotas that set it.
type share struct {
	most cpu.Milli
	by   []string
}

// divide divides what the quotas of a namespace leave over its pods, on all nodes.
func (r *Reconciler) divide(ctx context.Context, n *namespaceState, namespace string) error {
	n.shares = map[types.UID]share{}
	var claimants []claimant
	for i := range n.Quotas {
		q := &n.Quotas[i]
		room, bounds := constraints.CPUQuotaOf(q)
		if !bounds || !room.Known {
			continue
		}
		if claimants == nil {
			var err error
			if claimants, err = r.claimants(ctx, n, namespace); err != nil {
				return err
			}
		}
		var pods []types.UID
		var claims []quota.Claim
		var seen, others cpu.Milli
		for _, c := range claimants {
			switch charged := constraints.QuotaUsage(c.pod); {
			case !constraints.QuotaSelects(q, c.pod):
			case c.managed:
				seen += charged
				pods, claims = append(pods, c.pod.UID), append(claims, c.claim)
			default:
				seen += charged
				others += charged
			}
		}
		r.quotas.mu.Lock()
		drift, again := r.quotas.drift.Lasting(string(q.UID), room.Used-seen, r.Now())
		r.quotas.mu.Unlock()
		if len(pods) == 0 {
			continue
		}
		n.recheckAt = lifecycle.Earlier(n.recheckAt, again)
		shares, short := r.Config.Quota.Share(quota.Room{Hard: room.Hard, Used: room.Used, Others: others + drift}, claims)
		if !short {
			continue
		}
		for j, uid := range pods {
			s := n.shares[uid]
			if s.by == nil || shares[j] < s.most {
				s.most = shares[j]
			}
			s.by = append(s.by, "ResourceQuota/"+q.Name)
			n.shares[uid] = s
		}
	}
	return nil
}

// claimant is a pod that counts against quotas, and what it claims of them if it is managed.
type claimant struct {
	pod     *corev1.Pod
	managed bool
	claim   quota.Claim
}

// claimants are the pods of a namespace that count against quotas, on all nodes.
func (r *Reconciler) claimants(ctx context.Context, n *namespaceState, namespace string) ([]claimant, error) {
	var pods corev1.PodList
	if err := r.list(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	of, err := r.allocations(ctx, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	list := []claimant{}
	sizes, told := map[string]cpu.Milli{}, map[string]nodeallocation.Told{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !constraints.CountsAgainstQuota(pod, r.Now()) {
			continue
		}
		c := claimant{pod: pod}
		pa, node := of[allocationOf(pod)], pod.Spec.NodeName
		if c.managed = pa != nil && !kube.Ended(pod) && len(pa.Status.DeclaredLimits) > 0; c.managed {
			if _, ok := sizes[node]; !ok {
				var o corev1.Node
				if err := r.Client.Get(ctx, types.NamespacedName{Name: node}, &o); client.IgnoreNotFound(err) != nil {
					return nil, fmt.Errorf("read node %s: %w", node, err)
				}
				sizes[node] = allocation.Node(&o).Allocatable
				if told[node], err = r.memory.told.Told(ctx, node); err != nil {
					return nil, err
				}
			}
			c.claim = allocation.QuotaClaim(&n.NamespaceObjects, pod, pa, told[node].Constraints(pod.UID), sizes[node])
		}
		list = append(list, c)
	}
	return list, nil
}

// constrain adds the pod's share of short quotas to its constraints.
func (s share) constrain(c *v1alpha1.Constraints) {
	if s.by == nil {
		return
	}
	c.IncreaseOnNeed = true
	if c.Ceiling == nil || s.most < *c.Ceiling {
		c.Ceiling = &s.most
	}
	by := strings.Join(s.by, ", ")
	if c.CeilingBy != "" {
		by = c.CeilingBy + ", " + by
	}
	c.CeilingBy = by[:min(len(by), 512)]
}

// rooms are those of the quotas that bound the CPU limits of the pod.
func rooms(quotas []corev1.ResourceQuota, pod *corev1.Pod) (list []quota.Room) {
	for i := range quotas {
		q, ok := constraints.CPUQuotaOf(&quotas[i])
		if !ok || !constraints.QuotaSelects(&quotas[i], pod) {
			continue
		}
		room := quota.Room{Name: q.Name}
		if q.Known {
			room.Hard, room.Used = q.Hard, q.Used
		}
		list = append(list, room)
	}
	return list
}

// reserve shortens an increase to what the quotas of the namespace have room for now. It returns
// WaitingForQuota where that is too little to be worth a resize. The rest is asked for again when the
// kubelet has carried this out; a change of a quota has the pod looked at again.
func (r *Reconciler) reserve(ctx context.Context, t *task) (reasons.Reason, error) {
	to := map[string]cpu.Milli{}
	for _, c := range t.Move.Changes {
		to[c.Container] = c.To
	}
	before := constraints.QuotaUsage(t.pod)
	increase := constraints.QuotaUsage(kube.WithLimits(t.pod, to)) - before
	if increase <= 0 {
		return "", nil
	}
	var quotas corev1.ResourceQuotaList
	if err := r.list(ctx, &quotas, client.InNamespace(t.pod.Namespace)); err != nil {
		return "", err
	}
	within := rooms(quotas.Items, t.pod)
	if len(within) == 0 {
		return "", nil
	}
	below := min(increase, max(0, t.facts.Declared.Total()-before))
	i := quota.Increase{Namespace: t.pod.Namespace, Pod: string(t.pod.UID), Below: below, Above: increase - below}
	r.quotas.mu.Lock()
	defer r.quotas.mu.Unlock()
	granted, again := r.quotas.reservations.Reserve(i, within, r.Now())
	if granted >= increase {
		return "", nil
	}
	cut, worth := quota.Shorten(*t.Move, granted, r.Config.Actuator.DeadBand)
	if !worth || !cut.Raises() {
		r.quotas.reservations.Release(i.Pod)
	}
	if !worth {
		t.Recheck(again)
		return reasons.WaitingForQuota, nil
	}
	t.Move = &cut
	return "", nil
}

// release returns what was reserved for a resize that is not made.
func (q *quotaState) release(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reservations.Release(string(t.pod.UID))
}

// settle tells the reservations what came of a resize.
func (q *quotaState) settle(t *task, o podresize.Outcome, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch o {
	case podresize.Accepted:
		if t.Move.Raises() {
			q.reservations.Accepted(t.pod.Namespace, now)
		}
	case podresize.Unknown: // it may have been charged
	default:
		q.reservations.Release(string(t.pod.UID))
	}
	if o == podresize.QuotaExceeded {
		q.reservations.Refused(t.pod.Namespace, t.admission.quotas, now)
	}
}
