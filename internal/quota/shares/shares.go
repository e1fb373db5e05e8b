// Package shares divides ResourceQuotas on CPU limits that are short: those that leave the pods of their
// namespace, on all nodes, less than these demand.
//
// What it promises, each a test of the same name:
//   - DividedOnce: a namespace is divided when something has changed, once a second at most, and not at
//     each look at a node.
//   - WakesWhatChanges: after a division, nodes are looked at whose pods have another share, and no others.
//   - WaitersAreWoken: when a quota is used less, nodes are looked at whose pods wait for it, once.
//   - NoChangeIsLost: what changes while a look reads quotas has the next look divide again.
//   - TheOneNodeMayBeGone: if the node whose look is to divide does not exist any more, all are looked at.
package shares

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/nodeallocation"
	"github.com/mbcas/mbcas/internal/quota"
)

// Divider divides the quotas of all namespaces. Its methods may be called from several goroutines.
type Divider struct {
	Config quota.Config
	// Client reads from caches.
	Client client.Reader
	// Allocations are the PodAllocations of a namespace by their keys.
	Allocations func(ctx context.Context, namespace string) (map[types.NamespacedName]*v1alpha1.PodAllocation, error)
	// Told is what the agent of a node is told.
	Told func(ctx context.Context, node string) (nodeallocation.Told, error)
	// Wake has nodes looked at, whose pods have other shares than before.
	Wake func(ctx context.Context, nodes []string)

	mu         sync.Mutex
	watched    bool // Watch was called, so changes counts
	drift      quota.Drift
	changes    map[string]int64 // of the pods of a namespace, or of the usage of its quotas
	freed      map[string]int64 // how often a quota of a namespace was used less
	namespaces map[string]*division
	by         map[string]string          // the node whose look divides again, by namespace
	awaited    map[string]time.Time       // since when that look is awaited, by namespace
	waiting    map[string]map[string]bool // nodes with pods that wait for quotas, by namespace
	pruned     time.Time
}

// division is the last division of a namespace.
type division struct {
	looked time.Time // guarded by Divider.mu

	mu      sync.Mutex
	changes int64  // those that it knows of
	pending bool   // something has changed since, and a look is to come that divides again
	quotas  string // their bounds then
	at      time.Time
	result  Division
}

// Division has the shares of the pods of a namespace in its short quotas.
type Division struct {
	Shares map[types.UID]Share
	// RecheckAt is when the shares may change though no object does; zero: they do not.
	RecheckAt time.Time
}

// Share is the highest total limit that short quotas leave a pod, and the quotas that set it.
type Share struct {
	Most cpu.Milli
	By   []string
	node string
}

// A namespace whose pods change is divided again after leastAge, and any other one after mostAge, because
// HPAs and nodes change shares a little, too. Shorter follows sooner; longer costs less where namespaces
// have thousands of pods.
const (
	leastAge = time.Second
	mostAge  = 30 * time.Second
)

// Look is a look at a node, for the pods that it has in a namespace.
type Look struct {
	namespace, node string
	at              time.Time
	last            *division
	changes, freed  int64 // until the look began
	watched         bool
}

// Begin begins a look. The objects of the namespace are read after it: what changes later may not be in them.
func (d *Divider) Begin(namespace, node string, now time.Time) Look {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Look{
		namespace: namespace, node: node, at: now, last: d.last(namespace, now),
		changes: d.changes[namespace], freed: d.freed[namespace], watched: d.watched,
	}
}

// Of returns the division of a namespace for a look. Where the last one does not hold any more, the look
// divides again.
func (d *Divider) Of(ctx context.Context, n *constraints.NamespaceObjects, l Look) (Division, error) {
	quotas := bounds(n.Quotas)
	if quotas == "" {
		return Division{}, nil
	}
	divide := func() (Division, error) { return d.divide(ctx, n, l.namespace, l.at) }
	if !l.watched {
		return divide()
	}
	result, changed, err := l.last.of(quotas, l.changes, l.at, divide)
	if err != nil {
		return Division{}, err
	}
	if !d.looksAgain(l.namespace, l.node, changed != nil || result.pending) {
		result.RecheckAt = time.Time{}
	}
	if delete(changed, l.node); len(changed) > 0 {
		d.Wake(ctx, slices.Sorted(maps.Keys(changed)))
	}
	return result.Division, nil
}

// outcome is a division for a look.
type outcome struct {
	Division
	pending bool // the node is to be looked at again, to divide then
}

// of returns the last division if it holds, and else a new one. changed are the nodes on which shares differ
// from those before; nil: the division is not new.
func (d *division) of(
	quotas string, changes int64, now time.Time, divide func() (Division, error),
) (o outcome, changed map[string]bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	age, again := now.Sub(d.at), d.result.RecheckAt
	holds := d.quotas == quotas && age < mostAge && (again.IsZero() || now.Before(again))
	if holds && (d.changes >= changes || age < leastAge) { // a look that began later may have divided
		o = outcome{Division: d.result}
		if d.changes < changes && !d.pending { // of all looks at this division, only this one is repeated
			d.pending, o.pending = true, true
			d.result.RecheckAt = lifecycle.Earlier(again, d.at.Add(leastAge))
			o.RecheckAt = d.result.RecheckAt
		}
		return o, nil, nil
	}
	result, err := divide()
	if err != nil {
		return o, nil, err
	}
	changed = map[string]bool{}
	if !d.at.IsZero() {
		changed = differing(d.result.Shares, result.Shares)
	}
	d.changes, d.pending, d.quotas, d.at, d.result = changes, false, quotas, now, result
	return outcome{Division: result}, changed, nil
}

// differing are the nodes of pods whose shares differ.
func differing(before, now map[types.UID]Share) map[string]bool {
	nodes := map[string]bool{}
	for uid, b := range before {
		if s := now[uid]; s.Most != b.Most || !slices.Equal(s.By, b.By) {
			nodes[b.node] = true
		}
	}
	for uid, s := range now {
		if _, had := before[uid]; !had {
			nodes[s.node] = true
		}
	}
	return nodes
}

// looksAgain says whether a node is the one whose look divides the namespace again. With takes, it becomes
// that one.
func (d *Divider) looksAgain(namespace, node string, takes bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, divided := d.by[namespace]; takes && (node != "" || !divided) {
		d.by[namespace] = node
	}
	if d.by[namespace] != node {
		return false
	}
	delete(d.awaited, namespace)
	return true
}

// last returns the last division of a namespace that is looked at. It forgets namespaces that were not looked at
// for long.
func (d *Divider) last(namespace string, now time.Time) *division {
	if d.namespaces == nil {
		d.namespaces, d.changes, d.freed, d.pruned = map[string]*division{}, map[string]int64{}, map[string]int64{}, now
		d.by, d.awaited = map[string]string{}, map[string]time.Time{}
	}
	if now.Sub(d.pruned) >= 20*mostAge {
		for name, n := range d.namespaces {
			if now.Sub(n.looked) >= 20*mostAge {
				d.forget(name)
			}
		}
		d.pruned = now
	}
	if d.namespaces[namespace] == nil {
		d.namespaces[namespace] = &division{}
	}
	d.namespaces[namespace].looked = now
	return d.namespaces[namespace]
}

func (d *Divider) forget(namespace string) {
	delete(d.namespaces, namespace)
	delete(d.changes, namespace)
	delete(d.freed, namespace)
	delete(d.by, namespace)
	delete(d.awaited, namespace)
	delete(d.waiting, namespace)
}

// bounds is a text of the bounds of those quotas that bound CPU limits; "" without such quotas.
func bounds(quotas []corev1.ResourceQuota) string {
	var s strings.Builder
	for i := range quotas {
		q := &quotas[i]
		if room, bounds := constraints.CPUQuotaOf(q); bounds {
			fmt.Fprint(&s, q.UID, "=", room.Known, room.Hard, q.Spec.Scopes, q.Spec.ScopeSelector, " ")
		}
	}
	return s.String()
}

// divide divides the quotas of a namespace over its pods on all nodes.
func (d *Divider) divide(
	ctx context.Context, n *constraints.NamespaceObjects, namespace string, now time.Time,
) (Division, error) {
	result := Division{Shares: map[types.UID]Share{}}
	var claimants []claimant
	for i := range n.Quotas {
		q := &n.Quotas[i]
		room, bounds := constraints.CPUQuotaOf(q)
		if !bounds || !room.Known {
			continue
		}
		if claimants == nil {
			var err error
			if claimants, err = d.claimants(ctx, n, namespace, now); err != nil {
				return Division{}, err
			}
		}
		var pods []*corev1.Pod
		var claims []quota.Claim
		var seen, others cpu.Milli
		for _, c := range claimants {
			switch {
			case !constraints.QuotaSelects(q, c.pod):
			case c.managed:
				seen += c.charged
				pods, claims = append(pods, c.pod), append(claims, c.claim)
			default:
				seen += c.charged
				others += c.charged
			}
		}
		d.mu.Lock()
		drift, again := d.drift.Lasting(string(q.UID), room.Used-seen, now)
		d.mu.Unlock()
		if len(pods) == 0 {
			continue
		}
		result.RecheckAt = lifecycle.Earlier(result.RecheckAt, again)
		most, short := d.Config.Share(quota.Room{Hard: room.Hard, Used: room.Used, Others: others + drift}, claims)
		if !short {
			continue
		}
		for j, pod := range pods {
			s := result.Shares[pod.UID].with(most[j], q.Name)
			s.node = pod.Spec.NodeName
			result.Shares[pod.UID] = s
		}
	}
	return result, nil
}

// with is the share of a pod that another quota bounds, too.
func (s Share) with(most cpu.Milli, by string) Share {
	if s.By == nil || most < s.Most {
		s.Most = most
	}
	s.By = append(s.By, "ResourceQuota/"+by)
	return s
}

// claimant is a pod that counts against quotas, and what it claims of them if it is managed.
type claimant struct {
	pod     *corev1.Pod
	charged cpu.Milli
	managed bool
	claim   quota.Claim
}

// claimants are the pods of a namespace that count against quotas, on all nodes.
func (d *Divider) claimants(
	ctx context.Context, n *constraints.NamespaceObjects, namespace string, now time.Time,
) ([]claimant, error) {
	var pods corev1.PodList
	if err := d.Client.List(ctx, &pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the pods of namespace %s: %w", namespace, err)
	}
	of, err := d.Allocations(ctx, namespace)
	if err != nil {
		return nil, err
	}
	list := make([]claimant, 0, len(pods.Items))
	sizes, told := map[string]cpu.Milli{}, map[string]nodeallocation.Told{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !constraints.CountsAgainstQuota(pod, now) {
			continue
		}
		c := claimant{pod: pod, charged: constraints.QuotaUsage(pod)}
		pa, node := of[types.NamespacedName{Namespace: namespace, Name: string(pod.UID)}], pod.Spec.NodeName
		if c.managed = pa != nil && !kube.Ended(pod) && len(pa.Status.DeclaredLimits) > 0 && !kube.TooLarge(kube.Limits(pod)); c.managed {
			if _, ok := sizes[node]; !ok {
				var o corev1.Node
				if err := d.Client.Get(ctx, types.NamespacedName{Name: node}, &o); client.IgnoreNotFound(err) != nil {
					return nil, fmt.Errorf("read node %s: %w", node, err)
				}
				sizes[node] = allocation.Node(&o).Allocatable
				if told[node], err = d.Told(ctx, node); err != nil {
					return nil, err
				}
			}
			c.claim = allocation.QuotaClaim(n, pod, pa, told[node].Constraints(pod.UID), sizes[node])
		}
		list = append(list, c)
	}
	return list, nil
}

// Constrain adds the pod's share of short quotas to its constraints.
func (s Share) Constrain(c *v1alpha1.Constraints) {
	if s.By == nil || s.Most > cpu.Largest {
		return
	}
	c.IncreaseOnNeed = true
	if c.Ceiling == nil || s.Most < *c.Ceiling {
		c.Ceiling = &s.Most
	}
	by := strings.Join(s.By, ", ")
	if c.CeilingBy != "" {
		by = c.CeilingBy + ", " + by
	}
	c.CeilingBy = by[:min(len(by), 512)]
}

// Rooms are those of the quotas that bound the CPU limits of the pod.
func Rooms(quotas []corev1.ResourceQuota, pod *corev1.Pod) (list []quota.Room) {
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
