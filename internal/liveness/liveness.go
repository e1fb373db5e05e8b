// Package liveness says whether the agents of nodes renew their Leases, and tells the loss of an
// agent from an outage.
//
// What it promises, each a test of the same name:
//   - RenewalsCount: a renewal counts, whatever time it claims; seeing the same again does not.
//   - OldRenewals: what a watch that begins late shows late is no renewal.
//   - CountsAgents: agents count that could renew: those of Ready nodes that have had one.
//   - DeafWatch: an agent whose renewal only the API server itself shows is not unresponsive.
//   - DeafWatchConfirmsNothing: it confirms no decision.
//   - TellsOfAnOutage: an outage is told when it begins and when it ends, and not in between.
//   - TroubleIsLoggedSeldom: while the API server does not answer, there is a log line in five minutes.
package liveness

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// Agents are those of all nodes.
type Agents struct {
	// Client reads from the cache, Live from the API server itself.
	Client, Live client.Reader
	Namespace    string
	// FreezeAfter and RestoreAfter are those of lifecycle.Config.
	FreezeAfter, RestoreAfter time.Duration
	Events                    events.EventRecorder
	Log                       *slog.Logger
	// Count is called with each count of the agents, Changed when an outage has begun or ended.
	Count   func(Outage)
	Changed func(begun bool)

	tracker      tracker
	unread, late seldom // trouble that the agents of many nodes share
}

// Judge adds to a node what is known of its agent.
func (a *Agents) Judge(ctx context.Context, name string, node *lifecycle.Node, now time.Time) error {
	if err := a.Observe(ctx, name, node, now); err != nil {
		return err
	}
	unresponsive := node.Ready && node.Unresponsive(now) >= a.RestoreAfter
	if node.Outage || !unresponsive {
		return nil
	}
	// The watch of Leases may be late, or show nothing any more.
	node.LeaseUnread = !a.confirm(ctx, name, now)
	return nil
}

// confirm says whether the API server itself shows no renewal that the watch does not show. It is asked
// once for each renewal, and again after a while where the watch is late. An agent causes no question,
// so none can delay those about another. All share one limit of log lines: the fault is the API
// server's.
func (a *Agents) confirm(ctx context.Context, name string, now time.Time) bool {
	if a.tracker.isConfirmed(name) {
		return true
	}
	if a.tracker.isLate(name, now, a.RestoreAfter) {
		return false
	}
	lease := &coordinationv1.Lease{}
	err := a.Live.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: kube.AgentLease(name)}, lease)
	if client.IgnoreNotFound(err) != nil {
		if more, due := a.unread.due(now); due {
			a.Log.Warn("the Lease of an agent cannot be read: until it can, its renewals do not count, and its node is not restored",
				"node", name, "err", err, "unlogged", more)
		}
		return false
	}
	if a.tracker.confirm(name, renewed(lease), now) {
		return true
	}
	if more, due := a.late.due(now); due {
		a.Log.Warn("the watch of Leases is late", "node", name, "unlogged", more)
	}
	return false
}

// Observe takes in the state of a node and of its agent's Lease, and counts the agents. It is all that a
// replica needs of a node that another one owns: an outage is one of all agents.
func (a *Agents) Observe(ctx context.Context, name string, node *lifecycle.Node, now time.Time) error {
	lease := &coordinationv1.Lease{}
	err := a.Client.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: kube.AgentLease(name)}, lease)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the Lease of the agent of node %s: %w", name, err)
	}
	a.tracker.observe(name, renewed(lease), now, a.FreezeAfter)
	if !a.tracker.isProven(name) {
		a.confirm(ctx, name, now)
	}
	a.tracker.see(name, *node)
	node.LeaseAge = a.Age(name, now)
	node.Outage = a.observeOutage(now)
	return nil
}

// observeOutage counts agents, and tells once that an outage has begun or ended.
func (a *Agents) observeOutage(now time.Time) bool {
	o, changed := a.tracker.observeOutage(now, a.SilentAfter())
	a.Count(o)
	if !changed {
		return o.Begun
	}
	if o.Begun {
		a.Log.Error("restores stopped", "reason", reasons.AgentsUnresponsive, "why", o.String())
		about := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: kube.SwitchName}}
		a.Events.Eventf(about, nil, corev1.EventTypeWarning, string(reasons.AgentsUnresponsive), "StopRestores", "%s", o)
	} else {
		a.Log.Info("restores are possible again", "agents", o.Total, "unresponsive", o.Unresponsive)
	}
	a.Changed(o.Begun)
	return o.Begun
}

// Warning is the reason and the sentence for an outage; "" without one.
func (a *Agents) Warning() (reason, message string) {
	if o := a.tracker.last(); o.Begun {
		return string(reasons.AgentsUnresponsive), o.String()
	}
	return "", ""
}

// Renewed takes a Lease in. It returns the node of its agent if the Lease was overdue; else "".
func (a *Agents) Renewed(lease *coordinationv1.Lease, now time.Time) (node string) {
	name, ok := kube.AgentLeaseNode(lease)
	if !ok || a.tracker.observe(name, renewed(lease), now, a.FreezeAfter) < a.FreezeAfter {
		return ""
	}
	return name
}

// Age is the time since the agent of a node was last seen to renew its Lease.
func (a *Agents) Age(node string, now time.Time) time.Duration { return a.tracker.age(node, now) }

// SilentAfter is the age of its Lease from which an agent counts as unresponsive: twice FreezeAfter, so that
// Leases that are found overdue at the start have the time to be renewed.
func (a *Agents) SilentAfter() time.Duration { return min(2*a.FreezeAfter, a.RestoreAfter) }

// Nodes is how many nodes are known.
func (a *Agents) Nodes() int { return a.tracker.nodeCount() }

// Drop forgets a node that does not exist any more.
func (a *Agents) Drop(node string) { a.tracker.drop(node) }

// renewed is when a Lease was renewed last, by its holder's clock; zero: never.
func renewed(lease *coordinationv1.Lease) time.Time {
	return ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
}
