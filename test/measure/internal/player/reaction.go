package player

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/internal/traffic"
	"github.com/mbcas/mbcas/test/measure/internal/script"
	"github.com/mbcas/mbcas/test/measure/internal/stages"
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
	// NotLowered: the limit was never lowered, so the step does not count.
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
	// contention is its least time before a step.
	contention = 3 * time.Second
	// lowerPatience is how long contention may take to lower the limit.
	lowerPatience = 30 * time.Second
	// ReactionPatience is how long a reaction may take.
	ReactionPatience = 15 * time.Second
	// resolution is how often the kernel's file is read: the error of the measurement.
	resolution = 2 * time.Millisecond
	// announce is the time that a hog needs to learn when it ends.
	announce = 300 * time.Millisecond
)

// ReactionTakes is about how long one reaction takes, most of it until the limit is lowered.
func ReactionTakes(r *script.Reaction) time.Duration { return 6*time.Second + r.StepLength }

// reacting is the reactions of one script in progress.
type reacting struct {
	Player
	*script.Reaction
	service, beside cgroup.Container
	uid             string // of the service's pod
	rng             *rand.Rand
	step            func(ctx context.Context, start time.Time) // sends the requests of a step
}

// React measures n reactions of each kind. Each is given to done.
func (p Player) React(ctx context.Context, r *script.Reaction, n int, done func(x Reaction)) (err error) {
	x := reacting{Player: p, Reaction: r, rng: rand.New(rand.NewPCG(p.Seed, uint64(n)))}
	if x.uid, x.service, err = p.files(r.Service); err != nil {
		return err
	}
	if r.Beside != "" {
		if _, x.beside, err = p.files(r.Beside); err != nil {
			return err
		}
	}
	g := p.generator(r.Service, 2)
	if err := p.Stop(ctx); err != nil {
		return err
	}
	for k, kind := range r.Kinds {
		stop := func() {}
		if kind != script.NewPodUnderLoad { // else the node has room
			stop = x.load(ctx, g, n)
		}
		for i := range n {
			arrivals := p.Seed + uint64(k*n+i)
			x.step = func(ctx context.Context, start time.Time) {
				at := traffic.Arrivals(arrivals, []traffic.Segment{{For: r.StepLength, Rate: r.Step}})
				g.Run(ctx, start, at, func(traffic.Result) {})
			}
			got, err := x.one(ctx, kind, k*n+i)
			if err != nil {
				stop()
				return fmt.Errorf("step %d, %s: %w", i+1, kind, err)
			}
			got.Kind = kind
			done(got)
		}
		stop()
	}
	return p.Stop(ctx)
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

// load sends the requests that the service gets all the time, until stop is called.
func (x *reacting) load(ctx context.Context, g traffic.Generator, n int) (stop func()) {
	loading, cancel := context.WithCancel(ctx)
	var load sync.WaitGroup
	load.Go(func() {
		longest := time.Duration(n) * (2*lowerPatience + ReactionPatience)
		at := traffic.Arrivals(x.Seed, []traffic.Segment{{For: longest, Rate: x.Rate}})
		g.Run(loading, time.Now(), at, func(traffic.Result) {})
	})
	return func() { cancel(); load.Wait() }
}

// one measures one reaction.
func (x *reacting) one(ctx context.Context, kind string, i int) (Reaction, error) {
	if kind == script.NewPodUnderLoad {
		return x.newPod(ctx, i)
	}
	at, missed, err := map[string]func(context.Context) (time.Time, string, error){
		script.Freed: x.freed, script.OwnDecrease: x.ownDecrease, script.OtherDecrease: x.otherDecrease,
	}[kind](ctx)
	if err != nil || missed != "" {
		return Reaction{NotLowered: true, Missed: missed}, err
	}
	if err := x.Spin(ctx, x.Hog, hogThreads, time.Now(), at); err != nil {
		return Reaction{}, err
	}
	var step sync.WaitGroup
	stepping, stop := context.WithCancel(ctx)
	step.Go(func() { x.step(stepping, at) })
	defer step.Wait()
	defer stop()
	poll.Sleep(ctx, time.Until(at)-resolution)
	got, err := x.react(ctx, x.service, at)
	got.UID = x.uid
	poll.Sleep(ctx, time.Until(at.Add(x.StepLength))) // every step has its full length
	if x.Reaction.Beside != "" {
		err = errors.Join(err, x.Spin(ctx, x.Reaction.Beside, 0, time.Time{}, time.Time{}))
	}
	return got, err
}

// react waits for a higher limit after a step.
func (x *reacting) react(ctx context.Context, files cgroup.Container, at time.Time) (Reaction, error) {
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

// freed has the hog lower the limit. The step falls anywhere between two rounds of the agent, and
// the last decrease is done.
func (x *reacting) freed(ctx context.Context) (at time.Time, missed string, err error) {
	if missed, err = x.contend(ctx); err != nil || missed != "" {
		return at, missed, err
	}
	return time.Now().Add(x.between(2*time.Second, 3*time.Second)), "", nil
}

// ownDecrease has the step follow a decrease of the pod itself within two seconds.
func (x *reacting) ownDecrease(ctx context.Context) (at time.Time, missed string, err error) {
	if err := x.Spin(ctx, x.Hog, hogThreads, time.Now(), time.Time{}); err != nil {
		return at, "", err
	}
	seen, missed, err := decreased(ctx, x.Service, x.service)
	return seen.Add(x.between(announce, 1900*time.Millisecond)), missed, err
}

// otherDecrease has the step follow a decrease of another pod, while that one is in flight.
func (x *reacting) otherDecrease(ctx context.Context) (at time.Time, missed string, err error) {
	if err := x.Spin(ctx, x.Reaction.Beside, hogThreads, time.Now(), time.Time{}); err != nil {
		return at, "", err
	}
	high := func(quota int64) bool { return quota == 0 || quota*10 >= int64(x.BesideCeiling)*9 }
	if _, _, err := until(ctx, x.beside, 50*time.Millisecond, time.Now().Add(ReactionPatience), high); err != nil {
		return at, "", err
	}
	if err := x.Spin(ctx, x.Reaction.Beside, 0, time.Time{}, time.Time{}); err != nil {
		return at, "", err
	}
	if missed, err = x.contend(ctx); err != nil || missed != "" {
		return at, missed, err
	}
	if err := x.Spin(ctx, x.Reaction.Beside, hogThreads, time.Now(), time.Time{}); err != nil {
		return at, "", err
	}
	seen, missed, err := decreased(ctx, x.Reaction.Beside, x.beside)
	return seen.Add(x.between(announce, time.Second)), missed, err
}

// contend has the hog spin until the limit of the service is low.
func (x *reacting) contend(ctx context.Context) (missed string, err error) {
	if err := x.Spin(ctx, x.Hog, hogThreads, time.Now(), time.Time{}); err != nil {
		return "", err
	}
	poll.Sleep(ctx, contention) // also where the limit is still low from the step before
	lowered := func(quota int64) bool { return quota > 0 && quota*10 < int64(x.Ceiling)*9 }
	low, _, err := until(ctx, x.service, 50*time.Millisecond, time.Now().Add(lowerPatience), lowered)
	if err == nil && !lowered(low) {
		missed = fmt.Sprintf("contention did not lower the limit below %dm in %v", low, lowerPatience)
	}
	return missed, err
}

// decreased waits until the limit of a workload is decreased in the kernel.
func decreased(ctx context.Context, name string, files cgroup.Container) (seen time.Time, missed string, err error) {
	before, err := files.Quota()
	if err != nil {
		return seen, "", err
	}
	lower := func(quota int64) bool {
		if quota > before {
			before = quota
		}
		return quota < before
	}
	quota, seen, err := until(ctx, files, resolution, time.Now().Add(lowerPatience), lower)
	if err == nil && quota >= before {
		missed = fmt.Sprintf("contention did not lower the limit of %s below %dm in %v", name, before, lowerPatience)
	}
	return seen, missed, err
}

// newPod starts a pod that needs more than its declared limit from its first instruction on. The
// step is when the API server shows it running.
func (x *reacting) newPod(ctx context.Context, i int) (got Reaction, err error) {
	pod, err := x.StartPod(ctx, i)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, pod.Remove()) }()
	got, err = x.react(ctx, pod.Files, pod.Running)
	got.UID = pod.UID
	return got, err
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
