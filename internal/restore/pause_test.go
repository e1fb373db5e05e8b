package restore

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/internal/kube"
)

// acknowledger is an Acknowledger of a cluster without a switch, and what it was told and has told.
type acknowledger struct {
	Acknowledger
	*testing.T
	inFlight int64
	blocked  [2]string
	changes  []bool
}

func newAcknowledger(t *testing.T) *acknowledger {
	t.Helper()
	a := &acknowledger{T: t}
	a.Acknowledger = Acknowledger{
		Client: newClient(t), Namespace: system, InFlight: func() int64 { return a.inFlight },
		Blocked: func() (string, string) { return a.blocked[0], a.blocked[1] }, Changed: func(paused bool) { a.changes = append(a.changes, paused) },
	}
	return a
}

// reconcile reconciles the switch, and returns what it says then.
func (a *acknowledger) reconcile() (ctrl.Result, State) {
	a.Helper()
	result, err := a.Reconcile(a.Context(), ctrl.Request{})
	if err != nil {
		a.Fatal(err)
	}
	state, err := ReadState(a.Context(), a.Client, system)
	if err != nil {
		a.Fatal(err)
	}
	return result, state
}

// TestAcknowledgesAtOnce: a pause is acknowledged by the first reconcile that finds no resize in flight, and by no earlier one.
func TestAcknowledgesAtOnce(t *testing.T) {
	a := newAcknowledger(t)
	for _, value := range []string{"incident 4711", "incident 4712"} {
		must(t, Pause(t.Context(), a.Client, system, kube.PluginFieldManager, value))
		a.inFlight = 2
		if result, state := a.reconcile(); result.RequeueAfter != inFlightInterval || state.Acknowledged != "" {
			t.Errorf("%s with two resizes in flight: acknowledged %q, again in %v", value, state.Acknowledged, result.RequeueAfter)
		}
		a.inFlight = 0
		if result, state := a.reconcile(); result.RequeueAfter != 0 || state.Acknowledged != value || !state.Paused() || state.Stopped() == "" {
			t.Errorf("%s: %+v, again in %v", value, state, result.RequeueAfter)
		}
	}
	must(t, Resume(t.Context(), a.Client, system, kube.PluginFieldManager))
	if _, state := a.reconcile(); state.Paused() || state.Stopped() != "" {
		t.Errorf("after the end of the pause: %+v", state)
	}
	if len(a.changes) != 2 || !a.changes[0] || a.changes[1] {
		t.Errorf("told of the changes %v, want one pause and one end of it", a.changes)
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
	a.blocked = [2]string{}
	if _, state := a.reconcile(); state != (State{}) {
		t.Errorf("no longer blocked: the switch says %+v", state)
	}
}
