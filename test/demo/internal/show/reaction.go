//go:build linux

package show

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mbcas/mbcas/test/demo/internal/script"
	"github.com/mbcas/mbcas/test/demo/internal/shop"
	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

// Step is one measured reaction: a hog held the pod's limit down, and ended at the instant at which the
// pod's load stepped up.
type Step struct {
	From, To int64 // the kernel's limit before and after, in thousandths of a core
	// Delay is the time from the step to the kernel's limit having been raised; 0: it was not.
	Delay time.Duration
	// Missed says why the step does not count, or why there was no reaction.
	Missed string
	// NoStep: the limit was never lowered, so there was nothing to react to.
	NoStep bool
}

const (
	// reactor is the pod whose limit is watched.
	reactor = script.Search
	// heldRate is the load of the pod while the hog holds it: more than its budget buys beside the hog.
	heldRate = 55
	// stepRate is what the step adds: together more than the lowered limit.
	stepRate = 50
	// stepFor is how long the step lasts.
	stepFor = 5 * time.Second
	// contention is the least time of it before a step.
	contention = 3 * time.Second
	// loweringPatience is how long contention may take to lower the limit.
	loweringPatience = 60 * time.Second
	// reactionPatience is how long a reaction may take before it is called none.
	reactionPatience = 15 * time.Second
	// poll is how often the kernel's file is read: the error of the measurement.
	poll = 2 * time.Millisecond
)

// ReactionStepTakes is about how long one step takes, most of it waiting for the limit to be lowered.
const ReactionStepTakes = 19 * time.Second

// Reactions measures n steps. told is given each of them.
func (s Show) Reactions(ctx context.Context, n int, told func(i int, step Step)) ([]Step, error) {
	p, err := s.Ledger.Pod(reactor)
	if err != nil {
		return nil, err
	}
	files, err := s.Node.Find(p.ContainerID)
	if err != nil {
		return nil, err
	}
	g, err := s.generator(reactor)
	if err != nil {
		return nil, err
	}
	if err := s.idle(ctx); err != nil {
		return nil, err
	}
	loading, stop := context.WithCancel(ctx)
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	longest := time.Duration(n) * (loweringPatience + reactionPatience)
	load.Go(func() {
		at := traffic.Arrivals(s.Seed, []traffic.Segment{{For: longest, Rate: heldRate}})
		g.Run(loading, time.Now(), at, func(traffic.Result) {})
	})
	rng := rand.New(rand.NewPCG(s.Seed, uint64(n)))
	steps := make([]Step, 0, n)
	for i := range n {
		// The step falls anywhere between two ticks of the agent.
		jitter := time.Second + time.Duration(rng.Int64N(int64(time.Second)))
		step, err := s.react(ctx, files, g, s.Seed+uint64(i), jitter)
		if err != nil {
			return steps, err
		}
		steps = append(steps, step)
		told(i, step)
	}
	return steps, s.idle(ctx)
}

func (s Show) react(ctx context.Context, files cgroup.Container, g traffic.Generator, seed uint64, jitter time.Duration) (Step, error) {
	if err := s.Spin(ctx, script.Hog, script.HogThreads, time.Now(), time.Time{}); err != nil {
		return Step{}, err
	}
	wait(ctx, contention) // also where the limit is still low from the step before
	lowered := func(quota int64) bool { return quota > 0 && quota*10 < shop.SearchCeiling*9 }
	low, _, err := until(ctx, files, 50*time.Millisecond, time.Now().Add(loweringPatience), lowered)
	if err != nil {
		return Step{}, err
	}
	if !lowered(low) {
		return Step{From: low, NoStep: true, Missed: fmt.Sprintf("contention did not lower the limit below %dm in %v", low, loweringPatience)}, nil
	}
	at := time.Now().Add(jitter)
	if err := s.Spin(ctx, script.Hog, script.HogThreads, time.Now(), at); err != nil {
		return Step{}, err
	}
	var load sync.WaitGroup
	load.Go(func() {
		g.Run(ctx, at, traffic.Arrivals(seed, []traffic.Segment{{For: stepFor, Rate: stepRate}}), func(traffic.Result) {})
	})
	defer load.Wait()
	wait(ctx, time.Until(at)-poll)
	before, err := files.Read()
	if err != nil {
		return Step{}, err
	}
	quota, seen, err := until(ctx, files, poll, at.Add(reactionPatience), func(quota int64) bool { return quota > before.Quota })
	step := Step{From: before.Quota, To: quota, Delay: seen.Sub(at)}
	if err == nil && quota <= before.Quota {
		step.Delay, step.Missed = 0, fmt.Sprintf("no reaction in %v", reactionPatience)
	}
	wait(ctx, time.Until(at.Add(stepFor))) // the step is played in full
	return step, err
}

// until reads the quota again and again until it satisfies enough or the deadline has passed, and says
// when it was read.
func until(ctx context.Context, files cgroup.Container, every time.Duration, deadline time.Time, enough func(quota int64) bool) (int64, time.Time, error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		quota, err := files.Quota()
		now := time.Now()
		if err != nil || enough(quota) || now.After(deadline) {
			return quota, now, err
		}
		select {
		case <-ctx.Done():
			return quota, now, ctx.Err()
		case <-tick.C:
		}
	}
}
