//go:build linux

package stage

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/test/evaluation/internal/objects"
	"github.com/mbcas/mbcas/test/internal/watch"
)

// Pod is a pod as the API server has it.
type Pod struct {
	UID, Namespace, App string
	IP, ContainerID     string // of its first container; "": it does not run
	Created             time.Time
	Ready               bool
	Restarts            int
}

// Pods are the pods of the cluster. They are safe for use by several goroutines.
type Pods struct {
	mu  sync.Mutex
	all map[string]Pod // by UID
}

// Watch keeps the pods up to date until ctx ends.
func Watch(ctx context.Context, config *rest.Config) (*Pods, error) {
	p := &Pods{all: map[string]Pod{}}
	kinds := map[client.Object]labels.Selector{&corev1.Pod{}: nil}
	return p, watch.Objects(ctx, config, kinds, p.see, p.forget)
}

func (p *Pods) see(o client.Object) {
	pod := read(o.(*corev1.Pod))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[pod.UID] = pod
}

func (p *Pods) forget(o client.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, string(o.GetUID()))
}

func read(pod *corev1.Pod) Pod {
	p := Pod{
		UID: string(pod.UID), Namespace: pod.Namespace, App: pod.Labels[objects.App], IP: pod.Status.PodIP,
		Created: pod.CreationTimestamp.Time,
	}
	for i, s := range pod.Status.ContainerStatuses {
		p.Restarts += int(s.RestartCount)
		if _, id, ok := strings.Cut(s.ContainerID, "://"); ok && i == 0 && s.State.Running != nil {
			p.ContainerID = id
		}
	}
	p.Ready = slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
	})
	return p
}

// has says whether the pod is there.
func (p *Pods) has(uid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, there := p.all[uid]
	return there
}

// In are the pods of a namespace, with a workload's name those of that workload, in the order of their creation.
func (p *Pods) In(namespace, app string) (pods []Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(p.all)) {
		if x := p.all[uid]; x.Namespace == namespace && (app == "" || x.App == app) {
			pods = append(pods, x)
		}
	}
	slices.SortStableFunc(pods, func(a, b Pod) int { return a.Created.Compare(b.Created) })
	return pods
}

// Ready are those of In that are Ready.
func (p *Pods) Ready(namespace, app string) []Pod {
	return slices.DeleteFunc(p.In(namespace, app), func(x Pod) bool { return !x.Ready || x.IP == "" })
}
