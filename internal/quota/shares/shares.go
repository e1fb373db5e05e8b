// Package shares keeps what short ResourceQuotas leave each pod. The quotas of a namespace are divided
// over its pods on all nodes, once for each version of the quotas and the pods, and not at each look
// at a node.
package shares

import (
	"context"
	"fmt"
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
	// Watched: Changed is called for each change of a pod or a PodAllocation. Without that, quotas are
	// divided at each look.
	Watched bool

	mu         sync.Mutex
	drift      quota.Drift
	changes    map[string]int64 // of the pods of a namespace
	namespaces map[string]*division
	pruned     time.Time
}

// division is the last one of a namespace.
type division struct {
	mu      sync.Mutex
	changes int64
	quotas  string // in their versions
	at      time.Time
	result  Division
}

// Division is what short quotas leave the pods of a namespace, and when that may change though nothing
// does; zero: it will not.
type Division struct {
	Shares    map[types.UID]Share
	RecheckAt time.Time
}

// Share is the highest total limit that short quotas leave a pod, and the quotas that set it.
type Share struct {
	Most cpu.Milli
	By   []string
}

// How soon a namespace whose pods change is divided again, and how long a division is kept at most:
// other objects, such as HPAs and nodes, change it a little. Shorter follows sooner; longer costs less
// where namespaces have thousands of pods.
const (
	leastAge = time.Second
	mostAge  = 30 * time.Second
)

// Changed notes a change of a pod or a PodAllocation.
func (d *Divider) Changed(namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, divided := d.namespaces[namespace]; divided {
		d.changes[namespace]++
	}
}

// Of divides what the quotas of a namespace leave over its pods, unless it just has.
func (d *Divider) Of(
	ctx context.Context, n *constraints.NamespaceObjects, namespace string, now time.Time,
) (Division, error) {
	versions := versionsOf(n.Quotas)
	if versions == "" {
		return Division{}, nil
	}
	if !d.Watched {
		return d.divide(ctx, n, namespace, now)
	}
	last, changes := d.last(namespace, now)
	last.mu.Lock()
	defer last.mu.Unlock()
	age := now.Sub(last.at)
	if last.quotas == versions && age < mostAge && (last.result.RecheckAt.IsZero() || now.Before(last.result.RecheckAt)) {
		result := last.result
		if last.changes == changes {
			return result, nil
		}
		if age < leastAge {
			result.RecheckAt = lifecycle.Earlier(result.RecheckAt, last.at.Add(leastAge))
			return result, nil
		}
	}
	result, err := d.divide(ctx, n, namespace, now)
	if err == nil {
		last.changes, last.quotas, last.at, last.result = changes, versions, now, result
	}
	return result, err
}

// last is the last division of a namespace, and how often its pods have changed. Those of namespaces
// that are not looked at any more are forgotten.
func (d *Divider) last(namespace string, now time.Time) (*division, int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.namespaces == nil {
		d.namespaces, d.changes, d.pruned = map[string]*division{}, map[string]int64{}, now
	}
	if now.Sub(d.pruned) >= 20*mostAge {
		clear(d.namespaces)
		clear(d.changes)
		d.pruned = now
	}
	if d.namespaces[namespace] == nil {
		d.namespaces[namespace] = &division{}
	}
	return d.namespaces[namespace], d.changes[namespace]
}

// versionsOf names the versions of the quotas that bound CPU limits; "" where there are none.
func versionsOf(quotas []corev1.ResourceQuota) string {
	var s strings.Builder
	for i := range quotas {
		if _, bounds := constraints.CPUQuotaOf(&quotas[i]); bounds {
			fmt.Fprint(&s, quotas[i].UID, "=", quotas[i].ResourceVersion, " ")
		}
	}
	return s.String()
}

// divide divides what the quotas of a namespace leave over its pods, on all nodes.
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
		var pods []types.UID
		var claims []quota.Claim
		var seen, others cpu.Milli
		for _, c := range claimants {
			switch {
			case !constraints.QuotaSelects(q, c.pod):
			case c.managed:
				seen += c.charged
				pods, claims = append(pods, c.pod.UID), append(claims, c.claim)
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
		for j, uid := range pods {
			result.Shares[uid] = result.Shares[uid].with(most[j], q.Name)
		}
	}
	return result, nil
}

// with is the share with that of another quota.
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
		if c.managed = pa != nil && !kube.Ended(pod) && len(pa.Status.DeclaredLimits) > 0; c.managed {
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
	if s.By == nil {
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
