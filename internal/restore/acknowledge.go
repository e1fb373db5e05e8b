package restore

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/mbcas/mbcas/internal/kube"
)

// Acknowledger is the controller of the switch, in every replica. It has a work queue of its own, so that the acknowledgement of a
// pause never waits behind nodes. The leader's says once in the switch why no pod can be resized, so that no PodAllocation has to.
type Acknowledger struct {
	Client    client.Client
	Namespace string
	// InFlight is the number of resize requests of this replica that the API server has not answered.
	InFlight func() int64
	// Acknowledge tells the other replicas that this one has acknowledged a pause, and says whether all
	// have, so that the switch may say so.
	Acknowledge func(pause string) (all bool)
	// Leads says whether this replica is the leader.
	Leads func() bool
	// Blocked is the reason why no pod can be resized, and the reason in a sentence; "" if pods can be resized.
	Blocked func() (reason, message string)
	// Warning is the reason why the controller does less than it should, and the reason in a sentence;
	// "" if there is none.
	Warning func() (reason, message string)
	// Changed is called when the installation is paused and when it is resumed.
	Changed func(paused bool)
	// HoldChanged is called when a hold for harm begins and when it ends; nil: nothing is to be told.
	HoldChanged func(held bool)
	// Wake gets an event when Blocked or Warning has changed.
	Wake chan event.GenericEvent

	paused, held bool // at the last reconcile
}

// inFlightInterval is how soon the requests in flight, and the other replicas, are looked at again before a pause is acknowledged.
const inFlightInterval = 50 * time.Millisecond

// Setup has the manager call Reconcile when the switch changes, and when Wake gets an event.
func (a *Acknowledger) Setup(mgr ctrl.Manager) error {
	key := types.NamespacedName{Namespace: a.Namespace, Name: kube.SwitchName}
	isSwitch := predicate.NewPredicateFuncs(func(o client.Object) bool { return client.ObjectKeyFromObject(o) == key })
	theSwitch := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: key}}
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("switch").
		For(&corev1.ConfigMap{}, builder.WithPredicates(isSwitch)).
		WatchesRawSource(source.Channel(a.Wake, theSwitch)).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(a)
	if err == nil {
		err = mgr.Add(manager.RunnableFunc(a.publish))
	}
	if err != nil {
		return fmt.Errorf("set up the controller of the pause switch: %w", err)
	}
	return nil
}

// publish has what the last leader wrote replaced by what this one, which has just been elected, knows.
func (a *Acknowledger) publish(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case a.Wake <- event.GenericEvent{Object: &corev1.ConfigMap{}}:
	}
	return nil
}

// Reconcile acknowledges a pause once no resize of any replica is in flight, and publishes what blocks resizing.
func (a *Acknowledger) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	state, err := ReadState(ctx, a.Client, a.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	if paused := state.Paused(); paused != a.paused {
		a.paused = paused
		a.Changed(paused)
	}
	if held := state.HarmHold != ""; held != a.held && a.HoldChanged != nil {
		a.held = held
		a.HoldChanged(held)
	}
	var result ctrl.Result
	data := map[string]string{}
	if state.Acknowledged != state.Pause {
		// A resize that starts from here on reads the same switch before it is sent. The end of a pause waits for nothing.
		if state.Paused() && (a.InFlight() > 0 || !a.Acknowledge(state.token())) {
			result.RequeueAfter = inFlightInterval
		} else {
			data[kube.AcknowledgedKey] = state.Pause
		}
	}
	if a.Leads() {
		if reason, message := a.Blocked(); reason != state.Blocked || message != state.Message {
			data[kube.BlockedKey], data[kube.BlockedMessageKey] = reason, message
		}
		if reason, message := a.Warning(); reason != state.Warning || message != state.WarningMessage {
			data[kube.WarningKey], data[kube.WarningMessageKey] = reason, message
		}
	}
	if len(data) == 0 {
		return result, nil
	}
	err = writeVersion(ctx, a.Client, a.Namespace, state.Version, data)
	if apierrors.IsConflict(err) { // the switch has changed since it was read
		return ctrl.Result{RequeueAfter: inFlightInterval}, nil
	}
	return result, err
}

// writeVersion sets keys of this version of the switch, and of no later one: an acknowledgement that is late must
// not count for the next pause.
func writeVersion(ctx context.Context, c client.Client, namespace, version string, data map[string]string) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kube.SwitchName}}
	uid, resourceVersion, _ := strings.Cut(version, "/")
	cm.UID, cm.ResourceVersion = types.UID(uid), resourceVersion
	if err := writeData(ctx, c, cm, kube.FieldManager, data); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", namespace, kube.SwitchName, err)
	}
	return nil
}
