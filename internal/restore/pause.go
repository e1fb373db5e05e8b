package restore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
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
	// Version is the version of the switch, so that a pause is not taken for an earlier one of the same words.
	Version string
	// Acknowledged is the pause that all replicas of the controller have acknowledged: no resize that started before it is in flight.
	Acknowledged string
	// HarmHold is why decisions only raise limits up to the declared ones, as harm has spread; "": it has not.
	HarmHold string
	// HarmEnded is when an operator last resumed; zero: never. Harm from before does not count.
	HarmEnded time.Time
	// Blocked is the reason why the controller can resize no pod, and Message the reason in a sentence; "" if it can.
	Blocked, Message string
	// Warning is the reason why the controller does less than it should, and WarningMessage the
	// reason in a sentence; "" if there is none.
	Warning, WarningMessage string
}

// Paused says whether the switch stops all resizes.
func (s State) Paused() bool { return s.Pause != "" && s.Pause != "false" }

// token is what a replica acknowledges: the pause and the version of the switch that it has seen.
func (s State) token() string { return s.Pause + tokenMark + s.Version }

// tokenMark divides a token. No version contains it.
const tokenMark = "@"

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

// Held says in a sentence why decisions only raise limits up to the declared ones; "" if they may.
func (s State) Held() string {
	if s.HarmHold == "" {
		return ""
	}
	return fmt.Sprintf("Decisions only raise limits up to the declared ones, as harm has spread (ConfigMap %s, %s: %q)", kube.SwitchName, kube.HarmHoldKey, s.HarmHold)
}

// ReadState reads the switch.
func ReadState(ctx context.Context, c client.Reader, namespace string) (State, error) {
	cm := &corev1.ConfigMap{}
	err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: kube.SwitchName}, cm)
	if client.IgnoreNotFound(err) != nil {
		return State{}, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, kube.SwitchName, err)
	}
	ended, _ := time.Parse(time.RFC3339Nano, cm.Data[kube.HarmEndedKey]) // "" is never
	return State{
		HarmHold: cm.Data[kube.HarmHoldKey], HarmEnded: ended, Version: string(cm.UID) + "/" + cm.ResourceVersion,
		Pause: cm.Data[kube.PausedKey], Acknowledged: cm.Data[kube.AcknowledgedKey],
		Blocked: cm.Data[kube.BlockedKey], Message: cm.Data[kube.BlockedMessageKey],
		Warning: cm.Data[kube.WarningKey], WarningMessage: cm.Data[kube.WarningMessageKey],
	}, nil
}

// Pause stops all resizes; value says what for. Any earlier acknowledgement is withdrawn.
func Pause(ctx context.Context, c client.Client, namespace, manager, value string) error {
	return writeSwitch(ctx, c, namespace, manager, map[string]string{kube.PausedKey: value, kube.AcknowledgedKey: ""})
}

// HoldForHarm has decisions only raise limits up to the declared ones because harm has spread, unless the switch has
// changed since it was read. It is no pause: rollbacks, restores and opt-outs go on.
func HoldForHarm(ctx context.Context, c client.Client, namespace string, read State, why string) error {
	return writeVersion(ctx, c, namespace, read.Version, map[string]string{kube.HarmHoldKey: why})
}

// Resume ends a pause and a hold for harm. Harm from before at does not count again.
func Resume(ctx context.Context, c client.Client, namespace, manager string, at time.Time) error {
	return writeSwitch(ctx, c, namespace, manager, map[string]string{
		kube.PausedKey: "false", kube.AcknowledgedKey: "",
		kube.HarmHoldKey: "", kube.HarmEndedKey: at.UTC().Format(time.RFC3339Nano),
	})
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
	// NoController: no controller holds a Lease.
	NoController
	// DeadController: the controllers that hold Leases no longer renew them.
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

// Wait returns once the pause is acknowledged, or no controller is left that could acknowledge it; holder names the controllers.
// A controller that renews its Lease and does not answer may still resize pods: that is an error. So are Leases that cannot be
// read: their holders count as alive.
func (w Waiter) Wait(ctx context.Context, pause string) (answer Answer, holder string, err error) {
	seen := map[string]*kube.LeaderObserver{}
	late := ""
	var unread error
	for end := w.Now().Add(AcknowledgeWithin); w.Now().Before(end); {
		state, err := ReadState(ctx, w.Client, w.Namespace)
		if err == nil && state.Acknowledged == pause {
			return Acknowledged, holders(seen), nil
		}
		unread = err
		leases, err := w.leases(ctx)
		if err != nil {
			unread = err
		} else {
			late = unacknowledged(leases, pause)
			if answer, ok := observe(seen, leases, w.Now()); ok {
				return answer, holders(seen), nil
			}
		}
		select {
		case <-ctx.Done():
			return 0, holders(seen), fmt.Errorf("interrupted: MBCAS is paused, and the controller has not acknowledged it yet: %w", ctx.Err())
		case <-time.After(w.Interval):
		}
	}
	if unread != nil {
		return 0, holders(seen), fmt.Errorf("MBCAS is paused, and whether the controller has acknowledged it is not known: %w", unread)
	}
	return 0, holders(seen), fmt.Errorf("the controller %s renews its Lease in namespace %s, has not acknowledged the pause in %v and may still be "+
		"resizing: look at its log (kubectl -n %s logs deployment/mbcas-controller), or restart it (kubectl -n %s rollout restart "+
		"deployment/mbcas-controller)", cmp.Or(late, holders(seen)), w.Namespace, AcknowledgeWithin, w.Namespace, w.Namespace)
}

// observe takes in the Leases of the leader and of all replicas, and says what is known where none of
// their holders is alive.
func observe(seen map[string]*kube.LeaderObserver, leases []coordinationv1.Lease, now time.Time) (Answer, bool) {
	answer, alive := NoController, false
	for i := range leases {
		l := &leases[i]
		if seen[l.Name] == nil {
			seen[l.Name] = &kube.LeaderObserver{}
		}
		switch seen[l.Name].Observe(l, now) {
		case kube.NoLeader:
		case kube.LeaderAlive:
			alive = true
		case kube.LeaderLapsed:
			answer = DeadController
		}
	}
	return answer, !alive
}

// holders names all holders that were seen.
func holders(seen map[string]*kube.LeaderObserver) string {
	var names []string
	for _, l := range seen {
		if h := l.Holder(); h != "" {
			names = append(names, h)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// unacknowledged names the replicas whose Leases do not tell that they have acknowledged the pause.
func unacknowledged(leases []coordinationv1.Lease, pause string) string {
	var names []string
	for i := range leases {
		if l := &leases[i]; l.Labels[kube.ReplicaLabel] != "" && !strings.HasPrefix(l.Annotations[kube.AcknowledgedPauseKey], pause+tokenMark) {
			names = append(names, l.Name)
		}
	}
	return strings.Join(names, ", ")
}

// leases are those of the leader and of all replicas.
func (w Waiter) leases(ctx context.Context) ([]coordinationv1.Lease, error) {
	var list coordinationv1.LeaseList
	err := w.Client.List(ctx, &list, client.InNamespace(w.Namespace), client.HasLabels{kube.ReplicaLabel}, client.Limit(pageSize))
	if err != nil {
		return nil, fmt.Errorf("list the Leases of the replicas in %s: %w", w.Namespace, err)
	}
	lease := &coordinationv1.Lease{}
	err = w.Client.Get(ctx, types.NamespacedName{Namespace: w.Namespace, Name: kube.LeaderLease}, lease)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Lease %s/%s: %w", w.Namespace, kube.LeaderLease, err)
	}
	if err == nil {
		list.Items = append(list.Items, *lease)
	}
	return list.Items, nil
}
