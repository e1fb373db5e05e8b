// Package guard applies the bounds of package blastradius to the pods of a cluster: it gathers the replicas of workloads
// and the harm that PodAllocations record, says which pods decisions may not change for now, and holds all decisions
// where harm spreads. What it needs to know again after a restart is in the objects.
//
// What it promises, each a test of the same name:
//   - OnePassForAll: the workloads of a namespace are judged at most once a second, however many nodes ask, and one
//     of those that were answered from memory looks again.
//   - NoNodeWaitsForAPass: while one node has a namespace judged, others are answered from memory,
//     and only the nodes of workloads that come to another stage are looked at again.
//   - DeletedNamespacesAreForgotten: nothing is remembered for ever of a namespace that no node has pods of.
//   - TheStrictestWins: of the installation and the namespace, what allows less holds.
//   - ASickNodeIsNoSpread: harm of many workloads does not count where their one node explains it.
//   - InvalidWindowsChangeNothing: where windows cannot be read, decisions change nothing, and the reason says why.
package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/blastradius"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// Config bounds what decisions may change in the installation. Namespaces and pods may bound it further.
type Config struct {
	// Factors bound limits by multiples of the declared ones. Tighter bounds what an error can do; looser lets the
	// market use more of a node.
	kube.Factors
	// CanaryPercent is the percentage of a workload's replicas that are resized first; 100: all at once. Fewer
	// bounds harm to fewer replicas; more finds it sooner.
	CanaryPercent int
	// CanaryGrace is how long the first replicas have to do no worse than the others before those follow.
	CanaryGrace time.Duration
	// NoChange are windows of time in which decisions change no limit.
	NoChange blastradius.Windows
	// Harm is when harm counts as spreading, so that decisions are held until an operator resumes.
	Harm blastradius.Spread
}

// DefaultConfig bounds nothing. A hold for harm is off: a number of workloads does not tell harm by
// MBCAS from that of a database that fails.
func DefaultConfig() Config {
	return Config{
		CanaryPercent: 100, CanaryGrace: 10 * time.Minute,
		Harm: blastradius.Spread{Window: 30 * time.Minute, Settle: 30 * time.Second},
	}
}

// Validate says everything that is wrong.
func (c Config) Validate() error {
	errs := []error{c.Factors.Validate()}
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("guard "+format, args...))
		}
	}
	want(c.CanaryPercent >= 1 && c.CanaryPercent <= 100, "CanaryPercent is %d: want 1 to 100", c.CanaryPercent)
	want(c.CanaryGrace > 0, "CanaryGrace is %v: want more than 0", c.CanaryGrace)
	want(c.Harm.Workloads >= 0, "Harm.Workloads is %d: want 0 (never hold) or more", c.Harm.Workloads)
	want(c.Harm.Settle >= 0, "Harm.Settle is %v: want 0 or more", c.Harm.Settle)
	settle := max(c.Harm.Settle, 0)
	want(c.Harm.Window > settle,
		"Harm.Window (flag --harm-window) is %v: want more than %v, after which harm counts", c.Harm.Window, settle)
	return errors.Join(errs...)
}

// Namespace is what holds for the pods of a namespace at one time.
type Namespace struct {
	hold lifecycle.Cause // of all of them
	workloads
	unjudged time.Time // when a pod that was not judged is
	// RecheckAt is when that may be another though no object changes; zero: never.
	RecheckAt time.Time
}

// Guard says what decisions may change.
type Guard struct {
	Config Config
	// HoldOff is how long a workload that was stopped stays at its declared limits.
	HoldOff time.Duration
	// Client reads from caches.
	Client client.Reader
	// Changed has some nodes of a namespace looked at again, as the stage of workloads has changed
	// that have pods there. It does not wait.
	Changed func(namespace string, nodes []string)
	// Spread is where harm is counted; nil: it is not.
	Spread *Spread

	canaries canaries
}

// Look is a look at a node.
type Look struct {
	Node string
	Now  time.Time
	// Managed says whether a pod of the namespace takes part in the market.
	Managed func(*corev1.Pod) bool
}

// Of is what holds for the pods of a namespace.
func (g *Guard) Of(ctx context.Context, ns metav1.Object, l Look) (Namespace, error) {
	now := l.Now
	var n Namespace
	n.hold, n.RecheckAt = g.noChange(ns, now)
	if g.Spread != nil {
		if hold, err := g.Spread.Hold(ctx, now); err != nil || hold.Reason != "" {
			n.hold = hold
			if err != nil {
				return n, err
			}
		}
	}
	percent, _ := kube.CanaryPercent(ns) // what cannot be read counts as the least
	if percent = min(percent, g.Config.CanaryPercent); percent == 100 {
		g.canaries.forget(ns.GetName())
		return n, nil
	}
	rule := blastradius.Canary{Percent: percent, Grace: g.Config.CanaryGrace, HoldOff: g.HoldOff}
	var again time.Time
	var err error
	n.workloads, again, err = g.judge(ctx, rule, ns.GetName(), l)
	n.RecheckAt, n.unjudged = lifecycle.Earlier(n.RecheckAt, again), now.Add(leastValid)
	return n, err
}

// noChange holds all pods of a namespace within a window, and says when that changes.
func (g *Guard) noChange(ns metav1.Object, now time.Time) (lifecycle.Cause, time.Time) {
	own, err := blastradius.ParseWindows(kube.NoChangeWindows(ns))
	if err != nil {
		detail := fmt.Sprintf("%s of namespace %s: %v", kube.NoChangeKey, ns.GetName(), err)
		return lifecycle.Cause{Reason: reasons.InvalidNoChangeWindow, Detail: detail}, time.Time{}
	}
	all := append(g.Config.NoChange[:len(g.Config.NoChange):len(g.Config.NoChange)], own...)
	closed, until := all.Closed(now)
	if !closed {
		return lifecycle.Cause{}, until
	}
	c := lifecycle.Cause{Reason: reasons.NoChangeWindow}
	if !until.IsZero() {
		c.Detail = "it ends at " + until.UTC().Format("2006-01-02 15:04 UTC")
	}
	return c, until
}

// Pod is why decisions must not change the limits of a pod for now, and since when its workload is stopped; zero: it is
// not. resized says whether a decision has changed them before.
func (n Namespace) Pod(pod *corev1.Pod, resized bool) (hold lifecycle.Cause, stopped, recheck time.Time) {
	v, judged := n.verdicts[kube.Workload(pod)]
	switch {
	case judged && v.Stage == blastradius.Stopped:
		return n.hold, v.StoppedAt, v.Until
	case n.hold.Reason != "":
		return n.hold, time.Time{}, time.Time{}
	case n.verdicts != nil && !n.pods[pod.UID]: // it came since
		return lifecycle.Cause{Reason: reasons.WaitingForCanary}, time.Time{}, n.unjudged
	case judged && !v.Allows(string(pod.UID), resized):
		hold = lifecycle.Cause{Reason: reasons.WaitingForCanary}
	}
	return hold, time.Time{}, v.Until
}

// replicaOf is a replica as it is judged.
func replicaOf(pod *corev1.Pod, pa *v1alpha1.PodAllocation) blastradius.Replica {
	r := blastradius.Replica{ID: string(pod.UID), Name: pod.Name, Created: pod.CreationTimestamp.Time}
	r.UnreadySince, r.FailedAt = kube.UnreadySince(pod), failuresOf(pod)
	if pa != nil {
		r.Resized, r.Stopped = pa.Status.FirstAppliedTime.Time, pa.Status.CanaryStoppedTime.Time
	}
	return r
}

// failuresOf are when containers of a pod failed, with sidecars and other init containers.
func failuresOf(pod *corev1.Pod) (at []time.Time) {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			at = append(at, kube.FailedAt(&list[i])...)
		}
	}
	return at
}
