package sharding

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/mbcas/mbcas/actuator/podresize"
)

// The times by which replicas agree without a leader. Each compares times of its own clock only.
//
// A node of a replica that fails has another owner within 15 s: memberLost, the time to the next renewal of
// another replica, and the list after it.
//
// No two replicas have Owned for a node at one time (TestOneOwner):
//   - Another one gives a replica up memberLost after the last renewal that it saw, by a list that it
//     asked for then. Any later renewal of the replica was begun more than viewTrusted after that one,
//     so its view had lapsed, and it joins anew.
//   - A replica that joins owns nothing for joinDelay. By then each other one has seen its Lease, or has
//     a view that has lapsed.
//
// That rests on three things: clocks may differ, and run equally fast; a list shows every renewal that
// was answered before it was asked for; no client deletes the Lease of a replica that lives.
//
// It is no lock on the API server. A request that was sent while the node was owned may take effect
// after it has moved: its UID and resourceVersion have it refused once the new owner has written.
const (
	// renewInterval is the mean time from one renewal to the next.
	renewInterval = 2 * time.Second
	// requestTimeout bounds the renewal, and the list after it. A renewal that the others see too
	// late fails.
	requestTimeout = 2 * time.Second
	// viewTrusted is how long a replica acts on what it saw last.
	viewTrusted = 6 * time.Second
	// joinDelay is how long a replica that joins others owns nothing; longer than viewTrusted.
	joinDelay = 8 * time.Second
	// memberLost is how long after the last renewal seen the others give a replica up; at least
	// viewTrusted and requestTimeout together. Its nodes move then; its resizes may be in flight yet.
	memberLost = 9 * time.Second
	// silentAfter is how long after the last renewal seen no resize of a replica is in flight any more:
	// it has sent none for some time. It is the duration of the Lease, so that a pause, a restore of all
	// pods and an uninstall wait for as long.
	silentAfter = viewTrusted + podresize.Timeout
	// leaseKept is how long the Lease of a lost replica is kept.
	leaseKept = 10 * time.Minute
	// leaveInterval is how soon resizes in flight are counted again before a replica leaves.
	leaveInterval = 50 * time.Millisecond
)

// renewal is a version of a replica's Lease, and the pause that the replica acknowledged with it.
type renewal struct{ version, pause string }

// sighting is what one replica has seen of another: the last renewal, and when that was new.
type sighting struct {
	renewal
	seen time.Time
}

// view is what one replica knows of all of them. It is never changed.
type view struct {
	self    string
	readAt  time.Time // before the renewal that led to it
	ownFrom time.Time // from when the replica owns nodes
	lapses  int       // how often it owned nothing for a while, as a renewal took long
	tenures int       // how often others may have owned its nodes, and be gone
	members map[string]sighting
}

// next is the view after a renewal at started, a list of the renewals of all replicas, and the end
// of that list at ended. A replica whose view was not trusted any more joins anew, as others may
// have given it up. Where no other replica has a Lease there is no other owner to wait for.
func (v view) next(started, ended time.Time, renewals map[string]renewal) view {
	to := v
	to.readAt, to.members = started, make(map[string]sighting, len(renewals))
	for name, last := range renewals {
		s, known := v.members[name]
		if !known || s.renewal != last {
			s = sighting{last, ended}
		}
		to.members[name] = s
	}
	if !v.trusted(ended) {
		to.lapses++
	}
	// Within less than joinDelay no other one has joined, owned nodes, and left; and none has given this
	// one up.
	if ended.Sub(v.readAt) >= joinDelay {
		to.tenures++
	}
	if !v.trusted(started) {
		to.ownFrom = ended.Add(joinDelay)
		if len(renewals) == 1 {
			to.ownFrom = ended
		}
	}
	return to
}

// trusted says whether the view is young enough to act on.
func (v view) trusted(now time.Time) bool {
	return !v.readAt.IsZero() && now.Sub(v.readAt) < viewTrusted
}

// ownership is what the replica of the view knows of the owner of a node.
func (v view) ownership(node string, now time.Time) Ownership {
	switch {
	case !v.trusted(now):
		return Unknown
	case v.owner(node) != v.self:
		return OwnedByOther
	case now.Before(v.ownFrom): // another one may not know yet that this one has joined
		return Unknown
	}
	return Owned
}

// owner is the replica with the highest hash for the node, of those that are not lost (rendezvous
// hashing, Thaler and Ravishankar 1998). A replica that joins or leaves moves no node between the
// others.
func (v view) owner(node string) (owner string) {
	var highest uint64
	for name := range v.members {
		if v.isLost(name, memberLost) {
			continue
		}
		if h := weight(name, node); owner == "" || h > highest || h == highest && name < owner {
			owner, highest = name, h
		}
	}
	return owner
}

// isLost says whether another replica had not renewed its Lease for that long when the list was asked
// for. What it did since is not known: the answer may have been under way for long.
func (v view) isLost(name string, after time.Duration) bool {
	return name != v.self && v.readAt.Sub(v.members[name].seen) >= after
}

// live are the replicas that are not lost.
func (v view) live() (names []string) {
	for name := range v.members {
		if !v.isLost(name, memberLost) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// acknowledged says whether every replica has acknowledged a pause that may still send a resize, or
// have one in flight.
func (v view) acknowledged(pause string, now time.Time) bool {
	if !v.trusted(now) {
		return false
	}
	for name, m := range v.members {
		if m.pause != pause && !v.isLost(name, silentAfter) {
			return false
		}
	}
	return true
}

// weight is a hash of a replica and a node. FNV alone is too regular for names that differ in one
// digit, so its result is mixed (the finaliser of MurmurHash3).
func weight(replica, node string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(replica))
	h.Write([]byte{0})
	h.Write([]byte(node))
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
