package requeue

import (
	"context"
	"fmt"
	"slices"
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

func TestFewNodesAloneAreRequeued(t *testing.T) {
	names := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprint("n", i))
		}
		return list
	}
	for _, c := range []struct{ nodes, waiting, some, all int }{
		{nodes: 0}, {nodes: 3, some: 3}, {nodes: mostAtOnce, some: mostAtOnce}, {nodes: mostAtOnce + 1, some: 1},
		{nodes: 3, waiting: 98, some: 100, all: 1}, {nodes: 3, waiting: 100, some: 100, all: 1},
	} {
		q := New()
		for range c.waiting {
			q.Namespace("other")
		}
		q.SomeOf("shop", names(c.nodes))
		if len(q.Some) != c.some || len(q.All) != c.all {
			t.Errorf("%d nodes behind %d: %d requests and %d for all nodes; want %d and %d",
				c.nodes, c.waiting, len(q.Some), len(q.All), c.some, c.all)
		}
		var got []string
		for len(q.Some) > 0 {
			if name := (<-q.Some).Object.GetName(); name != "other" {
				got = append(got, name)
			}
		}
		want := names(c.nodes)
		switch {
		case c.nodes > mostAtOnce:
			want = []string{"shop"}
		case c.all > 0:
			want = want[:100-c.waiting]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d nodes behind %d: requeued %v, want %v", c.nodes, c.waiting, got, want)
		}
	}
}
