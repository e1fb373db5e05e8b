package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/quota"
	"github.com/mbcas/mbcas/internal/quota/shares"
)

// Quotas reserves what ResourceQuotas have room for. Resizes of several namespaces, and looks at
// several nodes, ask at the same time.
type Quotas struct {
	client   client.Reader // of the cache
	deadBand float64       // the relative change of a limit that is worth a resize
	// elsewhere is the share of the pods of a namespace that other replicas of the controller resize.
	elsewhere func(ctx context.Context, namespace string) (float64, error)

	mu           sync.Mutex
	reservations *quota.Reservations

	others sync.Mutex
	known  map[string]sharing // by namespace
}

// sharing is what elsewhere returned, and when.
type sharing struct {
	share float64
	at    time.Time
}

// sharingKept is for how long that is not asked for again: it counts all pods of a namespace. Longer
// follows pods that come and go later.
const sharingKept = 5 * time.Second

// NewQuotas reserves in r, which belongs to it from then on. elsewhere is the share of the pods of a
// namespace that other replicas of the controller resize.
func NewQuotas(
	c client.Reader, deadBand float64, r *quota.Reservations,
	elsewhere func(ctx context.Context, namespace string) (float64, error),
) *Quotas {
	return &Quotas{client: c, deadBand: deadBand, reservations: r, elsewhere: elsewhere}
}

// Fits says whether the quotas have room for an increase that is worth a resize, and if not, when to
// ask again. A change of a quota has the pod looked at again, too.
func (q *Quotas) Fits(ctx context.Context, z *Resize, now time.Time) (again time.Time, fits bool, err error) {
	i, rooms, err := q.increase(ctx, z, now)
	if err != nil || len(rooms) == 0 {
		return time.Time{}, true, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	granted, again := q.reservations.Grants(i, rooms, now)
	_, fits = q.shortened(z, i, granted)
	return again, fits, nil
}

// reserve shortens an increase to what the quotas of the namespace have room for now. It returns false
// where that is too little to be worth a resize. The rest is asked for again when the kubelet has
// carried this out.
func (q *Quotas) reserve(ctx context.Context, z *Resize, now time.Time) (bool, error) {
	i, rooms, err := q.increase(ctx, z, now)
	if err != nil || len(rooms) == 0 {
		return true, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	granted, _ := q.reservations.Reserve(i, rooms, now)
	move, worth := q.shortened(z, i, granted)
	if !worth || !move.Raises() {
		q.reservations.Release(i.Pod)
	}
	if worth {
		z.Move = &move
	}
	return worth, nil
}

// increase is what a resize adds to the quotas of its namespace, and what these have room for; none
// where no quota bounds it.
func (q *Quotas) increase(ctx context.Context, z *Resize, now time.Time) (quota.Increase, []quota.Room, error) {
	to := map[string]cpu.Milli{}
	for _, c := range z.Move.Changes {
		to[c.Container] = c.To
	}
	before := constraints.QuotaUsage(z.Pod)
	increase := constraints.QuotaUsage(kube.WithLimits(z.Pod, to)) - before
	if increase <= 0 {
		return quota.Increase{}, nil, nil
	}
	var quotas corev1.ResourceQuotaList
	if err := q.client.List(ctx, &quotas, client.InNamespace(z.Pod.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return quota.Increase{}, nil, fmt.Errorf("list the ResourceQuotas of namespace %s: %w", z.Pod.Namespace, err)
	}
	below := min(increase, max(0, z.Declared.Total()-before))
	i := quota.Increase{Namespace: z.Pod.Namespace, Pod: string(z.Pod.UID), Below: below, Above: increase - below}
	rooms := shares.Rooms(quotas.Items, z.Pod)
	if len(rooms) > 0 {
		var err error
		if i.Others, err = q.shareOfOthers(ctx, i.Namespace, now); err != nil {
			return quota.Increase{}, nil, err
		}
	}
	return i, rooms, nil
}

// shareOfOthers is the share of the pods of a namespace that other replicas resize, as it just was.
func (q *Quotas) shareOfOthers(ctx context.Context, namespace string, now time.Time) (float64, error) {
	q.others.Lock()
	defer q.others.Unlock()
	if last, ok := q.known[namespace]; ok && now.Sub(last.at) < sharingKept {
		return last.share, nil
	}
	share, err := q.elsewhere(ctx, namespace)
	if err == nil {
		if q.known == nil || len(q.known) >= sharingMost {
			q.known = map[string]sharing{}
		}
		q.known[namespace] = sharing{share, now}
	}
	return share, err
}

// sharingMost bounds the namespaces of which that is kept.
const sharingMost = 10000

// forgetSharing has the shares of pods that other replicas resize found out anew.
func (q *Quotas) forgetSharing() {
	q.others.Lock()
	defer q.others.Unlock()
	q.known = nil
}

// shortened is the move with what was granted of its increase; false where that is not worth a resize.
func (q *Quotas) shortened(z *Resize, i quota.Increase, granted cpu.Milli) (actuator.Move, bool) {
	if granted >= i.Below+i.Above {
		return *z.Move, true
	}
	return quota.Shorten(*z.Move, granted, q.deadBand)
}

// release returns what was reserved for a resize that is not made.
func (q *Quotas) release(z *Resize) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reservations.Release(string(z.Pod.UID))
}

// settle tells the reservations what came of a resize.
func (q *Quotas) settle(z *Resize, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := z.Answer.Outcome
	switch o {
	case podresize.Accepted:
		if z.Move.Raises() {
			q.reservations.Accepted(z.Pod.Namespace, now)
		}
	case podresize.Unknown: // it may have been charged
	default:
		q.reservations.Release(string(z.Pod.UID))
	}
	if o == podresize.QuotaExceeded {
		q.reservations.Refused(z.Pod.Namespace, z.Admission.Quotas, now)
	}
}
