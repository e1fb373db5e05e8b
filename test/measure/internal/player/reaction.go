package player

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/measure/internal/script"
	"github.com/mbcas/mbcas/test/measure/internal/stages"
	"github.com/mbcas/mbcas/test/measure/internal/workload"
)

// Reaction is one measured reaction to a step of the load.
type Reaction struct {
	Kind string `json:"kind"`
	// Seconds is the time from the step to the higher limit in the kernel; nil: none came.
	Seconds *float64 `json:"s"`
	From    int64    `json:"from_m"` // the kernel's limit before and after, in thousandths of a core
	To      int64    `json:"to_m"`
	// Missed says why the step does not count, or that no reaction came.
	Missed string `json:"missed,omitempty"`
	// NotLowered: the limit of the hog was never lowered, so the step does not count.
	NotLowered bool          `json:"-"`
	Step       time.Time     `json:"at,omitzero"`
	UID        string        `json:"pod_uid,omitempty"`
	Stages     *stages.Split `json:"stages,omitempty"`
}

// Kernel is when the kernel had the higher limit; zero: never.
func (r Reaction) Kernel() time.Time {
	if r.Seconds == nil {
		return time.Time{}
	}
	return r.Step.Add(time.Duration(*r.Seconds * float64(time.Second)))
}

const (
	// settle is how long a pod rests until its step: the agent has enough samples of it.
	settle = 11 * time.Second
	// rest is the least time from one step to the next contention: a pod that goes on soon after it has stopped makes
	// the agent wait with the next fall of the price.
	rest = 5 * time.Second
	// contention is its least time before a step.
	contention = 6 * time.Second
	// judge is how long a hog spins until the agent knows that it takes all it can get.
	judge = 45 * time.Second
	// lowerPatience is how long contention may take to lower the limit of the hog, or its end to give it back.
	lowerPatience = 30 * time.Second
	// ReactionPatience is how long a reaction may take.
	ReactionPatience = 15 * time.Second
	// resolution is how often the kernel's file is read: the error of the measurement.
	resolution = 2 * time.Millisecond
	// announce is the time that a pod needs to learn when it spins.
	announce = 300 * time.Millisecond
)

// ReactionTakes is about how long one reaction takes, most of it until the step.
const ReactionTakes = 17 * time.Second

// reacting is the reactions of one script in progress.
type reacting struct {
	Player
	*script.Reaction
	hog    cgroup.Container
	hogUID string
	rng    *rand.Rand
}

// React measures n reactions of each kind. Each is given to done.
func (p Player) React(ctx context.Context, r *script.Reaction, n int, done func(x Reaction)) (err error) {
	x := reacting{Player: p, Reaction: r, rng: rand.New(rand.NewPCG(p.Seed, uint64(n)))}
	if x.hogUID, x.hog, err = p.files(r.Hog); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop(context.WithoutCancel(ctx))) }()
	steps := map[string]func(context.Context, int) (Reaction, error){
		script.Freed: x.freed, script.OwnDecrease: x.ownDecrease, script.OtherDecrease: x.otherDecrease,
		script.NewPodUnderLoad: x.newPod,
	}
	for k, kind := range r.Kinds {
		if err := p.Stop(ctx); err != nil {
			return err
		}
		if kind == script.OwnDecrease || kind == script.OtherDecrease {
			if err := x.spin(ctx, r.Hog); err != nil {
				return err
			}
			poll.Sleep(ctx, judge)
		}
		for i := range n {
			got, err := steps[kind](ctx, k*n+i)
			if r.Beside != "" {
				err = errors.Join(err, p.Spin(ctx, r.Beside, 0, time.Time{}, time.Time{}))
			}
			if err != nil {
				return fmt.Errorf("step %d, %s: %w", i+1, kind, err)
			}
			got.Kind = kind
			done(got)
		}
	}
	return nil
}

// files are the pod of a workload and its files.
func (p Player) files(app string) (uid string, files cgroup.Container, err error) {
	pod, err := p.Recorder.Pod(app)
	if err != nil {
		return "", files, err
	}
	files, err = p.Recorder.Node.Find(pod.ContainerID)
	return pod.UID, files, err
}

// spin has a workload spin from now on.
func (x *reacting) spin(ctx context.Context, app string) error {
	return x.Spin(ctx, app, hogThreads, time.Now(), time.Time{})
}

// freed has what fills the node stop at the step of a pod, which falls anywhere between two rounds of the agent.
func (x *reacting) freed(ctx context.Context, i int) (Reaction, error) {
	full := []string{x.Hog}
	if x.Reaction.Beside != "" {
		full = append(full, x.Reaction.Beside)
	}
	return x.ofPod(ctx, i, func() (at time.Time, missed string, err error) {
		at = time.Now().Add(x.between(contention, contention+time.Second))
		for _, app := range full {
			err = errors.Join(err, x.Spin(ctx, app, hogThreads, time.Now(), at))
		}
		return at, "", err
	})
}

// otherDecrease has the step of a pod follow a decrease of the hog, while that one is in flight.
func (x *reacting) otherDecrease(ctx context.Context, i int) (Reaction, error) {
	return x.ofPod(ctx, i, func() (at time.Time, missed string, err error) {
		seen, missed, err := x.decreaseHog(ctx)
		return seen.Add(x.between(announce, time.Second)), missed, err
	})
}

// ownDecrease has the pod beside the hog stop within two seconds of a decrease of the hog.
func (x *reacting) ownDecrease(ctx context.Context, _ int) (Reaction, error) {
	poll.Sleep(ctx, rest)
	seen, missed, err := x.decreaseHog(ctx)
	at := seen.Add(x.between(announce, 1900*time.Millisecond))
	if err == nil {
		err = x.Spin(ctx, x.Reaction.Beside, hogThreads, time.Now(), at)
	}
	if err != nil || missed != "" {
		return Reaction{NotLowered: true, Missed: missed}, err
	}
	poll.Sleep(ctx, time.Until(at)-resolution)
	got, err := react(ctx, x.hog, at)
	got.UID = x.hogUID
	return got, err
}

// decreaseHog waits until the hog has its whole limit, has another pod spin beside it, and waits until the kernel has
// less than four fifths of the hog's limit: so much that no band keeps it low.
func (x *reacting) decreaseHog(ctx context.Context) (seen time.Time, missed string, err error) {
	whole := func(quota int64) bool { return quota == 0 || quota*10 >= int64(x.HogLimit)*9 }
	before, _, err := until(ctx, x.hog, 50*time.Millisecond, time.Now().Add(lowerPatience), whole)
	if err != nil || !whole(before) {
		return seen, fmt.Sprintf("the hog has %dm %v after the step before", before, lowerPatience), err
	}
	if err := x.spin(ctx, x.Reaction.Beside); err != nil {
		return seen, "", err
	}
	lower := func(quota int64) bool { return quota > 0 && quota*5 < int64(x.HogLimit)*4 }
	quota, seen, err := until(ctx, x.hog, resolution, time.Now().Add(lowerPatience), lower)
	if err == nil && !lower(quota) {
		missed = fmt.Sprintf("contention did not lower the limit of the hog below %dm in %v", quota, lowerPatience)
	}
	return seen, missed, err
}

// ofPod starts a pod that rests, and measures its reaction to a step: it spins from then on. when prepares the step,
// and returns its time.
func (x *reacting) ofPod(
	ctx context.Context, i int, when func() (at time.Time, missed string, err error),
) (got Reaction, err error) {
	pod, err := x.StartPod(ctx, i, 0)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, pod.Remove()) }()
	poll.Sleep(ctx, settle)
	at, missed, err := when()
	if err == nil && missed == "" {
		err = x.Spin(ctx, workload.NewPod, x.Pod.Threads, at, time.Time{})
	}
	if err != nil || missed != "" {
		return Reaction{NotLowered: true, Missed: missed}, err
	}
	poll.Sleep(ctx, time.Until(at)-resolution)
	got, err = react(ctx, pod.Files, at)
	got.UID = pod.UID
	return got, err
}

// newPod starts a pod that needs more than its declared limit from its first instruction on. The
// step is when the API server shows it running.
func (x *reacting) newPod(ctx context.Context, i int) (got Reaction, err error) {
	pod, err := x.StartPod(ctx, i, x.Pod.Threads)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, pod.Remove()) }()
	got, err = react(ctx, pod.Files, pod.Running)
	got.UID = pod.UID
	return got, err
}

// react waits for a higher limit after a step.
func react(ctx context.Context, files cgroup.Container, at time.Time) (Reaction, error) {
	before, err := files.Quota()
	if err != nil {
		return Reaction{}, err
	}
	raised := func(quota int64) bool { return quota > before }
	quota, seen, err := until(ctx, files, resolution, at.Add(ReactionPatience), raised)
	got := Reaction{From: before, To: quota, Step: at}
	if raised(quota) {
		got.Seconds = new(seen.Sub(at).Seconds())
	} else if err == nil {
		got.Missed = fmt.Sprintf("no reaction in %v", ReactionPatience)
	}
	return got, err
}

// between is a random time from least to most.
func (x *reacting) between(least, most time.Duration) time.Duration {
	return least + time.Duration(x.rng.Int64N(int64(most-least)))
}

// until reads the quota until it satisfies enough or the deadline has passed, and returns when it
// was read.
func until(
	ctx context.Context, files cgroup.Container, every time.Duration, deadline time.Time, enough func(quota int64) bool,
) (int64, time.Time, error) {
	for {
		quota, err := files.Quota()
		now := time.Now()
		if err != nil || enough(quota) || now.After(deadline) {
			return quota, now, err
		}
		if !poll.Sleep(ctx, every) {
			return quota, now, ctx.Err()
		}
	}
}
