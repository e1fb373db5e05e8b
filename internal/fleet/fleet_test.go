package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/market"
)

const namespace = "mbcas-system"

// lease is that of the agent of a node, with what it says of its market; "": nothing.
func lease(name, market string) client.Object {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if market != "" {
		l.Annotations = map[string]string{kube.MarketKey: market}
	}
	return l
}

func says(price market.Price) string {
	return allocation.NodeMarket{Round: 7, Price: price, Supply: 1800, Demand: 2500, Usage: 1500}.Text()
}

func collector(ages map[string]time.Duration, leases ...client.Object) *Collector {
	return &Collector{
		Leases:    fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(leases...).Build(),
		Namespace: namespace, SilentAfter: 2 * time.Minute,
		Age: func(node string) time.Duration { return ages[node] },
	}
}

// TestCountsNodes: a node counts once, by what its agent said last; one whose agent says nothing is unknown,
// and one whose agent does not renew its Lease is silent.
func TestCountsNodes(t *testing.T) {
	c := collector(map[string]time.Duration{"late": 2*time.Minute - 1, "gone": 2 * time.Minute},
		lease(kube.AgentLease("free"), says(0)),
		lease(kube.AgentLease("low"), says(.25)),
		lease(kube.AgentLease("late"), says(.5)),
		lease(kube.AgentLease("high"), allocation.NodeMarket{
			Round: 7, Price: 8, Supply: 1800, Demand: 2500, Usage: 1500, Full: true,
		}.Text()),
		lease(kube.AgentLease("gone"), says(99)),
		lease(kube.AgentLease("starts"), allocation.NodeMarket{Price: 99}.Text()), // no round yet
		lease(kube.AgentLease("mute"), ""),
		lease(kube.AgentLease("garbled"), "{"),
		lease(kube.LeaderLease, says(99)),
		lease(kube.ReplicaLease("mbcas-controller-1"), says(99)),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: kube.AgentLease("other")}},
	)
	want := `
# HELP mbcas_cluster_nodes Nodes by what their agents said last in their Leases: free (CPU has no price), scarce (it has one), full (the floors exceed the supply), unknown (the Lease has no market), silent (the agent has not renewed its Lease). Each controller says the same of the whole cluster.
# TYPE mbcas_cluster_nodes gauge
mbcas_cluster_nodes{state="free"} 1
mbcas_cluster_nodes{state="full"} 1
mbcas_cluster_nodes{state="scarce"} 2
mbcas_cluster_nodes{state="silent"} 1
mbcas_cluster_nodes{state="unknown"} 3
# HELP mbcas_cluster_price Percentiles of the price of CPU over the nodes whose agents tell it; 0 where there is none.
# TYPE mbcas_cluster_price gauge
mbcas_cluster_price{percentile="50"} 0.25
mbcas_cluster_price{percentile="90"} 8
mbcas_cluster_price{percentile="100"} 8
# HELP mbcas_cluster_cores Sums over the nodes whose agents tell them: CPU that their markets sell (supply), that pods would use without limits (demand), and that they used (usage).
# TYPE mbcas_cluster_cores gauge
mbcas_cluster_cores{of="supply"} 7.2
mbcas_cluster_cores{of="demand"} 10
mbcas_cluster_cores{of="usage"} 6
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestSameNumberOfSeries: a cluster of a thousand nodes has as many series as an empty one.
func TestSameNumberOfSeries(t *testing.T) {
	var leases []client.Object
	for i := range 1000 {
		leases = append(leases, lease(kube.AgentLease(fmt.Sprint("node-", i)), says(market.Price(i))))
	}
	empty, full := testutil.CollectAndCount(collector(nil)), testutil.CollectAndCount(collector(nil, leases...))
	if empty != full || empty != 11 {
		t.Errorf("%d series of an empty cluster and %d of a thousand nodes, want 11 of both", empty, full)
	}
}

// TestUnreadLeases: while the Leases cannot be read, nothing is said of any node.
func TestUnreadLeases(t *testing.T) {
	c := collector(nil)
	c.Leases = interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("the cache is not filled yet")
		},
	})
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("%d series although no Lease was read", n)
	}
}

func TestPercentile(t *testing.T) {
	ten := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, tt := range []struct {
		of    []float64
		share float64
		want  float64
	}{{nil, .5, 0}, {ten, .5, 5}, {ten, .9, 9}, {ten, 1, 10}, {[]float64{3}, .5, 3}} {
		if got := percentile(tt.of, tt.share); got != tt.want {
			t.Errorf("percentile %v of %v is %v, want %v", tt.share, tt.of, got, tt.want)
		}
	}
}
