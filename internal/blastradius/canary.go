package blastradius

import (
	"cmp"
	"slices"
	"time"
)

// Canary is how a workload is resized at first.
type Canary struct {
	// Percent of the replicas are resized first, rounded up; 100: all at once.
	Percent int
	// Grace is how long after their first resize these replicas have to do no worse than the others. Shorter
	// lets the others follow sooner; longer finds harm that shows late.
	Grace time.Duration
	// HoldOff is how long a workload that was stopped stays at its declared limits.
	HoldOff time.Duration
}

// Replica is a managed replica of a workload. Zero times: never.
type Replica struct {
	ID, Name string
	Created  time.Time
	// UnreadySince is when the replica that is not Ready ceased to be; FailedAt are the times at which a container of
	// it ended with another exit code than 0.
	UnreadySince time.Time
	FailedAt     []time.Time
	// Resized is when its limits were first changed, Stopped when its workload was last stopped.
	Resized, Stopped time.Time
}

// Stage is how far the resizes of a workload may reach.
type Stage string

// Stages of a workload.
const (
	Trial    Stage = "Trial"    // only the canaries are resized
	Released Stage = "Released" // every replica may be resized
	Stopped  Stage = "Stopped"  // every replica returns to its declared limits
)

// Verdict is what holds for a workload.
type Verdict struct {
	Stage Stage
	// Canaries are the replicas, by ID, that are resized first.
	Canaries map[string]bool
	// Until is when the stage ends without any change: a trial by release, a stop by another trial; zero: never.
	Until time.Time
	// StoppedAt is when a canary came to harm last; zero: none did. FoundAt is when that was found; zero: it was known.
	StoppedAt, FoundAt time.Time
}

// Allows says whether the limits of a replica may be changed by decisions. One that was resized before, such as before a
// canary was asked for, goes on.
func (v Verdict) Allows(id string, resized bool) bool {
	return v.Stage == Released || v.Stage == Trial && (resized || v.Canaries[id])
}

// Judge decides about a workload. The canaries are its oldest replicas: new ones, of which none has proved
// anything, take no other's place.
func (c Canary) Judge(replicas []Replica, now time.Time) Verdict {
	sorted := slices.SortedFunc(slices.Values(replicas), func(a, b Replica) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	share := (len(sorted)*c.Percent + 99) / 100
	if share >= len(sorted) {
		return Verdict{Stage: Released}
	}
	var stopped time.Time
	for _, r := range sorted {
		stopped = later(stopped, r.Stopped)
	}
	if until := stopped.Add(c.HoldOff); !stopped.IsZero() && now.Before(until) {
		return Verdict{Stage: Stopped, StoppedAt: stopped, Until: until}
	}
	v := Verdict{Stage: Trial, Canaries: map[string]bool{}}
	var trials []time.Time
	for _, r := range sorted[:share] {
		if v.Canaries[r.ID] = true; !r.Resized.IsZero() {
			trials = append(trials, r.Resized)
		}
	}
	if len(trials) == 0 {
		return v
	}
	slices.SortFunc(trials, time.Time.Compare)
	v.Until = c.release(trials)
	released := !now.Before(v.Until)
	var end time.Time // of what counts
	if released {
		end = v.Until
	}
	if now.Before(v.Until.Add(lateNews)) {
		if at, yes := worse(sorted[:share], sorted[share:], trials[0], end); yes {
			return c.stop(at, now)
		}
	}
	if released {
		return Verdict{Stage: Released}
	}
	return v
}

// stop is the verdict on harm that is found now. It is dated when it happened, by the clock of a
// kubelet: not later than now, and not so early that the hold-off is over.
func (c Canary) stop(at, now time.Time) Verdict {
	if at.After(now) || !now.Before(at.Add(c.HoldOff)) {
		at = now
	}
	return Verdict{Stage: Stopped, StoppedAt: at, FoundAt: now, Until: at.Add(c.HoldOff)}
}

// lateNews is how long after a release trouble from before it still stops the workload. Longer waits for kubelets and caches
// that are slow; shorter forgets sooner what the other replicas have recovered from, which the comparison would miss.
const lateNews = time.Minute

// release is when all that were resized before it have been through the grace. What is resized later does not take it
// back.
func (c Canary) release(resized []time.Time) (at time.Time) {
	for _, t := range resized {
		if at.IsZero() || t.Before(at) {
			at = t.Add(c.Grace)
		}
	}
	return at
}

// worse says whether a larger part of the resized canaries than of the replicas that were not
// resized has been in trouble since, and until end; zero: until now; and when a canary was last.
// Replicas that came later may only be starting.
func worse(canaries, others []Replica, first, end time.Time) (at time.Time, yes bool) {
	var resized, harmed, rest, troubled int
	for _, r := range canaries {
		if r.Resized.IsZero() {
			continue
		}
		resized++
		if t := r.trouble(r.Resized, end); !t.IsZero() {
			harmed++
			at = later(at, t)
		}
	}
	for _, r := range others {
		resizedBefore := !r.Resized.IsZero() && (end.IsZero() || r.Resized.Before(end))
		if resizedBefore || r.Created.After(first) {
			continue
		}
		rest++
		if !r.trouble(first, end).IsZero() {
			troubled++
		}
	}
	return at, harmed > 0 && (rest == 0 || harmed*rest > troubled*resized)
}

// trouble is when the replica last ceased to be Ready, or a container of it failed, since and
// before end; zero: it did not. A zero end is now. The kubelet dates in whole seconds.
func (r Replica) trouble(since, end time.Time) (last time.Time) {
	from := since.Truncate(time.Second)
	for _, t := range append(r.FailedAt[:len(r.FailedAt):len(r.FailedAt)], r.UnreadySince) {
		if !t.IsZero() && !t.Before(from) && (end.IsZero() || t.Before(end)) {
			last = later(last, t)
		}
	}
	return last
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
