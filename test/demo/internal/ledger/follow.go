package ledger

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/test/demo/internal/shop"
)

// Follow watches until ctx ends. A watch that breaks begins again, with everything that is there.
func (l *Ledger) Follow(ctx context.Context, c client.WithWatch) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		again(ctx, func() error {
			return l.follow(ctx, c, &corev1.PodList{}, client.MatchingLabels{shop.PartOf: shop.PartOfValue})
		})
	}()
	again(ctx, func() error { return l.follow(ctx, c, &v1alpha1.PodAllocationList{}) })
	<-done
}

// again repeats watch, with a pause: the API server or the CRD may not be there yet.
func again(ctx context.Context, watch func() error) {
	for ctx.Err() == nil {
		if watch() != nil {
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
		}
	}
}

func (l *Ledger) follow(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.List(ctx, list, opts...); err != nil {
		return err
	}
	switch list := list.(type) {
	case *corev1.PodList:
		for i := range list.Items {
			l.event(watch.Added, &list.Items[i])
		}
	case *v1alpha1.PodAllocationList:
		for i := range list.Items {
			l.event(watch.Added, &list.Items[i])
		}
	}
	opts = append(opts, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	w, err := c.Watch(ctx, list, opts...)
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			l.event(e.Type, e.Object)
		}
	}
}

func (l *Ledger) event(kind watch.EventType, object any) {
	switch o := object.(type) {
	case *corev1.Pod:
		l.See(time.Now(), o)
		if kind == watch.Deleted {
			l.Gone(string(o.UID))
		}
	case *v1alpha1.PodAllocation:
		if kind != watch.Deleted {
			l.Decide(o)
		}
	}
}
