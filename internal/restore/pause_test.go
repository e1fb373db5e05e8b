package restore

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// acknowledger is an Acknowledger of a cluster without a switch, with what it reads and what it has reported.
type acknowledger struct {
	Acknowledger
	*testing.T
	inFlight int64
	others   bool // have not acknowledged
	follows  bool // another replica leads
	// acknowledged is what this replica has.
	acknowledged string
	blocked      [2]string
	warning      [2]string
	changes      []bool
}

func newAcknowledger(t *testing.T) *acknowledger {
	t.Helper()
	a := &acknowledger{T: t}
	a.Acknowledger = leader(newClient(t))
	a.InFlight, a.Leads = func() int64 { return a.inFlight }, func() bool { return !a.follows }
	a.Acknowledge = func(pause string) bool { a.acknowledged = pause; return !a.others }
	a.Blocked, a.Warning = func() (string, string) { return a.blocked[0], a.blocked[1] }, func() (string, string) { return a.warning[0], a.warning[1] }
	a.Changed = func(paused bool) { a.changes = append(a.changes, paused) }
	return a
}

// reconcile reconciles the switch, and returns what it says then.
func (a *acknowledger) reconcile() (ctrl.Result, State) {
	a.Helper()
	result, err := a.Reconcile(a.Context(), ctrl.Request{})
	must.Succeed(a, err)
	state, err := ReadState(a.Context(), a.Client, system)
	must.Succeed(a, err)
	return result, state
}

// TestAcknowledgesAtOnce: a pause is acknowledged by the first reconcile that finds no resize in flight, and by no earlier one.
func TestAcknowledgesAtOnce(t *testing.T) {
	a := newAcknowledger(t)
	for _, value := range []string{"incident 4711", "incident 4712"} {
		must.Succeed(t, Pause(t.Context(), a.Client, system, kube.PluginFieldManager, value))
		a.inFlight = 2
		if result, state := a.reconcile(); result.RequeueAfter != inFlightInterval || state.Acknowledged != "" {
			t.Errorf("%s with two resizes in flight: acknowledged %q, again in %v", value, state.Acknowledged, result.RequeueAfter)
		}
		a.inFlight = 0
		if result, state := a.reconcile(); result.RequeueAfter != 0 || state.Acknowledged != value || !state.Paused() || state.Stopped() == "" {
			t.Errorf("%s: %+v, again in %v", value, state, result.RequeueAfter)
		}
	}
	must.Succeed(t, Resume(t.Context(), a.Client, system, kube.PluginFieldManager))
	a.inFlight = 1 // the end of a pause waits for nothing
	if result, state := a.reconcile(); state.Paused() || state.Stopped() != "" || result.RequeueAfter != 0 {
		t.Errorf("after the end of the pause: %+v", state)
	}
	if len(a.changes) != 2 || !a.changes[0] || a.changes[1] {
		t.Errorf("reported the changes %v, want one pause and one end of it", a.changes)
	}
}

// TestALateAcknowledgementIsNone: what a replica acknowledges late does not count for a pause that has begun
// since, with the same words.
func TestALateAcknowledgementIsNone(t *testing.T) {
	a := newAcknowledger(t)
	must.Succeed(t, Pause(t.Context(), a.Client, system, kube.PluginFieldManager, "true"))
	before, err := ReadState(t.Context(), a.Client, system)
	must.Succeed(t, err)
	must.Succeed(t, Resume(t.Context(), a.Client, system, kube.PluginFieldManager))
	must.Succeed(t, Pause(t.Context(), a.Client, system, kube.PluginFieldManager, "true"))
	if err := a.write(t.Context(), before.Version, map[string]string{kube.AcknowledgedKey: "true"}); !apierrors.IsConflict(err) {
		t.Errorf("%v, want a conflict", err)
	}
	a.inFlight = 1
	if _, state := a.reconcile(); state.Acknowledged != "" {
		t.Errorf("acknowledged %q with a resize in flight", state.Acknowledged)
	}
}

// TestAllReplicasAcknowledge: the switch says that a pause is acknowledged once every replica has, and a
// replica has once no resize of it is in flight. Any of them may write that.
func TestAllReplicasAcknowledge(t *testing.T) {
	a := newAcknowledger(t)
	must.Succeed(t, Pause(t.Context(), a.Client, system, kube.PluginFieldManager, "incident"))
	a.follows, a.others, a.inFlight = true, true, 1
	if a.reconcile(); a.acknowledged != "" {
		t.Errorf("%q is acknowledged with a resize in flight", a.acknowledged)
	}
	a.inFlight = 0
	if result, state := a.reconcile(); !strings.HasPrefix(a.acknowledged, "incident@") || state.Acknowledged != "" || result.RequeueAfter != inFlightInterval {
		t.Errorf("by this replica alone: %q, in the switch %q, again in %v", a.acknowledged, state.Acknowledged, result.RequeueAfter)
	}
	a.others = false
	if result, state := a.reconcile(); state.Acknowledged != "incident" || result.RequeueAfter != 0 {
		t.Errorf("by all: in the switch %q, again in %v", state.Acknowledged, result.RequeueAfter)
	}
	first := a.acknowledged
	must.Succeed(t, Resume(t.Context(), a.Client, system, kube.PluginFieldManager))
	must.Succeed(t, Pause(t.Context(), a.Client, system, kube.PluginFieldManager, "incident"))
	if a.reconcile(); a.acknowledged == first {
		t.Errorf("a second pause of the same words is acknowledged as the first: %q", first)
	}
	a.blocked, a.warning = [2]string{"PermissionMissing", "why"}, [2]string{"AgentsUnresponsive", "why"}
	if _, state := a.reconcile(); state.Blocked != "" || state.Warning != "" {
		t.Errorf("a replica that does not lead writes %+v", state)
	}
}

// TestAcknowledgementCostsTheSame: two reads and two writes begin a pause and acknowledge it, and nothing is listed:
// it costs the same with no PodAllocation as with five thousand.
func TestAcknowledgementCostsTheSame(t *testing.T) {
	requests := 0
	c := interceptor.NewClient(newClient(t), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			requests++
			return w.Get(ctx, key, o, opts...)
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("nothing needs a list")
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			requests++
			return w.Patch(ctx, o, p, opts...)
		},
	})
	for _, value := range []string{"first", "second"} { // the first creates the switch
		requests = 0
		must.Succeed(t, Pause(t.Context(), c, system, kube.PluginFieldManager, value))
		a := leader(c)
		_, err := a.Reconcile(t.Context(), ctrl.Request{})
		must.Succeed(t, err)
		if state, err := ReadState(t.Context(), c, system); err != nil || state.Acknowledged != value {
			t.Fatalf("%v, %+v", err, state)
		}
	}
	if requests != 2+2 { // the pause itself, what the acknowledger reads and writes, and what the test reads
		t.Errorf("%d requests, want 4", requests)
	}
}

// TestSaysWhatBlocks: what blocks resizing stands in the switch for as long as it does, and a cluster where nothing ever did has no switch.
func TestSaysWhatBlocks(t *testing.T) {
	a := newAcknowledger(t)
	a.reconcile()
	if err := a.Client.Get(t.Context(), types.NamespacedName{Namespace: system, Name: kube.SwitchName}, &corev1.ConfigMap{}); err == nil {
		t.Error("a switch was made without a reason")
	}
	a.blocked = [2]string{"PermissionMissing", "the controller may not patch pods/resize"}
	if _, state := a.reconcile(); state.Blocked != a.blocked[0] || state.Message != a.blocked[1] || state.Stopped() == "" {
		t.Errorf("blocked: the switch says %+v", state)
	}
	a.blocked, a.warning = [2]string{}, [2]string{"AgentsUnresponsive", "4 of 10 agents are unresponsive"}
	if _, state := a.reconcile(); state.Warning != a.warning[0] || state.WarningMessage != a.warning[1] || state.Stopped() != "" {
		t.Errorf("a warning: the switch says %+v", state)
	}
	a.warning = [2]string{}
	if _, state := a.reconcile(); state != (State{Version: state.Version}) {
		t.Errorf("no longer blocked: the switch says %+v", state)
	}
}
