package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// record writes newly found declared limits to the ledger, before anything else happens.
func (r *Reconciler) record(ctx context.Context, s *snapshot, tasks []*task) error {
	entries := map[types.UID]restore.Entry{}
	for _, t := range tasks {
		if t.Record != nil {
			limits := allocation.ContainerLimits(t.Record)
			entries[t.pod.UID] = restore.Entry{Namespace: t.pod.Namespace, Pod: t.pod.Name, Limits: limits}
		}
	}
	key := types.NamespacedName{Namespace: r.Config.Namespace, Name: restore.LedgerName(s.node.name)}
	if err := restore.WriteLedger(ctx, r.Client, key, entries, s.ledger, s.exists); err != nil {
		return err
	}
	for uid, e := range entries {
		r.memory.change(s.node.name, uid, func(rec *record) {
			rec.declared, rec.ledgered, rec.ledgeredAt = e.Limits, e.Limits, s.now
		})
	}
	return nil
}

// drop deletes a PodAllocation that is not needed any more.
func (r *Reconciler) drop(ctx context.Context, s *snapshot, pa *v1alpha1.PodAllocation) error {
	err := r.Client.Delete(ctx, pa, client.Preconditions{UID: &pa.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete PodAllocation %s/%s: %w", pa.Namespace, pa.Name, err)
	}
	r.memory.change(s.node.name, pa.Spec.PodRef.UID, func(rec *record) { rec.pa = nil })
	return nil
}

// create creates the PodAllocation of a pod.
func (r *Reconciler) create(ctx context.Context, s *snapshot, t *task) error {
	pa := allocation.New(t.pod)
	err := r.Client.Create(ctx, pa, client.FieldOwner(kube.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		err = r.Live.Get(ctx, client.ObjectKeyFromObject(pa), pa)
	}
	if kube.NotServed(err) {
		r.close(reasons.CRDNotInstalled, reasons.CRDNotInstalled.Sentence())
		r.Gate.Recheck()
		return nil
	}
	if err != nil {
		return fmt.Errorf("create PodAllocation %s/%s for pod %s: %w", pa.Namespace, pa.Name, t.pod.Name, err)
	}
	if pa.Spec.NodeName != s.node.name { // a forgery: it goes when its alleged node is reconciled
		return fmt.Errorf("create PodAllocation %s/%s for pod %s: one for node %s is in the way", pa.Namespace, pa.Name, t.pod.Name, pa.Spec.NodeName)
	}
	r.keep(s, t, pa)
	return nil
}

// keep remembers a PodAllocation as the API server returned it, until the cache shows it too.
func (r *Reconciler) keep(s *snapshot, t *task, pa *v1alpha1.PodAllocation) {
	pa.ManagedFields = nil // as in the cache
	t.pa = pa
	r.memory.change(s.node.name, pa.Spec.PodRef.UID, func(rec *record) { rec.pa, rec.paAt = pa, s.now })
}

// close stops all resizes until the gate is found open again.
func (r *Reconciler) close(reason reasons.Reason, why string) {
	if r.Gate.Set(reason, why) {
		r.blockedChanged(reason, why)
	}
}
