package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/quota"
)

// share is the highest total limit that short quotas leave a pod, and whose.
type share struct {
	most cpu.Milli
	by   []string
}

// divide divides what the quotas of a namespace leave over its pods, on all nodes.
func (r *Reconciler) divide(ctx context.Context, n *neighbourhood, namespace string) error {
	n.shares = map[types.UID]share{}
	now := r.Now()
	var claimants []claimant
	for i := range n.Quotas {
		q := &n.Quotas[i]
		room, bounds := constraints.CPUQuotaOf(q)
		if !bounds || !room.Known {
			continue
		}
		if claimants == nil {
			var err error
			if claimants, err = r.claimants(ctx, n, namespace, now); err != nil {
				return err
			}
		}
		var counted []claimant
		var claims []quota.Claim
		var seen, others cpu.Milli
		for _, c := range claimants {
			if !constraints.QuotaSelects(q, c.pod) {
				continue
			}
			seen += c.charged
			if !c.managed {
				others += c.charged
				continue
			}
			counted, claims = append(counted, c), append(claims, c.claim)
		}
		more, again := r.excess.lasting(quotaID{namespace, q.Name, q.UID}, room.Used-seen, now)
		if len(counted) == 0 {
			continue
		}
		n.sooner(again)
		shares, short := r.Config.Quota.Share(quota.Room{Hard: room.Hard, Used: room.Used, Others: others + more}, claims)
		if !short {
			continue
		}
		for j, c := range counted {
			s := n.shares[c.pod.UID]
			if s.by == nil || shares[j] < s.most {
				s.most = shares[j]
			}
			s.by = append(s.by, "ResourceQuota/"+q.Name)
			n.shares[c.pod.UID] = s
		}
	}
	return nil
}

// claimant is a pod with what it counts against quotas, and, where it is managed, what it claims of them.
type claimant struct {
	pod     *corev1.Pod
	managed bool
	claim   quota.Claim
	charged cpu.Milli
}

// claimants are the pods of a namespace that count against quotas, on all nodes.
func (r *Reconciler) claimants(ctx context.Context, n *neighbourhood, namespace string, now time.Time) ([]claimant, error) {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the pods of namespace %s: %w", namespace, err)
	}
	var allocations v1alpha1.PodAllocationList
	if err := r.Client.List(ctx, &allocations, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the PodAllocations of namespace %s: %w", namespace, err)
	}
	of := make(map[string]*v1alpha1.PodAllocation, len(allocations.Items))
	for i := range allocations.Items {
		of[allocations.Items[i].Name] = &allocations.Items[i]
	}
	list := []claimant{}
	sizes := map[string]cpu.Milli{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !constraints.CountsAgainstQuota(pod, now) {
			continue
		}
		pa := of[string(pod.UID)]
		if pa == nil || kube.Ended(pod) || len(pa.Status.DeclaredLimits) == 0 {
			list = append(list, claimant{pod: pod, charged: constraints.QuotaUsage(pod)})
			continue
		}
		size, ok := sizes[pod.Spec.NodeName]
		if !ok {
			var node corev1.Node
			if err := r.Client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &node); client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("read node %s: %w", pod.Spec.NodeName, err)
			}
			size = allocation.Node(&node).Allocatable
			sizes[pod.Spec.NodeName] = size
		}
		list = append(list, claimant{pod: pod, managed: true, claim: claimOf(&n.NamespaceObjects, pod, pa, size), charged: constraints.QuotaUsage(pod)})
	}
	return list, nil
}

// claimOf is a pod's claim. What its owner declared it may always have, and so what others than the quota ask for at least.
func claimOf(n *constraints.NamespaceObjects, pod *corev1.Pod, pa *v1alpha1.PodAllocation, allocatable cpu.Milli) quota.Claim {
	terms, _ := n.ConstraintsOf(pod, pa.Status.DeclaredLimits)
	terms.NoDecrease = "" // what it was raised by is not its own
	bounds := constraints.BoundsOf(pod, pa.Status.DeclaredLimits, allocatable, &terms)
	var floor, most cpu.Milli
	for _, b := range bounds.Containers {
		floor += b.Floor
		most += b.Ceiling
	}
	if bounds.Ceiling > 0 {
		most = min(most, bounds.Ceiling)
	}
	c := quota.Claim{Own: max(floor, kube.Total(pa.Status.DeclaredLimits)), Most: most, Budget: allocation.BaseBudget(pod, pa.Status.DeclaredLimits)}
	if d := pa.Spec.Decision; d != nil {
		c.Demand = d.Demand
		if p := terms.DemandPercent; p != nil {
			c.Demand = c.Demand * cpu.Milli(max(100, *p)) / 100 // as in the market, none is taken for less
		}
	}
	if t := pa.Status.Constraints; t != nil && t.IncreaseOnNeed && t.Ceiling != nil {
		c.Last = *t.Ceiling
	}
	return c
}

// bend adds the pod's share of short quotas to its terms.
func (s share) bend(t *v1alpha1.Constraints) {
	if s.by == nil {
		return
	}
	t.IncreaseOnNeed = true
	if t.Ceiling == nil || s.most < *t.Ceiling {
		t.Ceiling = &s.most
	}
	by := strings.Join(s.by, ", ")
	if t.CeilingBy != "" {
		by = t.CeilingBy + ", " + by
	}
	t.CeilingBy = by[:min(len(by), 512)]
}

// purse keeps raises within quotas: what was granted counts until the quota's status shows it, and in a namespace
// whose quota refused one all the same nobody gets more than its owner declared for a while.
type purse struct {
	mu         sync.Mutex
	granted    map[types.UID]grant
	namespaces map[string]refusals
}

// grant is a raise that was let through.
type grant struct {
	namespace string
	amount    cpu.Milli
	at        time.Time
	before    map[string]cpu.Milli // what each quota, by name, was to show without it, earlier grants with it
}

// refusals are those of the quotas of a namespace: at n different times, the last of which counts until then.
type refusals struct {
	n     int32
	until time.Time
	// forgotten is when the next refusal counts as the first again.
	forgotten time.Time
	rooms     []constraints.CPUQuota // at the last one
}

func newPurse() *purse {
	return &purse{granted: map[types.UID]grant{}, namespaces: map[string]refusals{}}
}

// quotaLag is how long a quota's status may take to reach our cache. Where others give back at the same time it does not tell by
// itself that a grant is in it. Should it take longer, a quota may refuse a raise.
const quotaLag = 3 * time.Second

// shows says whether the quota's status contains the grant by now.
func (g grant) shows(q constraints.CPUQuota, now time.Time) bool {
	before, ok := g.before[q.Name]
	return !ok || q.Used >= before+g.amount || now.Sub(g.at) >= quotaLag
}

// take grants up to below and above of a raise (see quota.Config.Grant) within all of the rooms, and keeps it in mind. again is when
// more may be granted even if no quota changes; zero: at no time.
func (p *purse) take(cfg quota.Config, pod *corev1.Pod, rooms []constraints.CPUQuota, below, above cpu.Milli, now time.Time) (granted cpu.Milli, again time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	if r := p.namespaces[pod.Namespace]; now.Before(r.until) && !eased(r.rooms, rooms) {
		above, again = 0, r.until
	}
	g := grant{namespace: pod.Namespace, at: now, before: map[string]cpu.Milli{}}
	for _, q := range rooms {
		if !q.Known {
			return 0, time.Time{}
		}
		reserved := cpu.Milli(0)
		for uid, other := range p.granted {
			switch {
			case now.Sub(other.at) >= quotaLag:
				delete(p.granted, uid)
			case uid != pod.UID && other.namespace == pod.Namespace && !other.shows(q, now):
				reserved += other.amount
				if end := other.at.Add(quotaLag); again.IsZero() || end.Before(again) {
					again = end
				}
			}
		}
		below, above = cfg.Grant(quota.Room{Hard: q.Hard, Used: q.Used}, reserved, below, above)
		g.before[q.Name] = q.Used + reserved
	}
	if g.amount = below + above; g.amount > 0 {
		p.granted[pod.UID] = g
	}
	return g.amount, again
}

// back returns a grant that was not used.
func (p *purse) back(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.granted, uid)
}

// refused notes that a quota refused a raise in these rooms. Many are on their way at once, so that one shortage may refuse them all: it
// counts once.
func (p *purse) refused(namespace string, cfg Config, now time.Time, rooms []constraints.CPUQuota) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	r := p.namespaces[namespace]
	if now.Before(r.until) {
		r.rooms = rooms
		p.namespaces[namespace] = r
		return
	}
	r.until = now.Add(lifecycle.Doubled(cfg.Backoff, cfg.BackoffMax, int(r.n)))
	r.n, r.forgotten, r.rooms = r.n+1, r.until.Add(cfg.BackoffMax), rooms
	p.namespaces[namespace] = r
}

// taken notes that the API server let a raise through: one that was on its way when another was refused says nothing.
func (p *purse) taken(namespace string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !now.Before(p.namespaces[namespace].until) {
		delete(p.namespaces, namespace)
	}
}

// forget drops refusals of long ago, whose namespace may be gone.
func (p *purse) forget(now time.Time) {
	for namespace, r := range p.namespaces {
		if !now.Before(r.forgotten) {
			delete(p.namespaces, namespace)
		}
	}
}

// afford cuts a raise down to what the quotas of the namespace have room for now. It returns QuotaShort where that is too little
// to be worth a resize. What was cut off is asked for again when the kubelet has carried out the rest; a change of a quota has the pod looked at
// again.
func (r *Reconciler) afford(ctx context.Context, t *task) (reasons.Reason, error) {
	pod := t.pod
	after := constraints.QuotaUsage(patched(pod, *t.Move))
	before := constraints.QuotaUsage(pod)
	if after <= before {
		return "", nil
	}
	var quotas corev1.ResourceQuotaList
	if err := r.Client.List(ctx, &quotas, client.InNamespace(pod.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list the ResourceQuotas of namespace %s: %w", pod.Namespace, err)
	}
	rooms := quotaRooms(quotas.Items, pod)
	if len(rooms) == 0 {
		return "", nil
	}
	raise := after - before
	below := min(raise, max(0, t.facts.Declared.Total()-before))
	granted, again := r.purse.take(r.Config.Quota, pod, rooms, below, raise-below, r.Now())
	if granted >= raise {
		return "", nil
	}
	cut, worth := quota.Shorten(*t.Move, granted, r.Config.Actuator.DeadBand)
	if !worth || !cut.Raises() {
		r.purse.back(pod.UID)
	}
	if !worth {
		t.Recheck(again)
		return reasons.WaitingForQuota, nil
	}
	t.Move = &cut
	return "", nil
}

// patched is a copy of the pod with the limits of the move in its spec.
func patched(pod *corev1.Pod, m actuator.Move) *corev1.Pod {
	to := map[string]cpu.Milli{}
	for _, c := range m.Changes {
		to[c.Container] = c.To
	}
	return kube.WithLimits(pod, to)
}
