package player

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/internal/traffic"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// Reaction is one measured reaction to a step of the load.
type Reaction struct {
	// Seconds is the time from the step to the higher limit in the kernel; nil: none came.
	Seconds *float64 `json:"s"`
	From    int64    `json:"from_m"` // the kernel's limit before and after, in thousandths of a core
	To      int64    `json:"to_m"`
	// Missed says why the step does not count, or that no reaction came.
	Missed string `json:"missed,omitempty"`
	// NotLowered: the limit was never lowered, so the step does not count.
	NotLowered bool `json:"-"`
}

const (
	// contention is its least time before a step.
	contention = 3 * time.Second
	// lowerPatience is how long contention may take to lower the limit.
	lowerPatience = 60 * time.Second
	// reactionPatience is how long a reaction may take.
	reactionPatience = 15 * time.Second
	// resolution is how often the kernel's file is read: the error of the measurement.
	resolution = 2 * time.Millisecond
)

// ReactionTakes is about how long one reaction takes, most of it until the limit is lowered.
const ReactionTakes = 19 * time.Second

// React measures n reactions. Each is given to done.
func (p Player) React(ctx context.Context, r *script.Reaction, n int, done func(i int, x Reaction)) error {
	pod, err := p.Recorder.Pod(r.Service)
	if err != nil {
		return err
	}
	files, err := p.Recorder.Node.Find(pod.ContainerID)
	if err != nil {
		return err
	}
	g := p.generator(r.Service, 2)
	if err := p.Stop(ctx); err != nil {
		return err
	}
	loading, stop := context.WithCancel(ctx)
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	longest := time.Duration(n) * (lowerPatience + reactionPatience)
	load.Go(func() {
		at := traffic.Arrivals(p.Seed, []traffic.Segment{{For: longest, Rate: r.Rate}})
		g.Run(loading, time.Now(), at, func(traffic.Result) {})
	})
	rng := rand.New(rand.NewPCG(p.Seed, uint64(n)))
	for i := range n {
		// The step falls anywhere between two rounds of the agent.
		jitter := time.Second + time.Duration(rng.Int64N(int64(time.Second)))
		at := traffic.Arrivals(p.Seed+uint64(i), []traffic.Segment{{For: r.StepLength, Rate: r.Step}})
		load := func(start time.Time) { g.Run(ctx, start, at, func(traffic.Result) {}) }
		x, err := p.reaction(ctx, r, files, jitter, load)
		if err != nil {
			return err
		}
		done(i, x)
	}
	return p.Stop(ctx)
}

// reaction measures one. load sends the requests of the step.
func (p Player) reaction(
	ctx context.Context, r *script.Reaction, files cgroup.Container, jitter time.Duration, load func(start time.Time),
) (Reaction, error) {
	if err := p.Spin(ctx, r.Hog, hogThreads, time.Now(), time.Time{}); err != nil {
		return Reaction{}, err
	}
	poll.Sleep(ctx, contention) // also where the limit is still low from the step before
	lowered := func(quota int64) bool { return quota > 0 && quota*10 < int64(r.Ceiling)*9 }
	low, _, err := until(ctx, files, 50*time.Millisecond, time.Now().Add(lowerPatience), lowered)
	if err != nil {
		return Reaction{}, err
	}
	if !lowered(low) {
		missed := fmt.Sprintf("contention did not lower the limit below %dm in %v", low, lowerPatience)
		return Reaction{From: low, NotLowered: true, Missed: missed}, nil
	}
	at := time.Now().Add(jitter)
	if err := p.Spin(ctx, r.Hog, hogThreads, time.Now(), at); err != nil {
		return Reaction{}, err
	}
	var step sync.WaitGroup
	step.Go(func() { load(at) })
	defer step.Wait()
	poll.Sleep(ctx, time.Until(at)-resolution)
	before, err := files.Quota()
	if err != nil {
		return Reaction{}, err
	}
	raised := func(quota int64) bool { return quota > before }
	quota, seen, err := until(ctx, files, resolution, at.Add(reactionPatience), raised)
	x := Reaction{From: before, To: quota}
	if raised(quota) {
		x.Seconds = new(seen.Sub(at).Seconds())
	} else if err == nil {
		x.Missed = fmt.Sprintf("no reaction in %v", reactionPatience)
	}
	poll.Sleep(ctx, time.Until(at.Add(r.StepLength))) // every step has its full length
	return x, err
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
