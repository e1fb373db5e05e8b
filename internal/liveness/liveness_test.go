package liveness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// cluster is ten nodes that are Ready, with agents.
type cluster struct {
	*testing.T
	Agents
	client.Client
	sent    chan string // events
	changes []bool
	last    Outage
}

const ten = 10

func newCluster(t *testing.T) *cluster {
	t.Helper()
	recorder := events.NewFakeRecorder(100)
	c := &cluster{T: t, Client: fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), sent: recorder.Events}
	c.Agents = Agents{
		Client: c.Client, Live: c.Client, Namespace: "mbcas-system", FreezeAfter: time.Minute, RestoreAfter: 5 * time.Minute,
		Events: recorder, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Count: func(o Outage) { c.last = o }, Changed: func(begun bool) { c.changes = append(c.changes, begun) },
	}
	for i := range ten {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: kube.AgentLease(fmt.Sprint("n", i))}}
		must.Succeed(t, c.Create(t.Context(), lease))
	}
	return c
}

// renew has the agents of some nodes renew their Leases.
func (c *cluster) renew(at time.Time, nodes ...int) {
	c.Helper()
	c.renewAs(0, at, nodes...)
}

// renewAs is the same with clocks that are ahead.
func (c *cluster) renewAs(ahead time.Duration, at time.Time, nodes ...int) {
	c.Helper()
	for _, i := range nodes {
		lease := &coordinationv1.Lease{}
		key := client.ObjectKey{Namespace: c.Namespace, Name: kube.AgentLease(fmt.Sprint("n", i))}
		err := c.Get(c.Context(), key, lease)
		if err == nil {
			lease.Spec.RenewTime = &metav1.MicroTime{Time: at.Add(ahead)}
			err = c.Update(c.Context(), lease)
		}
		must.Succeed(c, err)
		c.Renewed(lease, at) // says the watch
	}
}

// restored are the nodes whose raised pods are lowered at that time.
func (c *cluster) restored(at time.Time) (nodes []string) {
	c.Helper()
	for i := range ten {
		n := lifecycle.Node{Ready: true, ReadySince: now.Add(-time.Hour)}
		name := fmt.Sprint("n", i)
		must.Succeed(c, c.Judge(c.Context(), name, &n, at))
		pod := lifecycle.Pod{
			Mode: lifecycle.ModeEnforce, Ready: true, Declared: lifecycle.Limits{{Container: "app", CPU: 500}}, InLedger: true,
			Recorded: true, Containers: []lifecycle.Container{{Name: "app", Limit: 2000, PossiblyOwn: true}},
		}
		pod.Status.Declared, pod.Status.Applied = pod.Declared, pod.Current()
		for _, task := range lifecycle.Decide(lifecycle.DefaultConfig(), n, []lifecycle.Pod{pod}, at) {
			if task.Move != nil {
				nodes = append(nodes, name)
			}
		}
	}
	return nodes
}

// TestDeafWatchConfirmsNothing: an agent whose renewal only the API server itself shows is not
// unresponsive, so the node is not restored. But the watch that is late may be late with decisions, too, so none is
// confirmed until it shows the renewal. The API server is asked once.
func TestDeafWatchConfirmsNothing(t *testing.T) {
	c := newCluster(t)
	asked := 0
	late := now.Add(10 * time.Minute)
	c.Live = interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			asked++
			o.SetName(key.Name)
			o.(*coordinationv1.Lease).Spec.RenewTime = &metav1.MicroTime{Time: late}
			return nil
		},
	})
	c.renew(now, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	c.restored(now)
	c.renew(late, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	judge := func(at time.Time) (n lifecycle.Node) {
		n = lifecycle.Node{Ready: true, ReadySince: now.Add(-time.Hour)}
		must.Succeed(t, c.Judge(t.Context(), "n0", &n, at))
		return n
	}
	for range 3 {
		if n := judge(late.Add(time.Second)); n.LeaseAge < c.FreezeAfter {
			t.Errorf("a Lease that the watch shows 10 minutes old counts as %v old", n.LeaseAge)
		}
		if got := c.restored(late.Add(time.Second)); len(got) > 0 {
			t.Errorf("restored %v although the agent is responsive", got)
		}
	}
	if asked != 1 {
		t.Errorf("the API server was asked %d times, want once", asked)
	}
	c.renew(late.Add(2*time.Second), 0)
	if n := judge(late.Add(3 * time.Second)); n.LeaseAge > 2*time.Second || n.LeaseUnread {
		t.Errorf("after the watch has caught up, the Lease is %v old, in doubt %v", n.LeaseAge, n.LeaseUnread)
	}
}

// TestTellsOfAnOutage: one of ten agents that stops has its node restored. When all ten stop, limits
// stay where they are, and that is told once; when they are back, that is told, too.
func TestTellsOfAnOutage(t *testing.T) {
	c := newCluster(t)
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	at := now
	c.renew(at, all...)
	c.restored(at)
	at = at.Add(5 * time.Minute)
	c.renew(at, all[1:]...)
	if got := c.restored(at); len(got) != 1 || got[0] != "n0" {
		t.Errorf("restored %v, want the node of the agent that stopped alone", got)
	}
	if reason, _ := c.Warning(); reason != "" || len(c.changes) != 0 || len(c.sent) != 0 {
		t.Errorf("one agent: warning %q, changes %v, %d events; want none", reason, c.changes, len(c.sent))
	}
	for range 20 { // minutes
		at = at.Add(time.Minute)
		if got := c.restored(at); len(got) > 0 && at.Sub(now) > 7*time.Minute {
			t.Errorf("restored %v %v after all agents stopped", got, at.Sub(now))
		}
	}
	reason, message := c.Warning()
	if reason != "AgentsUnresponsive" || !strings.Contains(message, "10 of 10 agents") || len(c.changes) != 1 || !c.changes[0] || len(c.sent) != 1 {
		t.Errorf("all agents: warning %q %q, changes %v, %d events; want it told once", reason, message, c.changes, len(c.sent))
	}
	c.renew(at, all...)
	if got := c.restored(at.Add(time.Second)); len(got) != 0 {
		t.Errorf("restored %v when all are back", got)
	}
	if got := c.restored(at.Add(3 * time.Second)); len(got) != 0 || len(c.changes) != 2 || c.changes[1] || c.last.Unresponsive != 0 {
		t.Errorf("restored %v, changes %v, %+v; want the outage to have ended", got, c.changes, c.last)
	}
	if reason, _ := c.Warning(); reason != "" {
		t.Errorf("after the outage: warning %q", reason)
	}
}

// TestAsksAboutOldLeases: of a Lease that looks old at first sight the API server is asked once, also
// where another replica owns the node; after that the next renewal counts.
func TestAsksAboutOldLeases(t *testing.T) {
	c := newCluster(t)
	asked := 0
	live := interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			asked++
			return next.Get(ctx, key, o, opts...)
		},
	})
	c.Live = live
	observe := func(at time.Time) (n lifecycle.Node) {
		t.Helper()
		n = lifecycle.Node{Ready: true, ReadySince: now.Add(-time.Hour)}
		must.Succeed(t, c.Observe(t.Context(), "n0", &n, at))
		return n
	}
	const behind = -11 * time.Minute
	c.renewAs(behind, now, 0)
	for i := range 3 {
		if n := observe(now.Add(time.Duration(i) * time.Second)); n.LeaseAge < c.FreezeAfter {
			t.Errorf("a Lease that looks 11 minutes old counts as %v old", n.LeaseAge)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
	c.renewAs(behind, now.Add(30*time.Second), 0)
	if n := observe(now.Add(30 * time.Second)); n.LeaseAge >= c.FreezeAfter {
		t.Errorf("after a renewal the Lease counts as %v old", n.LeaseAge)
	}
	if asked != 1 {
		t.Errorf("asked %d times after a renewal, want once", asked)
	}
}

// TestTroubleIsLoggedSeldom: while Leases cannot be read for twelve minutes, and while the watch of all is late,
// few lines are in the log, however many nodes are looked at how often; the first one comes at once, and
// with the next trouble, too.
func TestTroubleIsLoggedSeldom(t *testing.T) {
	c := newCluster(t)
	var log strings.Builder
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	down := true
	c.Live = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if down {
				return errors.New("no answer")
			}
			err := next.Get(ctx, key, o, opts...)
			o.(*coordinationv1.Lease).Spec.RenewTime = &metav1.MicroTime{Time: now} // which the watch does not show
			return err
		},
	})
	lines := func(what, text string, began time.Time, minutes, most int) {
		t.Helper()
		log.Reset()
		for second := range minutes * 60 {
			for i := range ten {
				n := lifecycle.Node{Ready: true, ReadySince: now.Add(-time.Hour)}
				at := began.Add(time.Duration(second) * time.Second)
				must.Succeed(t, c.Judge(t.Context(), fmt.Sprint("n", i), &n, at))
			}
			if second == 0 && strings.Count(log.String(), text) != 1 {
				t.Errorf("%s: %d lines at once, want one:\n%s", what, strings.Count(log.String(), text), log.String())
			}
		}
		if n := strings.Count(log.String(), text); n > most {
			t.Errorf("%s for %d minutes: %d lines, want at most %d", what, minutes, n, most)
		}
	}
	lines("no answer", "cannot be read", now, 12, 3)
	down = false
	lines("late", "the watch of Leases is late", now.Add(20*time.Minute), 12, 3)
	for i := range ten {
		c.Drop(fmt.Sprint("n", i))
	}
	down = true
	lines("no answer again", "cannot be read", now.Add(40*time.Minute), 1, 1)
}
