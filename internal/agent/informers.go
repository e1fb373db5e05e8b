package agent

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/agent/objects"
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

	nodes, pods, told objects.Informer

	published *publishedDecisions
}

func newInformers(c objects.Clients, node string, log *slog.Logger) *informers {
	i := &informers{node: node, log: log, changed: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
	i.published = newPublishedDecisions(c.Allocations, i.markChanged, log)
	of := func(field string) fields.Selector { return fields.OneTermEqualSelector(field, node) }
	i.nodes = objects.NewInformer(c.Core, "nodes", of("metadata.name"), &corev1.Node{}, i.markChanged)
	i.pods = objects.NewInformer(c.Core, "pods", of("spec.nodeName"), &corev1.Pod{}, i.markChanged)
	i.told = objects.NewInformer(c.Allocations, "nodeallocations", of("metadata.name"), &v1alpha1.NodeAllocation{}, i.markChanged)
	return i
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
	for _, in := range []objects.Informer{i.nodes, i.pods, i.told} {
		running.Go(func() { in.Controller.RunWithContext(ctx) })
	}
	running.Go(func() { i.published.Run(ctx) })
	for _, in := range []objects.Informer{i.nodes, i.pods, i.told} {
		i.snapshot.Store(&snapshot{NotReady: "waiting for the API server to list " + in.Resource +
			": is it reachable, is the CRD installed, may this account list them?"})
		if !cache.WaitFor(ctx, "", in.Controller.HasSyncedChecker()) {
			return
		}
	}
	i.log.Debug("objects listed", "pods", len(i.pods.Store.ListKeys()), "told", len(i.told.Store.ListKeys()) > 0)
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
	for _, o := range i.nodes.Store.List() {
		node = o.(*corev1.Node)
	}
	list := i.pods.Store.List()
	pods := make([]*corev1.Pod, len(list))
	for k, o := range list {
		pods[k] = o.(*corev1.Pod)
	}
	var told *v1alpha1.NodeAllocation
	for _, o := range i.told.Store.List() {
		told = o.(*v1alpha1.NodeAllocation)
	}
	s, unread := newSnapshot(i.node, node, pods, told, i.published.current(now))
	i.published.follow(s, unread)
	return s
}
