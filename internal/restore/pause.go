package restore

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// State is what the switch, the ConfigMap kube.SwitchName, says about the whole installation. The zero value is that of an
// installation without a switch: it is not paused, and nothing blocks it.
type State struct {
	// Pause is the value of kube.PausedKey: what the pause is for.
	Pause string
	// Acknowledged is the pause that the controller has acknowledged: no resize that started before it is in flight.
	Acknowledged string
	// Blocked is the reason why the controller can resize no pod, and Message the reason in a sentence; "" if it can.
	Blocked, Message string
	// Warning is the reason why the controller does less than it should, and WarningMessage the
	// reason in a sentence; "" if there is none.
	Warning, WarningMessage string
}

// Paused says whether the switch stops all resizes.
func (s State) Paused() bool { return s.Pause != "" && s.Pause != "false" }

// Stopped says in a sentence why MBCAS resizes no pod of the cluster; "" if it does.
func (s State) Stopped() string {
	switch {
	case s.Paused():
		return fmt.Sprintf("MBCAS is paused and resizes no pod (ConfigMap %s, %s: %q)", kube.SwitchName, kube.PausedKey, s.Pause)
	case s.Blocked != "":
		return fmt.Sprintf("MBCAS resizes no pod: %s (%s)", s.Message, s.Blocked)
	}
	return ""
}

// ReadState reads the switch.
func ReadState(ctx context.Context, c client.Reader, namespace string) (State, error) {
	cm := &corev1.ConfigMap{}
	err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: kube.SwitchName}, cm)
	if client.IgnoreNotFound(err) != nil {
		return State{}, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, kube.SwitchName, err)
	}
	return State{
		Pause: cm.Data[kube.PausedKey], Acknowledged: cm.Data[kube.AcknowledgedKey],
		Blocked: cm.Data[kube.BlockedKey], Message: cm.Data[kube.BlockedMessageKey],
		Warning: cm.Data[kube.WarningKey], WarningMessage: cm.Data[kube.WarningMessageKey],
	}, nil
}

// Pause stops all resizes; value says what for. Any earlier acknowledgement is withdrawn.
func Pause(ctx context.Context, c client.Client, namespace, manager, value string) error {
	return writeSwitch(ctx, c, namespace, manager, map[string]string{kube.PausedKey: value, kube.AcknowledgedKey: ""})
}

// Resume ends a pause.
func Resume(ctx context.Context, c client.Client, namespace, manager string) error {
	return Pause(ctx, c, namespace, manager, "false")
}

// writeSwitch sets keys of the switch; an empty value removes the key.
func writeSwitch(ctx context.Context, c client.Client, namespace, manager string, data map[string]string) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kube.SwitchName}}
	if err := writeData(ctx, c, cm, manager, data); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", namespace, kube.SwitchName, err)
	}
	return nil
}

// Answer is how a pause took effect.
type Answer int

const (
	// Acknowledged: the controller has acknowledged the pause, and no resize is in flight.
	Acknowledged Answer = iota
	// NoController: no controller holds the leader's Lease.
	NoController
	// DeadController: the controller that holds the Lease no longer renews it.
	DeadController
)

// AcknowledgeWithin is how long a controller may take to acknowledge a pause. It is longer than a Lease lasts without renewal.
const AcknowledgeWithin = 20 * time.Second

// Waiter waits for the acknowledgement of a pause.
type Waiter struct {
	Client    client.Reader
	Namespace string
	Now       func() time.Time
	// Interval is the time from one read of the switch to the next.
	Interval time.Duration
}

// Wait returns once the pause is acknowledged, or no controller is left that could acknowledge it; holder names the controller.
// A controller that renews its Lease and does not answer may still resize pods: that is an error. So is a Lease that cannot be
// read: its holder counts as alive.
func (w Waiter) Wait(ctx context.Context, pause string) (answer Answer, holder string, err error) {
	var leader kube.LeaderObserver
	var unread error
	for end := w.Now().Add(AcknowledgeWithin); w.Now().Before(end); {
		state, err := ReadState(ctx, w.Client, w.Namespace)
		if err == nil && state.Acknowledged == pause {
			return Acknowledged, leader.Holder(), nil
		}
		unread = err
		lease, err := w.lease(ctx)
		if err != nil {
			unread = err
		} else {
			switch leader.Observe(lease, w.Now()) {
			case kube.NoLeader:
				return NoController, "", nil
			case kube.LeaderLapsed:
				return DeadController, leader.Holder(), nil
			case kube.LeaderAlive:
			}
		}
		select {
		case <-ctx.Done():
			return 0, leader.Holder(), fmt.Errorf("interrupted: MBCAS is paused, and the controller has not acknowledged it yet: %w", ctx.Err())
		case <-time.After(w.Interval):
		}
	}
	if unread != nil {
		return 0, leader.Holder(), fmt.Errorf("MBCAS is paused, and whether the controller has acknowledged it is not known: %w", unread)
	}
	return 0, leader.Holder(), fmt.Errorf("the controller %s holds Lease %s/%s, has not acknowledged the pause in %v and may still be resizing: "+
		"look at its log (kubectl -n %s logs deployment/mbcas-controller), or restart it (kubectl -n %s rollout restart deployment/mbcas-controller)",
		leader.Holder(), w.Namespace, kube.LeaderLease, AcknowledgeWithin, w.Namespace, w.Namespace)
}

// lease is the leader's Lease; nil if there is none.
func (w Waiter) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := w.Client.Get(ctx, types.NamespacedName{Namespace: w.Namespace, Name: kube.LeaderLease}, lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Lease %s/%s: %w", w.Namespace, kube.LeaderLease, err)
	}
	return lease, nil
}
