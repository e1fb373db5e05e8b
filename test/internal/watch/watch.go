// Package watch watches objects of a cluster.
package watch

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// Objects calls seen with every object of these kinds, now and after each change, and gone with
// each deleted one, until ctx ends. The objects of a kind are those that its selector selects; nil:
// all. It returns when the existing objects are known.
func Objects(
	ctx context.Context, config *rest.Config, kinds map[client.Object]labels.Selector, seen, gone func(client.Object),
) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	options := cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{}}
	for kind, selector := range kinds {
		options.ByObject[kind] = cache.ByObject{Label: selector}
	}
	c, err := cache.New(config, options)
	if err != nil {
		return err
	}
	go c.Start(ctx) //nolint:errcheck // it ends with ctx
	for kind := range kinds {
		informer, err := c.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { seen(o.(client.Object)) },
			UpdateFunc: func(_, o any) { seen(o.(client.Object)) },
			DeleteFunc: func(o any) {
				if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					o = last.Obj
				}
				if o, ok := o.(client.Object); ok {
					gone(o)
				}
			},
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	if !c.WaitForCacheSync(ctx) {
		return fmt.Errorf("watch: %w", ctx.Err())
	}
	return nil
}
