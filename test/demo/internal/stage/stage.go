// Package stage puts the demo's workload on the cluster and takes it away.
package stage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/test/demo/internal/ledger"
	"github.com/mbcas/mbcas/test/demo/internal/shop"
	"github.com/mbcas/mbcas/test/internal/poll"
)

// Stage is a cluster as far as the demo uses it.
type Stage struct {
	Client client.WithWatch
	Ledger *ledger.Ledger
	// Node is where the workload runs: this machine.
	Node string
}

// patience is how long anything on the stage may take.
const patience = 2 * time.Minute

// Open makes the namespaces, with MBCAS off, and the priority classes.
func (s Stage) Open(ctx context.Context) error {
	for _, name := range shop.Namespaces {
		if err := s.create(ctx, shop.Namespace(name, "off")); err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	for _, class := range shop.Classes() {
		if err := s.create(ctx, class); err != nil {
			return fmt.Errorf("priority class %s: %w", class.Name, err)
		}
	}
	return s.SetMode(ctx, "off")
}

func (s Stage) create(ctx context.Context, o client.Object) error {
	return client.IgnoreAlreadyExists(s.Client.Create(ctx, o))
}

// SetMode tells MBCAS what to do in the demo's namespaces.
func (s Stage) SetMode(ctx context.Context, mode string) error {
	for _, name := range shop.Namespaces {
		ns := &corev1.Namespace{}
		ns.Name = name
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"mbcas.io/mode":%q}}}`, mode))
		if err := s.Client.Patch(ctx, ns, patch); err != nil {
			return fmt.Errorf("namespace %s: mode %s: %w", name, mode, err)
		}
	}
	return nil
}

// Enter replaces the workload by a fresh one and waits until all of it is Ready.
func (s Stage) Enter(ctx context.Context, limits bool) error {
	if err := s.Leave(ctx); err != nil {
		return err
	}
	for _, w := range shop.Workloads() {
		if err := s.create(ctx, w.Deployment(s.Node, limits)); err != nil {
			return fmt.Errorf("deployment %s/%s: %w", w.Namespace, w.Name, err)
		}
	}
	return poll.Until(ctx, patience, func() string {
		var missing []string
		for _, w := range shop.Workloads() {
			if p, err := s.Ledger.Pod(w.Name); err != nil || !p.Ready || p.IP == "" || p.ContainerID == "" {
				missing = append(missing, w.Namespace+"/"+w.Name)
			}
		}
		if len(missing) == 0 {
			return ""
		}
		return "not Ready: " + strings.Join(missing, ", ") + "; look at: kubectl describe pods -A -l " + shop.PartOf + "=" + shop.PartOfValue
	})
}

// Leave deletes the workload and waits until its pods are gone.
func (s Stage) Leave(ctx context.Context) error {
	for _, w := range shop.Workloads() {
		d := &appsv1.Deployment{}
		d.Namespace, d.Name = w.Namespace, w.Name
		if err := client.IgnoreNotFound(s.Client.Delete(ctx, d, client.PropagationPolicy("Background"))); err != nil {
			return fmt.Errorf("deployment %s/%s: %w", w.Namespace, w.Name, err)
		}
	}
	return poll.Until(ctx, patience, func() string {
		var left []string
		for _, ns := range shop.Namespaces {
			var pods corev1.PodList
			if err := s.Client.List(ctx, &pods, client.InNamespace(ns)); err != nil {
				return err.Error()
			}
			for _, p := range pods.Items {
				left = append(left, ns+"/"+p.Name)
			}
		}
		if len(left) == 0 && len(s.Ledger.Pods()) == 0 {
			return ""
		}
		return "pods are still there: " + strings.Join(left, ", ")
	})
}

// Close removes everything that Open made.
func (s Stage) Close(ctx context.Context) error {
	err := s.Leave(ctx)
	for _, class := range shop.Classes() {
		err = errors.Join(err, client.IgnoreNotFound(s.Client.Delete(ctx, class)))
	}
	for _, name := range shop.Namespaces {
		ns := &corev1.Namespace{}
		ns.Name = name
		err = errors.Join(err, client.IgnoreNotFound(s.Client.Delete(ctx, ns)))
	}
	return errors.Join(err, poll.Until(ctx, patience, func() string {
		for _, name := range shop.Namespaces {
			if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("namespace %s is still there", name)
			}
		}
		return ""
	}))
}

// Restored waits until every pod has the limit that its Deployment declares.
func (s Stage) Restored(ctx context.Context) error {
	return poll.Until(ctx, patience, func() string { return strings.Join(s.Astray(), ", ") })
}

// Astray are the pods whose limit is not the declared one.
func (s Stage) Astray() (astray []string) {
	for _, p := range s.Ledger.Pods() {
		if p.Limit != p.Workload.Limit {
			astray = append(astray, fmt.Sprintf("%s has limit %dm, declared %dm", p.Name, p.Limit, p.Workload.Limit))
		}
	}
	return astray
}
