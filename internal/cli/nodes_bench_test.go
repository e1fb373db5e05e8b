package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sync/errgroup"

	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// BenchmarkNodes5000 is nodes on a cluster of 5,000 nodes: one list of the Leases from a real API server, and
// the table. Less than a second is wanted.
//
//	go test -run '^$' -bench Nodes5000 ./internal/cli
func BenchmarkNodes5000(b *testing.B) {
	const nodes = 5000
	s := apiserver.Start(b)
	namespace := s.Namespace(b)
	now := time.Now()
	said := allocation.NodeMarket{
		Round: 86_400, Epoch: allocation.Epoch{Time: now}, Price: 0.4321, Supply: 15_000, Demand: 21_000, Usage: 14_000,
		Managed: 60, Capped: 9, Waiting: 2,
	}.Text()
	var creating errgroup.Group
	creating.SetLimit(16)
	for i := range nodes {
		creating.Go(func() error {
			lease := agentLease(fmt.Sprintf("ip-10-0-%d-%d.example.com", i/250, i%250), 0, said)
			renewed := metav1.NewMicroTime(now)
			lease.Namespace, lease.Spec.RenewTime = namespace, &renewed
			return s.Client.Create(b.Context(), lease)
		})
	}
	must.Succeed(b, creating.Wait())
	a := &cluster.Access{Client: s.Client, System: namespace, Now: time.Now}
	for b.Loop() {
		stdout, _, err := runWith(b, a, "nodes", "--system-namespace", namespace)
		if err != nil || strings.Count(stdout, "ip-10-0-") != nodes {
			b.Fatalf("%d rows, %v", strings.Count(stdout, "ip-10-0-"), err)
		}
	}
}
