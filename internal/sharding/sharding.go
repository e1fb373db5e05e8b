// Package sharding divides the nodes of a cluster over the replicas of the controller. Each replica
// renews a Lease of its own and lists those of the others; a hash of replica and node says which
// replica owns the node.
//
// What it promises, each a test of the same name:
//   - OneOwner: no two replicas own a node at the same time, whatever requests are lost or late and
//     whichever replica stops.
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
)

// Label marks the Leases of replicas.
const Label = "mbcas.io/controller-replica"

// Replica is one replica's part in the division of nodes. As a part of the manager it runs without
// leader election.
type Replica struct {
	// API reads Leases from the API server itself, not from a cache.
	API client.Client
	// Namespace holds the Leases; Name is the replica's, unique in the cluster: that of its pod.
	Namespace, Name string
	// Changed is called when the replica may own other nodes than before.
	Changed func()
	Log     *slog.Logger

	view  atomic.Pointer[view]
	lease *coordinationv1.Lease // as last written
	live  int                   // replicas, as last told
	owner bool                  // whether this replica owned nodes when it last told
}

// Owns says whether this replica owns the node now.
func (r *Replica) Owns(node string) bool {
	v := r.view.Load()
	return v != nil && v.owns(node, time.Now())
}

// NeedLeaderElection is false: all replicas take part.
func (*Replica) NeedLeaderElection() bool { return false }

// Start renews the Lease until ctx ends, and then deletes it, so that the others need not wait for
// it to lapse.
func (r *Replica) Start(ctx context.Context) error {
	r.view.Store(&view{self: r.Name})
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
	if err := r.API.List(ctx, &all, client.InNamespace(r.Namespace), client.HasLabels{Label}); err != nil {
		return fmt.Errorf("list the Leases of the replicas in %s: %w", r.Namespace, err)
	}
	renewals := map[string]string{}
	for i := range all.Items {
		renewals[all.Items[i].Name] = all.Items[i].ResourceVersion
	}
	if renewals[r.Name] == "" {
		return fmt.Errorf("the list of the Leases of the replicas in %s lacks %s", r.Namespace, r.Name)
	}
	v := r.view.Load().next(started, time.Now(), renewals)
	r.view.Store(&v)
	for i := range all.Items {
		if old := &all.Items[i]; v.lost(old.Name, leaseKept) {
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
	at, seconds := metav1.NewMicroTime(now), int32(memberLost/time.Second)
	next.Labels = map[string]string{Label: "true"}
	next.Spec.HolderIdentity, next.Spec.RenewTime, next.Spec.LeaseDurationSeconds = &r.Name, &at, &seconds
	var err error
	if next.ResourceVersion == "" {
		next.Namespace, next.Name = r.Namespace, r.Name
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
	live, owner := v.live(), v.trusted(now) && !now.Before(v.ownFrom)
	if live == r.live && owner == r.owner {
		return
	}
	r.live, r.owner = live, owner
	r.Log.Info("nodes are divided anew", "replicas", live, "owner", owner)
	r.Changed()
}

// leave deletes the Lease. From here on this replica owns nothing.
func (r *Replica) leave() error {
	r.view.Store(&view{self: r.Name})
	ctx, cancel := context.WithTimeout(context.Background(), renewInterval)
	defer cancel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	if err := r.API.Delete(ctx, lease); err != nil && !apierrors.IsNotFound(err) {
		r.Log.Error("the Lease of this replica is not deleted; it lapses", "lease", r.Namespace+"/"+r.Name, "err", err)
	}
	return nil
}
