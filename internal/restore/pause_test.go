package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// acknowledger is an Acknowledger of a cluster without a switch, and what it was told and has told.
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
	a.Acknowledger = Acknowledger{
		Client: newClient(t), Namespace: system, InFlight: func() int64 { return a.inFlight },
		Acknowledge: func(pause string) bool { a.acknowledged = pause; return !a.others }, Leads: func() bool { return !a.follows },
		Blocked: func() (string, string) { return a.blocked[0], a.blocked[1] },
		Warning: func() (string, string) { return a.warning[0], a.warning[1] }, Changed: func(paused bool) { a.changes = append(a.changes, paused) },
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
	must(t, Resume(t.Context(), a.Client, system, kube.PluginFieldManager, time.Now()))
	a.inFlight = 1 // the end of a pause waits for nothing
	if result, state := a.reconcile(); state.Paused() || state.Stopped() != "" || result.RequeueAfter != 0 {
		t.Errorf("after the end of the pause: %+v", state)
	}
	if len(a.changes) != 2 || !a.changes[0] || a.changes[1] {
		t.Errorf("told of the changes %v, want one pause and one end of it", a.changes)
	}
}

// TestALateAcknowledgementIsNone: what a replica acknowledges late does not count for a pause that has begun
// since, with the same words.
func TestALateAcknowledgementIsNone(t *testing.T) {
	a := newAcknowledger(t)
	must(t, Pause(t.Context(), a.Client, system, kube.PluginFieldManager, "true"))
	before, err := ReadState(t.Context(), a.Client, system)
	must(t, err)
	must(t, Resume(t.Context(), a.Client, system, kube.PluginFieldManager, time.Now()))
	must(t, Pause(t.Context(), a.Client, system, kube.PluginFieldManager, "true"))
	if err := writeVersion(t.Context(), a.Client, system, before.Version, map[string]string{kube.AcknowledgedKey: "true"}); !apierrors.IsConflict(err) {
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
	must(t, Pause(t.Context(), a.Client, system, kube.PluginFieldManager, "incident"))
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
	must(t, Resume(t.Context(), a.Client, system, kube.PluginFieldManager, time.Now()))
	must(t, Pause(t.Context(), a.Client, system, kube.PluginFieldManager, "incident"))
	if a.reconcile(); a.acknowledged == first {
		t.Errorf("a second pause of the same words is acknowledged as the first: %q", first)
	}
	a.blocked, a.warning = [2]string{"PermissionMissing", "why"}, [2]string{"AgentsUnresponsive", "why"}
	if _, state := a.reconcile(); state.Blocked != "" || state.Warning != "" {
		t.Errorf("a replica that does not lead writes %+v", state)
	}
}

// manyAllocations is a client of a cluster with that many PodAllocations, which counts its requests.
func manyAllocations(t testing.TB, n int) (c client.Client, requests *int) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	objects := make([]client.Object, n)
	for i := range objects {
		objects[i] = &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("uid-", i)}}
	}
	requests = new(int)
	return interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			*requests++
			return w.Get(ctx, key, o, opts...)
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("nothing needs a list")
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			*requests++
			return w.Patch(ctx, o, p, opts...)
		},
	}), requests
}

// pauseAndAcknowledge pauses, and reconciles the switch once.
func pauseAndAcknowledge(t testing.TB, c client.Client, value string) {
	t.Helper()
	none := func() (string, string) { return "", "" }
	a := Acknowledger{
		Client: c, Namespace: system, InFlight: func() int64 { return 0 }, Blocked: none, Warning: none, Changed: func(bool) {},
		Acknowledge: func(string) bool { return true }, Leads: func() bool { return true },
	}
	err := Pause(t.Context(), c, system, kube.PluginFieldManager, value)
	if err == nil {
		_, err = a.Reconcile(t.Context(), ctrl.Request{})
	}
	if state, _ := ReadState(t.Context(), c, system); err != nil || state.Acknowledged != value {
		t.Fatalf("%v, %+v", err, state)
	}
}

// TestAcknowledgementCostsTheSame: one read and one write acknowledge a pause, with no PodAllocation as with
// five thousand.
func TestAcknowledgementCostsTheSame(t *testing.T) {
	for _, n := range []int{0, 5000} {
		c, requests := manyAllocations(t, n)
		pauseAndAcknowledge(t, c, "first") // creates the switch
		*requests = 0
		pauseAndAcknowledge(t, c, "second")
		if *requests != 2+2 { // the pause itself, what the acknowledger reads and writes, and what the test reads
			t.Errorf("%d PodAllocations: %d requests, want 4", n, *requests)
		}
	}
}

// BenchmarkAcknowledge acknowledges pauses of a cluster with 20,000 PodAllocations.
func BenchmarkAcknowledge(b *testing.B) {
	c, _ := manyAllocations(b, 20000)
	for i := 0; b.Loop(); i++ {
		pauseAndAcknowledge(b, c, fmt.Sprint("incident ", i))
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

// TestHarmHoldIsNoPause: a hold for harm pauses nothing, is not written over a switch that has changed since it was read,
// and ends with a date.
func TestHarmHoldIsNoPause(t *testing.T) {
	c := newClient(t)
	read := func() State {
		s, err := ReadState(t.Context(), c, system)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if err := Resume(t.Context(), c, system, kube.PluginFieldManager, time.Now()); err != nil {
		t.Fatal(err)
	}
	before := read()
	if err := HoldForHarm(t.Context(), c, system, before, "3 workloads"); err != nil {
		t.Fatal(err)
	}
	if s := read(); s.HarmHold != "3 workloads" || s.Paused() || s.Stopped() != "" || !strings.Contains(s.Held(), "3 workloads") {
		t.Errorf("held: %+v", s)
	}
	at := time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC)
	if err := Resume(t.Context(), c, system, kube.PluginFieldManager, at); err != nil {
		t.Fatal(err)
	}
	if err := HoldForHarm(t.Context(), c, system, before, "late"); !apierrors.IsConflict(err) {
		t.Errorf("a hold by an old view of the switch: %v, want a conflict", err)
	}
	if s := read(); s.Held() != "" || s.Paused() || !s.HarmEnded.Equal(at) {
		t.Errorf("ended: %+v", s)
	}
}
