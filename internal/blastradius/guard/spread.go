package guard

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/blastradius"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/restore"
)

// Spread counts the workloads that were harmed, in every replica of the controller, and has the leader record that
// decisions are held until an operator resumes. It looks at a PodAllocation only when that records harm, and at the start
// at all of them once.
type Spread struct {
	Rule      blastradius.Spread
	Client    client.Client
	Namespace string
	Now       func() time.Time
	Leads     func() bool
	Events    events.EventRecorder
	Log       *slog.Logger
	// Changed has all nodes looked at again, as harm has spread.
	Changed func()
	// Count gets the number of harmed workloads.
	Count func(workloads int)
	// Held gets whether decisions are held until an operator resumes.
	Held func(yes bool)
	// Recent is how long after a decrease trouble of a pod may come from that, so that it says nothing of its node.
	Recent time.Duration

	mu     sync.Mutex
	tally  blastradius.Tally
	judged map[string]time.Time // harm that was judged: by PodAllocation, and stops of canaries by workload
	spread bool                 // whether harm had spread when it was last counted
}

// retryInterval is how often a replica that does not lead, or whose view of the switch was old, looks again.
const retryInterval = time.Second

// Setup has the manager call Reconcile for each PodAllocation that records harm.
func (s *Spread) Setup(mgr ctrl.Manager) error {
	recent := func(o client.Object) bool {
		pa, ok := o.(*v1alpha1.PodAllocation)
		return ok && s.Now().Sub(harmedAt(pa)) < s.Rule.Window
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("harm").
		For(&v1alpha1.PodAllocation{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return recent(e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return moreHarm(e.ObjectOld, e.ObjectNew) && recent(e.ObjectNew)
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(s)
	if err != nil {
		return fmt.Errorf("set up the controller of harm: %w", err)
	}
	return nil
}

// moreHarm says whether a PodAllocation records other harm than before. The later news may be of the earlier harm.
func moreHarm(before, after client.Object) bool {
	b, ok := before.(*v1alpha1.PodAllocation)
	a, also := after.(*v1alpha1.PodAllocation)
	if !ok || !also {
		return false
	}
	decrease, canary := harmOf(b)
	decreaseNow, canaryNow := harmOf(a)
	return !decreaseNow.Equal(decrease) || !canaryNow.Equal(canary)
}

// harmOf is when the harm that a PodAllocation records happened: by a decrease, and to the canaries
// of its workload; zero: never.
func harmOf(pa *v1alpha1.PodAllocation) (decrease, canary time.Time) {
	return pa.Status.Rollback.LastHarmfulDecreaseTime.Time, pa.Status.CanaryStoppedTime.Time
}

// harmedAt is the later of the two.
func harmedAt(pa *v1alpha1.PodAllocation) time.Time {
	decrease, canary := harmOf(pa)
	if canary.After(decrease) {
		return canary
	}
	return decrease
}

// HoldChanged takes in that a hold has begun or ended.
func (s *Spread) HoldChanged(held bool) {
	s.Held(held)
	s.Changed()
}

// Reconcile counts the harm of a PodAllocation, and records the hold of decisions where harm has spread.
func (s *Spread) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	left, err := s.note(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	state, err := restore.ReadState(ctx, s.Client, s.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	harmed := s.harmed(s.Now(), state)
	if !s.Rule.Stops(harmed) || state.HarmHold != "" {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if !s.Leads() { // it may come to lead
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	err = s.record(ctx, state, harmed)
	if apierrors.IsConflict(err) { // the switch has changed since it was read
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	return ctrl.Result{RequeueAfter: left}, err
}

// note counts the workload of a PodAllocation, unless nodes explain its harm, and says in how long
// the first harm is to be judged that is too new; 0: there is none. Harm of a pod that is gone
// counts no more: it cannot be told what it was a replica of.
func (s *Spread) note(ctx context.Context, key types.NamespacedName) (left time.Duration, err error) {
	pa, pod := &v1alpha1.PodAllocation{}, &corev1.Pod{}
	if err := s.Client.Get(ctx, key, pa); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	err = s.Client.Get(ctx, types.NamespacedName{Namespace: pa.Namespace, Name: pa.Spec.PodRef.Name}, pod)
	if err != nil || pod.UID != pa.Spec.PodRef.UID {
		return 0, client.IgnoreNotFound(err)
	}
	workload, now := workloadOf(pod), s.Now()
	decrease, canary := harmOf(pa)
	for _, h := range []struct {
		at     time.Time
		canary bool
	}{{decrease, false}, {canary, true}} {
		name, nodes := key.String(), []string{pod.Spec.NodeName}
		if h.canary { // every replica records it
			name = workload
		}
		if now.Sub(h.at) >= s.Rule.Window || s.isJudged(name, h.at) {
			continue
		}
		if wait := h.at.Add(s.Rule.Settle).Sub(now); wait > 0 {
			left = min(wait, cmp.Or(left, wait))
			continue
		}
		if h.canary {
			if nodes, err = s.troubled(ctx, pod.Namespace, workload, h.at); err != nil {
				return 0, err
			}
		}
		explained, err := s.explained(ctx, workload, nodes, h.at)
		if err != nil {
			return 0, err
		}
		if explained {
			s.Log.Info("harm does not count: its node was not Ready, or most of the other pods there were in trouble",
				"workload", workload, "nodes", nodes, "at", h.at)
		}
		s.take(name, workload, h.at, !explained)
	}
	return left, nil
}

func (s *Spread) isJudged(name string, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.judged[name].Equal(at)
}

// take takes in harm that was judged: it counts, or it does not.
func (s *Spread) take(name, workload string, at time.Time, counts bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.judged == nil {
		s.judged = map[string]time.Time{}
	}
	maps.DeleteFunc(s.judged, func(_ string, t time.Time) bool { return at.Sub(t) > s.Rule.Window })
	s.judged[name] = at
	if counts {
		s.tally.Note(workload, at)
	}
}

// harmed are the workloads that count, since the last resume.
func (s *Spread) harmed(now time.Time, state restore.State) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	harmed := s.tally.Harmed(s.Rule, now, state.HarmEnded)
	s.Count(len(harmed))
	before := s.spread
	if s.spread = s.Rule.Stops(harmed); s.spread && !before {
		s.Changed()
	}
	return harmed
}

// Hold is why decisions only raise limits up to the declared ones; the zero value where harm has not spread. What is recorded holds until an
// operator resumes, also after the harm is forgotten.
func (s *Spread) Hold(ctx context.Context, now time.Time) (lifecycle.Cause, error) {
	state, err := restore.ReadState(ctx, s.Client, s.Namespace)
	if err != nil {
		return lifecycle.Cause{}, err
	}
	harmed := s.harmed(now, state)
	if state.HarmHold == "" && !s.Rule.Stops(harmed) {
		return lifecycle.Cause{}, nil
	}
	return lifecycle.Cause{Reason: reasons.HarmSpread, Detail: cmp.Or(state.HarmHold, s.why(harmed))}, nil
}

func (s *Spread) why(harmed []string) string {
	return fmt.Sprintf("%d workloads were harmed within %v: %s", len(harmed), s.Rule.Window, few(harmed))
}

// record records the hold, and tells why.
func (s *Spread) record(ctx context.Context, state restore.State, harmed []string) error {
	why := s.why(harmed)
	if err := restore.HoldForHarm(ctx, s.Client, s.Namespace, state, why); err != nil {
		return err
	}
	s.Log.Error("decisions only raise limits up to the declared ones until kubectl mbcas resume", "reason", reasons.HarmSpread, "why", why)
	about := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: kube.SwitchName},
	}
	s.Events.Eventf(about, nil, corev1.EventTypeWarning, string(reasons.HarmSpread), "Hold", "%s", why)
	return nil
}

// mostNamed is how many workloads a text names.
const mostNamed = 5

func few(names []string) string {
	if len(names) <= mostNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), len(names)-mostNamed)
}
