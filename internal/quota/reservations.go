package quota

import (
	"maps"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// Lag is how long the status of a quota may take to reach the cache. While other pods decrease at
// the same time, it does not tell by itself that an increase is in it. Should it take longer, a
// quota may refuse an increase.
const Lag = 3 * time.Second

// Reservations keep increases within quotas: what was granted counts until the status of the quota
// shows it. What a quota leaves is divided over the replicas of the controller, in proportion to the
// pods that each of them resizes. After a refusal, the pods of the namespace get no more than they declared for a while.
type Reservations struct {
	config              Config
	backoff, backoffMax time.Duration
	granted             map[string]grant   // by pod
	refusals            map[string]refusal // by namespace
	waits               map[string]wait    // by pod
	tallies             map[tallied]tally
	expired             time.Time // the last time that was looked for
}

// tallied is a quota of a namespace.
type tallied struct{ namespace, quota string }

// tally is what was granted of a quota, as long as that is used as much, no grant is added or returned, and
// none expires: there may be thousands of pods that ask.
type tally struct {
	used     cpu.Milli
	until    time.Time // zero: for ever
	reserved cpu.Milli // what the quota may not show yet
	recent   cpu.Milli // what another replica may not have seen in the quota yet
	again    time.Time // when less may be reserved; zero: nothing is
}

// wait is since when a pod waits because other replicas may have granted what a quota leaves, and what
// the quotas showed then.
type wait struct {
	since time.Time
	used  []Room
}

// grant is an increase that was let through.
type grant struct {
	namespace string
	amount    cpu.Milli
	at        time.Time
	// settled: no more of the increase is to be had by waiting for other replicas.
	settled bool
	// before is what each quota, by name, shows without it, and with the grants before it.
	before map[string]cpu.Milli
}

// refusal is the last of n in a row in a namespace. It counts until then, or until a room eases.
type refusal struct {
	n         int
	until     time.Time
	forgotten time.Time // when the next refusal counts as the first again
	rooms     []Room
}

// NewReservations has no reservation yet. The back-off after a refusal doubles up to backoffMax.
func NewReservations(c Config, backoff, backoffMax time.Duration) *Reservations {
	return &Reservations{c, backoff, backoffMax, map[string]grant{}, map[string]refusal{}, map[string]wait{}, map[tallied]tally{}, time.Time{}}
}

// Increase is what a pod is to get: Below up to what it declared, and Above more than that.
type Increase struct {
	Namespace, Pod string
	Below, Above   cpu.Milli
	// Others is the share, 0 to 1, of the namespace's pods that other replicas of the controller resize.
	Others float64
}

// Reserve grants as much of an increase as all of the rooms have, and reserves it. again is when
// more may be granted even if no quota changes; zero: never.
func (r *Reservations) Reserve(i Increase, rooms []Room, now time.Time) (granted cpu.Milli, again time.Time) {
	g, again := r.grant(i, rooms, now)
	if g.amount > 0 {
		r.Release(i.Pod)
		r.granted[i.Pod] = g
		r.recount(g)
	}
	if g.settled {
		delete(r.waits, i.Pod)
	}
	return g.amount, again
}

// Grants is what Reserve would grant. It reserves nothing.
func (r *Reservations) Grants(i Increase, rooms []Room, now time.Time) (granted cpu.Milli, again time.Time) {
	g, again := r.grant(i, rooms, now)
	return g.amount, again
}

func (r *Reservations) grant(i Increase, rooms []Room, now time.Time) (g grant, again time.Time) {
	r.expire(now)
	if f := r.refusals[i.Namespace]; now.Before(f.until) && !Eased(f.rooms, rooms) {
		i.Above, again = 0, f.until
	}
	g, wanted := grant{namespace: i.Namespace, at: now, before: map[string]cpu.Milli{}}, i.Below+i.Above
	waited := r.waited(i, rooms, now)
	for _, room := range rooms {
		t := r.tally(i, room, now)
		again = lifecycle.Earlier(again, t.again)
		g.before[room.Name] = room.Used + t.reserved
		reserved := t.reserved
		if !waited {
			reserved += cpu.FromCores(i.Others * max(0, room.Hard-room.Used+t.recent).Cores())
		}
		i.Below, i.Above = r.config.Grant(room, reserved, i.Below, i.Above)
	}
	g.amount = i.Below + i.Above
	if g.settled = g.amount >= wanted || waited; !g.settled && i.Others > 0 {
		again = lifecycle.Earlier(again, r.waits[i.Pod].since.Add(othersTake))
	}
	return g, again
}

// tally counts what was granted of a quota to other pods than the one that asks.
func (r *Reservations) tally(i Increase, room Room, now time.Time) tally {
	key := tallied{i.Namespace, room.Name}
	_, own := r.granted[i.Pod]
	if t, ok := r.tallies[key]; ok && !own && t.used == room.Used && (t.until.IsZero() || now.Before(t.until)) {
		return t
	}
	t := tally{used: room.Used}
	for pod, g := range r.granted {
		before, counts := g.before[room.Name]
		if age := now.Sub(g.at); !counts || g.namespace != i.Namespace || age >= othersTake {
			continue
		}
		t.recent += g.amount
		shown := g.at.Add(Lag)
		if now.Before(shown) {
			t.until = lifecycle.Earlier(t.until, shown)
			if pod != i.Pod && room.Used < before+g.amount {
				t.reserved += g.amount
				t.again = lifecycle.Earlier(t.again, shown)
			}
		}
		t.until = lifecycle.Earlier(t.until, g.at.Add(othersTake))
	}
	if !own {
		r.tallies[key] = t
	}
	return t
}

// recount has what a grant counts in counted anew.
func (r *Reservations) recount(g grant) {
	for quota := range g.before {
		delete(r.tallies, tallied{g.namespace, quota})
	}
}

// othersTake is after how long without a change of a quota no other replica has granted what it leaves:
// what one of them granted shows after Lag, and it may have seen the quota as late.
const othersTake = 2 * Lag

// waited says whether a pod has waited for so long while nothing changed that all that quotas leave may
// be granted, also the part of other replicas. Two of them may come to that at the same time; then
// the API server refuses one.
func (r *Reservations) waited(i Increase, rooms []Room, now time.Time) bool {
	if i.Others == 0 {
		return false
	}
	w, waits := r.waits[i.Pod]
	same := waits && slices.EqualFunc(w.used, rooms, func(a, b Room) bool {
		return a.Name == b.Name && a.Used == b.Used && a.Hard == b.Hard
	})
	if !same {
		r.waits[i.Pod] = wait{now, slices.Clone(rooms)}
	}
	return same && now.Sub(w.since) >= othersTake
}

// Release returns what was reserved for a pod.
func (r *Reservations) Release(pod string) {
	if g, ok := r.granted[pod]; ok {
		r.recount(g)
		delete(r.granted, pod)
	}
}

// Refused notes that a quota refused an increase in these rooms. Many are in flight at once, so that
// one shortage may refuse them all: it counts once.
func (r *Reservations) Refused(namespace string, rooms []Room, now time.Time) {
	r.expire(now)
	f := r.refusals[namespace]
	if !now.Before(f.until) {
		f.until = now.Add(lifecycle.Doubled(r.backoff, r.backoffMax, f.n))
		f.n, f.forgotten = f.n+1, f.until.Add(r.backoffMax)
	}
	f.rooms = rooms
	r.refusals[namespace] = f
}

// Accepted notes that the API server accepted an increase: one that was in flight when another was
// refused says nothing.
func (r *Reservations) Accepted(namespace string, now time.Time) {
	if !now.Before(r.refusals[namespace].until) {
		delete(r.refusals, namespace)
	}
}

// expire drops grants that every quota shows by now, and refusals of long ago, whose namespace may
// be gone. It need not find them at once.
func (r *Reservations) expire(now time.Time) {
	if now.Sub(r.expired) < time.Second {
		return
	}
	r.expired = now
	clear(r.tallies)
	maps.DeleteFunc(r.granted, func(_ string, g grant) bool { return now.Sub(g.at) >= othersTake })
	maps.DeleteFunc(r.waits, func(_ string, w wait) bool { return now.Sub(w.since) >= 10*othersTake })
	maps.DeleteFunc(r.refusals, func(_ string, f refusal) bool { return !now.Before(f.forgotten) })
}

// Eased says whether one of the quotas has become larger, is used less, or does not count any more.
func Eased(before, now []Room) bool {
	return slices.ContainsFunc(before, func(b Room) bool {
		i := slices.IndexFunc(now, func(q Room) bool { return q.Name == b.Name })
		return i < 0 || now[i].Hard > b.Hard || now[i].Used < b.Used
	})
}
