package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// feed follows the node's own objects and keeps a view of them. Who reads the view waits for nobody.
type feed struct {
	node    string
	log     *slog.Logger
	view    atomic.Pointer[view] // nil until everything has been listed
	changed chan struct{}        // holds one: something is newer than the view

	nodes, pods, allocations informer

	mu sync.Mutex
	// written are PodAllocations as the API server returned them from our own writes, until the
	// informer has seen them: without this a slow watch would have every decision written twice.
	written map[types.UID]*v1alpha1.PodAllocation
}

// informer holds the objects of one kind, trimmed to what a round needs.
type informer struct {
	what  string
	store cache.Store
	run   cache.Controller
}

func newFeed(c clients, node string, log *slog.Logger) *feed {
	f := &feed{node: node, log: log, changed: make(chan struct{}, 1), written: make(map[types.UID]*v1alpha1.PodAllocation)}
	f.nodes = f.informer(c.core, "nodes", "metadata.name", &corev1.Node{})
	f.pods = f.informer(c.core, "pods", "spec.nodeName", &corev1.Pod{})
	f.allocations = f.informer(c.allocations, "podallocations", "spec.nodeName", &v1alpha1.PodAllocation{})
	return f
}

// informer follows the objects whose field is our node's name.
func (f *feed) informer(c rest.Interface, resource, field string, kind runtime.Object) informer {
	touch := func(any) { f.touch() }
	in := informer{what: resource}
	in.store, in.run = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c, resource, metav1.NamespaceAll, fields.OneTermEqualSelector(field, f.node)),
		ObjectType:    kind,
		Transform:     trim,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: touch, DeleteFunc: touch, UpdateFunc: func(_, now any) { f.touch() },
		},
	})
	return in
}

func (f *feed) touch() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Run follows the objects until ctx ends.
func (f *feed) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, in := range []informer{f.nodes, f.pods, f.allocations} {
		running.Go(func() { in.run.RunWithContext(ctx) })
	}
	for _, in := range []informer{f.nodes, f.pods, f.allocations} {
		f.view.Store(&view{Lack: "waiting for the API server to list " + in.what + ": is it reachable, is the CRD installed, may this account list them?"})
		if !cache.WaitFor(ctx, "", in.run.HasSyncedChecker()) {
			return
		}
	}
	f.log.Debug("objects listed", "pods", len(f.pods.store.ListKeys()), "allocations", len(f.allocations.store.ListKeys()))
	f.touch()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
			f.view.Store(f.look(time.Now()))
		}
	}
}

// look makes the view anew.
func (f *feed) look(now time.Time) *view {
	var node *corev1.Node
	for _, o := range f.nodes.store.List() {
		node = o.(*corev1.Node)
	}
	list := f.pods.store.List()
	pods := make([]*corev1.Pod, len(list))
	for i, o := range list {
		pods[i] = o.(*corev1.Pod)
	}
	list = f.allocations.store.List()
	allocations := make(map[string]*v1alpha1.PodAllocation, len(list))
	for _, o := range list {
		pa := o.(*v1alpha1.PodAllocation)
		allocations[pa.Name] = pa
	}
	f.newest(allocations)
	return newView(f.node, node, pods, allocations, now)
}

// newest replaces the spec of what the informer has not seen yet.
func (f *feed) newest(allocations map[string]*v1alpha1.PodAllocation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, own := range f.written {
		seen := allocations[own.Name]
		if seen == nil || seen.UID != uid || seen.Generation >= own.Generation {
			delete(f.written, uid)
			continue
		}
		both := *seen
		both.Spec, both.Generation = own.Spec, own.Generation
		allocations[own.Name] = &both
	}
}

// wrote takes a PodAllocation as it came back from a write.
func (f *feed) wrote(pa *v1alpha1.PodAllocation) {
	o, err := trim(pa)
	if err != nil {
		return
	}
	f.mu.Lock()
	f.written[pa.UID] = o.(*v1alpha1.PodAllocation)
	f.mu.Unlock()
	f.touch()
}

// trim keeps of an object what a round reads, so that the memory of a full node stays small.
func trim(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Node:
		return trimNode(o), nil
	case *corev1.Pod:
		return trimPod(o), nil
	case *v1alpha1.PodAllocation:
		return trimAllocation(o), nil
	case cache.DeletedFinalStateUnknown:
		return o, nil
	}
	return nil, fmt.Errorf("object of type %T: not one that the agent follows", o)
}
