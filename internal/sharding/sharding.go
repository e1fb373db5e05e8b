// Package sharding divides the nodes of a cluster over the replicas of the controller. Each replica
// renews a Lease of its own and lists those of the others; a hash of replica and node says which
// replica owns the node.
//
// What it promises, each a test of the same name:
//   - OneOwner: no two replicas own a node at the same time, whatever requests are lost or late and
//     whichever replica stops.
//   - AHiccupMovesNothing: a replica without renewals or lists takes none of its nodes for another's.
//   - TellsOfEachChange: whenever the owner of a node changes, its new owner is told.
//   - AllAcknowledge: a pause is acknowledged once all replicas have that may still send a resize.
//   - NothingIsSentLate: a write about a node of another replica is not sent.
//   - MovesInTime: the nodes of a replica that stops, or joins, have their new owner within 15 s.
//   - MovesLittle: a replica that joins or leaves moves no node between the others, and about its
//     share in all.
package sharding

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/kube"
)

// Replica is one replica's part in the division of nodes. As a part of the manager it runs without
// leader election. One that is nil is alone: it owns every node.
type Replica struct {
	// API reads Leases from the API server itself, not from a cache.
	API client.Client
	// Namespace holds the Leases; Name is that of this replica's, which no other process uses: two with
	// one name would own all nodes both.
	Namespace, Name string
	// Changed is called when the replica may own other nodes than before.
	Changed func()
	// InFlight is the number of resizes that the API server has not answered. A replica that stops
	// keeps its Lease until there are none.
	InFlight func() int64
	Log      *slog.Logger

	view  atomic.Pointer[view]
	pause atomic.Pointer[string] // the last that this replica acknowledged
	wake  chan struct{}          // has the Lease renewed at once
	lease *coordinationv1.Lease  // as last written
	told  state                  // what Changed was last called for
	nodes nodes
}

// state is what decides which nodes the replica owns.
type state struct {
	live    string // the names of the replicas that are not lost
	owner   bool   // whether this one may own nodes
	ownFrom time.Time
	lapses  int // nodes that were looked at meanwhile were taken for those of others
}

// New is a replica that owns nothing before it has started.
func New(api client.Client, namespace, name string, log *slog.Logger) *Replica {
	r := &Replica{API: api, Namespace: namespace, Name: name, Log: log, wake: make(chan struct{}, 1)}
	r.Changed, r.InFlight = func() {}, func() int64 { return 0 }
	r.view.Store(&view{self: name})
	return r
}

// Ownership is what a replica knows of the owner of a node.
type Ownership int

const (
	// Unknown: the replica can not tell. It writes nothing about the node, and forgets nothing of it.
	Unknown Ownership = iota
	Owned
	OwnedByOther
)

// Ownership is what this replica knows of the owner of a node now.
func (r *Replica) Ownership(node string) Ownership {
	if r == nil {
		return Owned
	}
	return r.view.Load().ownership(node, time.Now())
}

// Owns says whether this replica owns the node now.
func (r *Replica) Owns(node string) bool { return r.Ownership(node) == Owned }

// Tenure is another number each time when another replica may have owned the node since this one owned
// it last. Read it before Ownership: then what is done while the node is owned belongs to that tenure, or
// to a later one.
func (r *Replica) Tenure(node string) int {
	if r == nil {
		return 0
	}
	return r.view.Load().tenures + r.nodes.moves(node)
}

// Alone says whether no other replica may own a node.
func (r *Replica) Alone() bool {
	if r == nil {
		return true
	}
	v := r.view.Load()
	return v.trusted(time.Now()) && len(v.live()) == 1
}

// Acknowledge has the Lease tell that no resize of this replica is in flight that began before the
// pause, and says whether all replicas have told so that may still send a resize.
func (r *Replica) Acknowledge(pause string) (all bool) {
	if r == nil {
		return true
	}
	if last := r.pause.Swap(&pause); last == nil || *last != pause {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	return r.view.Load().acknowledged(pause, time.Now())
}

// NeedLeaderElection is false: all replicas take part.
func (*Replica) NeedLeaderElection() bool { return false }

// Start renews the Lease until ctx ends, and then deletes it, so that the others need not wait for
// it to lapse.
func (r *Replica) Start(ctx context.Context) error {
	for failed := false; ; {
		err := r.renew(ctx)
		if ctx.Err() != nil {
			return r.leave()
		}
		if failed != (err != nil) {
			if failed = err != nil; failed {
				r.Log.Error("the Lease of this replica is not renewed; if that lasts, other replicas take its nodes over",
					"lease", r.Namespace+"/"+r.Name, "err", err)
			} else {
				r.Log.Info("the Lease of this replica is renewed again", "lease", r.Namespace+"/"+r.Name)
			}
		}
		r.tell()
		select {
		case <-ctx.Done():
			return r.leave()
		case <-r.wake:
		case <-time.After(renewInterval*3/4 + rand.N(renewInterval/2)):
		}
	}
}

// renew renews the Lease and then lists all: what a replica sees is never newer than what the
// others can see of it.
func (r *Replica) renew(ctx context.Context) error {
	started := time.Now()
	if err := r.write(ctx, started); err != nil {
		r.lease = nil
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var all coordinationv1.LeaseList
	if err := r.API.List(ctx, &all, client.InNamespace(r.Namespace), client.HasLabels{kube.ReplicaLabel}); err != nil {
		return fmt.Errorf("list the Leases of the replicas in %s: %w", r.Namespace, err)
	}
	renewals := map[string]renewal{}
	for i := range all.Items {
		l := &all.Items[i]
		renewals[l.Name] = renewal{l.ResourceVersion, l.Annotations[kube.AcknowledgedPauseKey]}
	}
	if _, ok := renewals[r.Name]; !ok {
		return fmt.Errorf("the list of the Leases of the replicas in %s lacks %s", r.Namespace, r.Name)
	}
	v := r.view.Load().next(started, time.Now(), renewals)
	r.view.Store(&v)
	for i := range all.Items {
		if old := &all.Items[i]; v.isLost(old.Name, leaseKept) {
			if err := r.API.Delete(ctx, old, client.Preconditions{ResourceVersion: &old.ResourceVersion}); err != nil {
				r.Log.Debug("the Lease of a lost replica is not deleted", "lease", r.Namespace+"/"+old.Name, "err", err)
			}
		}
	}
	return nil
}

// write creates or renews the Lease.
func (r *Replica) write(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lease := r.lease
	if lease == nil {
		lease = &coordinationv1.Lease{}
		err := r.API.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, lease)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read Lease %s/%s: %w", r.Namespace, r.Name, err)
		}
	}
	next := lease.DeepCopy()
	at, seconds := metav1.NewMicroTime(now), int32(silentAfter/time.Second)
	next.Labels = map[string]string{kube.ReplicaLabel: "true"}
	next.Annotations = nil
	if pause := r.pause.Load(); pause != nil {
		next.Annotations = map[string]string{kube.AcknowledgedPauseKey: *pause}
	}
	next.Spec.HolderIdentity, next.Spec.RenewTime, next.Spec.LeaseDurationSeconds = &r.Name, &at, &seconds
	var err error
	if next.ResourceVersion == "" {
		next.Namespace, next.Name = r.Namespace, r.Name
		v := *r.view.Load()
		v.tenures++ // where another client deleted the Lease, others own the nodes: it joins again
		v.readAt = time.Time{}
		r.view.Store(&v)
		err = r.API.Create(ctx, next)
	} else {
		err = r.API.Update(ctx, next)
	}
	if err != nil {
		return fmt.Errorf("renew Lease %s/%s: %w", r.Namespace, r.Name, err)
	}
	r.lease = next
	return nil
}

// tell calls Changed when a replica came or went, or this one begins to own nodes or stops.
func (r *Replica) tell() {
	v, now := r.view.Load(), time.Now()
	live := v.live()
	is := state{fmt.Sprint(live), v.trusted(now) && !now.Before(v.ownFrom), v.ownFrom, v.lapses}
	if is == r.told {
		return
	}
	if is.live != r.told.live || is.owner != r.told.owner {
		r.Log.Info("nodes are divided anew", "replicas", live, "owner", is.owner)
	}
	r.told = is
	r.nodes.recount(*v)
	r.Changed()
}

// leave deletes the Lease once no resize is in flight. From here on this replica owns nothing.
func (r *Replica) leave() error {
	r.view.Store(&view{self: r.Name})
	for begun := time.Now(); r.InFlight() > 0 && time.Since(begun) < podresize.Timeout; {
		time.Sleep(leaveInterval)
	}
	ctx, cancel := context.WithTimeout(context.Background(), renewInterval)
	defer cancel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	if err := r.API.Delete(ctx, lease); err != nil && !apierrors.IsNotFound(err) {
		r.Log.Error("the Lease of this replica is not deleted; it lapses", "lease", r.Namespace+"/"+r.Name, "err", err)
	}
	return nil
}
