// Package flowcontrol decides when resizes are made: a gate for the whole cluster, a queue with
// priorities, fair between namespaces and within the budgets of nodes and cluster, and breakers for
// webhooks that do not answer and namespaces that refuse.
//
// What it promises, each a test of the same name:
//   - NoStarvation: however many resizes come later, each gets its turn within a bounded time.
//   - FairBetweenNamespaces: of namespaces that wait in one priority, none is ahead by more than one.
//   - NodesAreFairBetweenNamespaces: of pods that wait for their node, namespaces take turns, too.
//   - KeepsItsPlace: in a namespace and priority, no resize goes before one that came earlier.
//   - BudgetsHold: neither the cluster nor a node gets more resizes than its budget.
//   - SaysWhenToAsk: while a resize waits and none is under way, the queue says when to ask again.
//   - SlotsHold: a namespace whose resizes hang uses its own workers, and no others.
//   - SlowOnesHaveFewWorkers: namespaces that are answered late, or are new, leave half of the workers to others.
//   - OneSlowAnswerCostsLittle: a namespace has all its workers again with the prompt answer after a slow one.
//   - UrgentGoesFirst: thousands of waiting decreases delay no rollback and no increase of a throttled pod.
//   - IdleOnesHaveFewWorkers: increases that are not needed yet leave three quarters of the workers to others.
//   - IdleOnesLeaveTokens: they leave three quarters of the burst, too; and IdleOnesHaveATurn all the same.
//   - BusyServersGetFewAtOnce: while the answers of most namespaces are late, few resizes are under way.
//   - FewSlowWebhooksShrinkNothing: the late answers of fewer namespaces take no worker from the others.
//   - TakeOverIsNoBurst: a process that starts, or takes nodes over, begins with what a second allows.
//   - TokensComeBack: a resize that changes nothing takes no token.
//   - Bounded: the queue holds one place for each pod.
package flowcontrol

import (
	"maps"
	"sync"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// Breakers keep resizes away from admission webhooks that do not answer, and from namespaces in which
// resizes are refused whatever they are. A webhook that the API server names has one breaker for all
// namespaces in which it failed; else a namespace has one.
type Breakers struct {
	jitter func(time.Duration) time.Duration

	mu       sync.Mutex
	breakers map[Cause]*breaker
	of       map[string]map[Cause]bool // by namespace
	pruned   time.Time
}

// Cause is what a breaker keeps resizes away from. A webhook has no namespace.
type Cause struct {
	Reason             reasons.Reason
	Webhook, Namespace string
}

// Detail says what the cause is.
func (c Cause) Detail() string {
	switch {
	case c.Webhook != "":
		return "the admission webhook " + c.Webhook + " does not answer"
	case c.Reason == reasons.ServerUnavailable:
		return "the admission webhooks of namespace " + c.Namespace + " do not answer"
	}
	return "in namespace " + c.Namespace
}

// breaker opens after breakAfter failures in a row. From then on one pod at a time probes, each
// probe twice as long after the one before, until one is answered.
type breaker struct {
	failures int
	opened   int       // how often it opened since the last answer
	retryAt  time.Time // no resize before; zero: closed
	probing  bool
	failed   time.Time // the last time
}

// breakAfter failures in a row open a breaker. Fewer take one lost packet for a dead webhook; more
// let it hold more workers.
const breakAfter = 3

// The first probe is made after probeAfter, then the wait doubles up to probeAfterMost. A probe
// that nothing is heard of counts as lost after probeLost.
const (
	probeAfter     = 10 * time.Second
	probeAfterMost = 5 * time.Minute
	probeLost      = time.Minute
)

// breakerKept is how long a breaker is kept without a failure: its namespace may be gone.
const breakerKept = time.Hour

// NewBreakers are all closed.
func NewBreakers(jitter func(time.Duration) time.Duration) *Breakers {
	return &Breakers{jitter: jitter, breakers: map[Cause]*breaker{}, of: map[string]map[Cause]bool{}}
}

// Admit says whether a resize of the namespace may be made now, and if not, why, and until when none
// is tried. A resize that is about to be made probes: of several one is admitted as the probe.
func (b *Breakers) Admit(namespace string, now time.Time, probes bool) (why Cause, until time.Time, admitted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.of[namespace] {
		if n := b.breakers[c]; now.Before(n.retryAt) && n.retryAt.After(until) {
			why, until = c, n.retryAt
		}
	}
	if !until.IsZero() {
		return why, until, false
	}
	for c := range b.of[namespace] {
		if n := b.breakers[c]; probes && !n.retryAt.IsZero() {
			n.probing, n.retryAt = true, now.Add(probeLost)
		}
	}
	return Cause{}, time.Time{}, true
}

// Answered closes the breakers of a namespace whose webhooks answered.
func (b *Breakers) Answered(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range maps.Clone(b.of[namespace]) {
		b.close(c)
	}
}

func (b *Breakers) close(c Cause) {
	delete(b.breakers, c)
	for namespace, causes := range b.of {
		if delete(causes, c); len(causes) == 0 {
			delete(b.of, namespace)
		}
	}
}

// Failed counts a resize that no webhook, or no server, answered. Requests that were on their way
// when the breaker opened do not count.
func (b *Breakers) Failed(namespace, webhook string, now time.Time) {
	c := Cause{Reason: reasons.ServerUnavailable, Webhook: webhook}
	if webhook == "" {
		c.Namespace = namespace
	}
	b.fail(namespace, c, 1, now)
}

// Refused opens the breaker of a namespace in which no resize is possible.
func (b *Breakers) Refused(namespace string, why reasons.Reason, now time.Time) {
	b.fail(namespace, Cause{Reason: why, Namespace: namespace}, breakAfter, now)
}

func (b *Breakers) fail(namespace string, c Cause, failures int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prune(now)
	n := b.breakers[c]
	if n == nil {
		n = &breaker{}
		b.breakers[c] = n
	}
	if b.of[namespace] == nil {
		b.of[namespace] = map[Cause]bool{}
	}
	b.of[namespace][c], n.failed = true, now
	if n.failures += failures; n.failures < breakAfter || !n.retryAt.IsZero() && !n.probing {
		return
	}
	n.retryAt, n.probing = now.Add(b.jitter(lifecycle.Doubled(probeAfter, probeAfterMost, n.opened))), false
	n.opened++
}

// prune forgets breakers without a failure for long.
func (b *Breakers) prune(now time.Time) {
	if now.Sub(b.pruned) < time.Minute {
		return
	}
	b.pruned = now
	for c, n := range maps.Clone(b.breakers) {
		if now.Sub(n.failed) >= breakerKept {
			b.close(c)
		}
	}
}
