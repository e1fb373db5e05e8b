package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/nodestate"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/market"
)

// agentLease is the Lease of a node's agent that was renewed a while ago, and says this.
func agentLease(node string, renewed time.Duration, says string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	l.Namespace, l.Name = kube.SystemNamespace, kube.AgentLease(node)
	l.Spec.RenewTime = ago(renewed)
	if says != "" {
		l.Annotations = map[string]string{kube.MarketKey: says}
	}
	return l
}

// fleet are the Leases of nodes in each state, and others that are no agent's.
func fleet() []client.Object {
	market := func(price market.Price, demand cpu.Milli, full bool) string {
		return allocation.NodeMarket{
			Round: 9, Price: price, Supply: 3000, Usage: 1000, Demand: demand, Managed: 20, Capped: 3, Waiting: 1, Full: full,
		}.Text()
	}
	never := agentLease("node-never", 0, "")
	never.Spec.RenewTime = nil
	controller := agentLease("x", time.Second, "")
	controller.Name = "mbcas-controller"
	return []client.Object{
		agentLease("node-free", 2*time.Second, market(0, 500, false)),
		agentLease("node-scarce", 20*time.Second, market(0.25, 4000, false)),
		agentLease("node-full", 45*time.Second, market(3, 9000, true)),
		agentLease("node-silent", 46*time.Second, market(7, 9000, true)),
		agentLease("node-new", time.Second, ""),
		agentLease("node-odd", time.Second, `{"price":`),
		never, controller,
	}
}

// TestNodes: a node's state is that of its market, unless its agent is silent; silent nodes are in no sum; an
// agent that says nothing is noted; other Leases are left out.
func TestNodes(t *testing.T) {
	c := newCluster(t, fleet()...)
	c.golden(t, "nodes-states", "nodes")

	var v NodesView
	must.Succeed(t, json.Unmarshal([]byte(c.prints(t, "nodes --sort name -o json")), &v))
	states := map[string]nodestate.State{}
	for _, n := range v.Nodes {
		states[n.Node] = n.State
	}
	want := map[string]nodestate.State{
		"node-free": nodestate.Free, "node-scarce": nodestate.Scarce, "node-full": nodestate.Full, "node-silent": nodestate.Silent,
		"node-new": nodestate.Unknown, "node-odd": nodestate.Unknown,
	}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if v.Supply != 9000 || v.Usage != 3000 || v.Demand != 13500 {
		t.Errorf("sums %v, %v, %v: want those of three nodes", v.Supply, v.Usage, v.Demand)
	}
}

// TestClockOfThisMachine: ages are told by the clock of the API server. A machine whose clock is ten minutes late or early
// shows the same nodes and ages.
func TestClockOfThisMachine(t *testing.T) {
	for _, args := range [][]string{{"nodes"}, {"doctor"}, {"list", "-o", "wide"}, {"usage"}, {"explain", "cart-7d9f"}} {
		c := newCluster(t, append(fleet(), shop()...)...)
		want, _, wantErr := c.run(t, args...)
		for _, ahead := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
			c.Now = func() time.Time { return noon.Add(-ahead) }
			c.Ahead = func() time.Duration { return ahead }
			got, _, err := c.run(t, args...)
			if got != want || (err == nil) != (wantErr == nil) {
				t.Errorf("%v, with the API server ahead by %v:\n%s\n%v, want:\n%s\n%v", args, ahead, got, err, want, wantErr)
			}
		}
	}
}

// TestConnectionHasAClock: a command reads the clock of the API server from its answers.
func TestConnectionHasAClock(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"major":"1","minor":"36"}`)
	}))
	defer server.Close()
	f := newFlags()
	f.overrides.ClusterInfo.Server = server.URL
	a, err := f.connect()
	must.Succeed(t, err)
	if _, err := a.Discovery.ServerVersionWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ahead := time.Until(a.ServerNow()).Round(time.Minute); ahead != time.Hour {
		t.Errorf("the API server is ahead by %v, want an hour", ahead)
	}
}

// TestNodesSort: each key sorts, amounts from the largest down, and the node that was seen longest ago first.
func TestNodesSort(t *testing.T) {
	for key, first := range map[string]string{
		"name": "node-free", "price": "node-silent", "demand": "node-full", "seen": "node-silent", "supply": "node-free",
		"usage": "node-free",
	} {
		stdout := newCluster(t, fleet()...).prints(t, "nodes --sort "+key)
		if lines := strings.Split(stdout, "\n"); len(lines) < 2 || !strings.HasPrefix(lines[1], first+" ") {
			t.Errorf("--sort %s: want %s first:\n%s", key, first, stdout)
		}
	}
}

// TestNoNodes: without an agent, and without the right to read Leases, the text says so.
func TestNoNodes(t *testing.T) {
	newCluster(t).prints(t, "nodes", "namespace mbcas-system holds no Lease of one")
	c := newCluster(t, fleet()...)
	c.refuse(nil, apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, "", errors.New("no")))
	c.fails(t, "nodes", "list the Leases of the agents in namespace mbcas-system")
}
