package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// event is one about an object of the shop, that long ago.
func event(kind, name string, uid types.UID, reason string, before time.Duration) *corev1.Event {
	e := &corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "shop", Name: name, UID: uid},
		Reason:         reason, Message: "the message of\n" + reason, EventTime: *ago(before),
	}
	e.Namespace, e.Name = "shop", strings.ToLower(name+"."+reason)
	return e
}

// events are those of cart and its PodAllocation, of a pod that had the same name, and of another pod.
func events() []client.Object {
	often := event("Pod", "cart-7d9f", "uid-cart-7d9f", "Unhealthy", time.Hour)
	often.LastTimestamp, often.Count = metav1.NewTime(noon.Add(-90*time.Second)), 7
	series := event("PodAllocation", "uid-cart-7d9f", "pa", "SkipResize", time.Hour)
	series.Series = &corev1.EventSeries{Count: 3, LastObservedTime: *ago(60 * time.Second)}
	return []client.Object{
		event("Pod", "cart-7d9f", "uid-cart-7d9f", "ResizeCompleted", 130*time.Second), often, series,
		event("Pod", "cart-7d9f", "uid-before", "Killing", 10*time.Second),
		event("Deployment", "cart-7d9f", "", "Scaled", 10*time.Second),
		event("Pod", "batch-x2", "uid-batch-x2", "Pulled", 10*time.Second),
	}
}

// TestLog shows the log of a pod, in testdata/log.txt: entries of three sources by time, and of this pod alone. What one
// source cannot tell is noted; where none can, that is the error.
func TestLog(t *testing.T) {
	c := newCluster(t, append(shop(), events()...)...)
	c.Rounds = serves(recorderOf(150))
	c.golden(t, "log", "log cart-7d9f")

	c.Rounds = func(context.Context, *corev1.Pod, uint64) ([]byte, error) { return nil, errors.New("records nothing") }
	stdout, _, err := c.run(t, "log", "cart-7d9f")
	if err != nil || !strings.Contains(stdout, "Note: Changes of the limit are not told: recording of node node-1: records nothing.") ||
		!strings.Contains(stdout, "ResizeCompleted") {
		t.Errorf("no recording: %v\n%s", err, stdout)
	}
	refused := errors.New("no Events for you")
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if _, ok := l.(*corev1.EventList); ok {
				return refused
			}
			return w.List(ctx, l, opts...)
		},
	})
	if _, _, err := c.run(t, "log", "cart-7d9f"); !errors.Is(err, refused) || !strings.Contains(err.Error(), "records nothing") ||
		!strings.Contains(err.Error(), "list the Events of PodAllocation shop/uid-cart-7d9f: ") {
		t.Errorf("nothing: %v", err)
	}
	c.Rounds = serves(recorderOf(150))
	stdout, _, err = c.run(t, "log", "cart-7d9f")
	if err != nil || !strings.Contains(stdout, "Events of the pod are not told: ") || !strings.Contains(stdout, "recording  The first decision") {
		t.Errorf("no Events: %v\n%s", err, stdout)
	}
	if _, _, err := c.run(t, "log", "missing"); err == nil || !strings.Contains(err.Error(), "read pod shop/missing: ") {
		t.Errorf("no pod: %v", err)
	}
}

// TestLogOfServer: the API server selects Events by the object that they are about.
func TestLogOfServer(t *testing.T) {
	s := apiserver.Start(t)
	var list corev1.EventList
	e := event("Pod", "cart-7d9f", "uid", "ResizeCompleted", time.Minute)
	other := event("Pod", "batch-x2", "uid", "Pulled", time.Minute)
	for _, e := range []*corev1.Event{e, other} {
		e.Namespace, e.InvolvedObject.Namespace = "default", "default"
		e.ReportingController, e.ReportingInstance, e.Action, e.Type = "mbcas", "mbcas-0", "Resize", "Normal"
		if err := s.Client.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Client.List(t.Context(), &list, client.InNamespace("default"), client.MatchingFields{"involvedObject.name": "cart-7d9f"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Reason != "ResizeCompleted" {
		t.Errorf("%v, %d Events", err, len(list.Items))
	}
}
