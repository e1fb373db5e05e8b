package requeue

import (
	"context"
	"testing"
)

func TestFullQueuesCostNothing(t *testing.T) {
	q := New()
	for range cap(q.Some) {
		q.Namespace("shop")
	}
	if len(q.Some) != cap(q.Some) || len(q.All) != 0 {
		t.Fatalf("%d of %d wait, and %d for all nodes", len(q.Some), cap(q.Some), len(q.All))
	}
	q.Namespace("shop")
	q.Namespace("")
	q.AllNodes()
	if len(q.All) != 1 {
		t.Errorf("%d requests for all nodes, want one", len(q.All))
	}
	q.Switch()
	q.Switch()
	if len(q.Pause) != 1 {
		t.Errorf("%d requests for the switch, want one", len(q.Pause))
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		q.Nodes(ctx, []string{"a", "b"})
		close(done)
	}()
	if name := (<-q.Some).Object.GetName(); name != "shop" {
		t.Errorf("first %q, want the namespace", name)
	}
	cancel() // the queue has taken one of the two at most
	<-done
	for len(q.Some) > 0 {
		if name := (<-q.Some).Object.GetName(); name == "b" {
			t.Error("the queue took more than it has room for")
		}
	}
}
