package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

	recordsNothing(c)
	c.prints(t, "log cart-7d9f", "ResizeCompleted",
		"Note: Changes of the limit are not told: recording of node node-1: records nothing.")
	refused := errors.New("no Events for you")
	c.refuse(&corev1.EventList{}, refused)
	err := c.fails(t, "log cart-7d9f", "list the Events of PodAllocation shop/uid-cart-7d9f: ")
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "records nothing") {
		t.Errorf("nothing: %v", err)
	}
	c.Rounds = serves(recorderOf(150))
	c.prints(t, "log cart-7d9f", "Events of the pod are not told: ", "recording  Its limit")
	c.fails(t, "log missing", "read pod shop/missing: ")
}
