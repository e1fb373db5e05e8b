package objects

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Informer holds the objects of one kind, trimmed to what a round needs.
type Informer struct {
	Resource   string
	Store      cache.Store
	Controller cache.Controller
}

// NewInformer watches the objects that a selector selects, and calls changed for each change.
func NewInformer(c rest.Interface, resource string, of fields.Selector, kind runtime.Object, changed func()) Informer {
	in := Informer{Resource: resource}
	in.Store, in.Controller = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c, resource, metav1.NamespaceAll, of),
		ObjectType:    kind,
		Transform:     Trim,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { changed() }, DeleteFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() },
		},
	})
	return in
}
