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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// informers watch the node, its pods and its NodeAllocation, each by an index of the API server, and
// keep a snapshot of them. To load the snapshot never blocks. PodAllocations are not watched: no index
// serves that, so each of them would be offered to every agent.
type informers struct {
	node     string
	log      *slog.Logger
	snapshot atomic.Pointer[snapshot] // nil until everything has been listed
	changed  chan struct{}            // holds one value: an object is newer than the snapshot
	taken    chan struct{}            // holds one value: there is a new snapshot

	nodes, pods, told informer

	published *publishedDecisions
}

// informer holds the objects of one kind, trimmed to what a round needs.
type informer struct {
	resource   string
	store      cache.Store
	controller cache.Controller
}

func newInformers(c clients, node string, log *slog.Logger) *informers {
	i := &informers{node: node, log: log, changed: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
	i.published = newPublishedDecisions(c.allocations, i.markChanged, log)
	i.nodes = i.informer(c.core, "nodes", "metadata.name", &corev1.Node{})
	i.pods = i.informer(c.core, "pods", "spec.nodeName", &corev1.Pod{})
	i.told = i.informer(c.allocations, "nodeallocations", "metadata.name", &v1alpha1.NodeAllocation{})
	return i
}

// informer watches the objects whose field is the name of this node.
func (i *informers) informer(c rest.Interface, resource, field string, kind runtime.Object) informer {
	changed := func(any) { i.markChanged() }
	in := informer{resource: resource}
	in.store, in.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(
			c, resource, metav1.NamespaceAll, fields.OneTermEqualSelector(field, i.node)),
		ObjectType: kind,
		Transform:  trim,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: changed, DeleteFunc: changed, UpdateFunc: func(_, now any) { changed(now) },
		},
	})
	return in
}

func (i *informers) markChanged() { signal(i.changed) }

// signal sends to a channel that holds one value, unless it holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run watches the objects until ctx ends.
func (i *informers) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, in := range []informer{i.nodes, i.pods, i.told} {
		running.Go(func() { in.controller.RunWithContext(ctx) })
	}
	running.Go(func() { i.published.Run(ctx) })
	for _, in := range []informer{i.nodes, i.pods, i.told} {
		i.snapshot.Store(&snapshot{NotReady: "waiting for the API server to list " + in.resource +
			": is it reachable, is the CRD installed, may this account list them?"})
		if !cache.WaitFor(ctx, "", in.controller.HasSyncedChecker()) {
			return
		}
	}
	i.log.Debug("objects listed", "pods", len(i.pods.store.ListKeys()), "told", len(i.told.store.ListKeys()) > 0)
	i.markChanged()
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.changed:
			i.snapshot.Store(i.takeSnapshot(time.Now()))
			signal(i.taken)
		}
	}
}

// takeSnapshot translates the objects as the informers have them now.
func (i *informers) takeSnapshot(now time.Time) *snapshot {
	var node *corev1.Node
	for _, o := range i.nodes.store.List() {
		node = o.(*corev1.Node)
	}
	list := i.pods.store.List()
	pods := make([]*corev1.Pod, len(list))
	for k, o := range list {
		pods[k] = o.(*corev1.Pod)
	}
	var told *v1alpha1.NodeAllocation
	for _, o := range i.told.store.List() {
		told = o.(*v1alpha1.NodeAllocation)
	}
	s, unread := newSnapshot(i.node, node, pods, told, i.published.current(now))
	i.published.follow(s, unread)
	return s
}

// trim keeps of an object only what a round reads, so that the memory of a full node stays small.
func trim(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Node:
		return trimNode(o), nil
	case *corev1.Pod:
		return trimPod(o), nil
	case *v1alpha1.NodeAllocation:
		return &v1alpha1.NodeAllocation{ObjectMeta: trimMeta(o.ObjectMeta), Spec: o.Spec}, nil
	case cache.DeletedFinalStateUnknown:
		return o, nil
	}
	return nil, fmt.Errorf("object of type %T: the agent does not watch this type", o)
}
