package disagreement

import (
	"math"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// State is what is remembered of managed pods, by UID.
type State map[string]pod

// pod is what is remembered of one, to know what declared limits give it, and whether it saturates: it takes all it
// can get for most of the time. A service that queues for some seconds does not. A limit below the declared one is
// our own, and throttling at it proves nothing: there a pod can only be seen to take less.
type pod struct {
	busy      time.Duration // for which it took all it could get, less interruptions
	left      time.Duration // for which it took less, in all
	saturates bool
	lowered   time.Duration // for which it saturated with less than its declared limit
	retries   int           // how often it got its declared limit back
	mean      float64       // of what declared limits give it, in cores
	square    float64       // the mean of the square of that
	waitedAt  time.Time     // when it last waited; zero: never
	claim     cpu.Milli     // of pods of lower priority, when it last waited
}

const (
	// interruption is how much faster a time in which the pod does not wait at all counts than one in which it takes
	// all: it saturates if it takes all for more than three quarters of the time.
	interruption = 3
	// hardlyEver is for how long a pod took less at most that hardly ever did so. Most such pods have spun since they
	// started.
	hardlyEver = 20 * time.Second
	// firstRetry is after how long a pod that did not always take all has its declared limit again, to be judged anew: a
	// backlog that is long gone may have made it saturate, and at a lower limit it cannot show that. The second and last
	// time comes after twice that: under constant load limits come to rest.
	firstRetry = 5 * time.Minute
	maxRetries = 2
	// takesAll is the share of what the pod could get from which it takes all, and takesMost the share from which that is
	// possible. A service that uses less than takesMost keeps its queue short; where its limit falls by Leave, the queue
	// grows without end. Lower takes such services for pods that saturate; higher takes fewer pods for such.
	//
	// A pod that takes less at times, to look like a service, keeps its declared limit. It gains what it would have left,
	// Leave, less what it did not take.
	takesAll, takesMost = 0.95, 0.9
	// alwaysWaits is the share of the time from which a pod that waits takes all it can get, however much that is: the
	// kernel divides CPU less evenly than the solver does. Lower takes busy services with many threads for such pods.
	alwaysWaits = 0.98
	// leastCount is the least part of a tick that counts. With less, a pod of constant load would come to saturate after
	// half an hour.
	leastCount = 0.25
	// givenOver is the time constant of the means. Longer is steadier; shorter follows the other pods sooner.
	givenOver = 20 * time.Second
)

// Saturates says whether the pod takes all it can get.
func (p pod) Saturates() bool { return p.saturates }

// smoothed adds to the means what declared limits give the pod in a tick.
func (p pod) smoothed(gets cpu.Milli, elapsed time.Duration) pod {
	now, part := gets.Cores(), 1-math.Exp(-elapsed.Seconds()/givenOver.Seconds())
	if p.mean == 0 {
		part = 1
	}
	p.mean += (now - p.mean) * part
	p.square += (now*now - p.square) * part
	return p
}

// given is what declared limits give the pod while they give it anything: the mean, weighted by itself. A limit
// below that takes from the pod at those times, and others do not make up for it.
func (p pod) given() cpu.Milli {
	if p.mean == 0 {
		return 0
	}
	return cpu.FromCores(p.square / p.mean)
}

// next adds the evidence of a tick: the share of what it could get that the pod took, and 0 where it need not wait. A
// tick in which it took all counts as such, one in which it took takesMost counts nothing, and one in which it took less
// counts as an interruption.
func (p pod) next(c Config, belowDeclared bool, took float64, elapsed time.Duration) pod {
	counts := max(-interruption, min(1, (took-takesMost)/(takesAll-takesMost)))
	if belowDeclared || counts > 0 && counts < leastCount {
		counts = min(counts, 0)
	}
	after := c.SaturatedAfter
	if counts < 0 {
		p.left = min(p.left+elapsed, hardlyEver)
	}
	if p.left < hardlyEver {
		after /= 2
	}
	p.busy = max(0, min(p.busy+time.Duration(counts*float64(elapsed)), after))
	did := p.saturates
	p.saturates = p.busy == after || did && p.busy > 0
	switch {
	case did && !p.saturates:
		p.lowered, p.retries = 0, 0
	case p.saturates && belowDeclared && p.left == hardlyEver && p.retries < maxRetries:
		if p.lowered += elapsed; p.lowered >= firstRetry<<p.retries {
			p.busy, p.saturates, p.lowered, p.retries = 0, false, 0, p.retries+1
		}
	}
	return p
}
