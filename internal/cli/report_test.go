package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/internal/benefit"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/past"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestReport: the recordings of all agents are added up by workload, namespace, node or pod; an agent that cannot be read
// costs only itself, and is named.
func TestReport(t *testing.T) {
	c := newCluster(t, shop()...)
	c.Rounds = serves(recorderOf(150))
	c.golden(t, "report", "report -n shop")
	c.golden(t, "report-html", "report -n shop -o html") // test/page opens it in a browser
	for by, want := range map[string]string{"workload": "shop/Pod/cart-7d9f", "namespace": "shop", "node": "node-1", "pod": "shop/cart-7d9f"} {
		stdout, _, err := c.run(t, "report", "-A", "--by", by, "-o", "csv")
		lines := strings.Split(stdout, "\n")
		if err != nil || !strings.HasPrefix(lines[0], "group,mode,throttled_seconds,") || !strings.Contains(stdout, "\n"+want+",enforce,") {
			t.Errorf("by %s: %v\n%s", by, err, stdout)
		}
	}
	if stdout, _, err := c.run(t, "report", "-n", "bazaar"); err != nil || strings.Contains(stdout, "cart") {
		t.Errorf("of another namespace: %v\n%s", err, stdout)
	}
	for _, tc := range []struct{ args, want string }{{"report --by colour", "want one of workload, namespace, node, pod"}, {"report --node node-9", "no agent runs on node node-9"}} {
		if _, _, err := c.run(t, strings.Split(tc.args, " ")...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.args, err)
		}
	}
	second := agentOn("node-2")
	c = newCluster(t, append(shop(), second)...)
	c.Rounds = func(ctx context.Context, agent *corev1.Pod, after uint64) ([]byte, error) {
		if agent.Spec.NodeName == "node-2" {
			return nil, errors.New("no route")
		}
		return serves(recorderOf(150))(ctx, agent, after)
	}
	if stdout, _, err := c.run(t, "report", "-A"); err != nil || !strings.Contains(stdout, "1 of 2 nodes, from") || !strings.Contains(stdout, "Not read: node node-2: no route.") {
		t.Errorf("%v\n%s", err, stdout)
	}
	c.Rounds = func(context.Context, *corev1.Pod, uint64) ([]byte, error) { return []byte("PK"), nil }
	if _, _, err := c.run(t, "report", "-A"); err == nil || !strings.Contains(err.Error(), "no recording could be read: node node-1: ") {
		t.Errorf("none can be read: %v", err)
	}
}

// TestReportAsksOneAgentOfANode: where a node has a second agent, one that was evicted and one that starts, the newest one that
// runs is asked, and its pods are counted once.
func TestReportAsksOneAgentOfANode(t *testing.T) {
	newer, evicted, starts := agentOn("node-1"), agentOn("node-1"), agentOn("node-1")
	newer.Name, newer.CreationTimestamp = cluster.AgentName+"-newer", metav1.NewTime(noon)
	evicted.Name, evicted.CreationTimestamp = cluster.AgentName+"-evicted", metav1.NewTime(noon.Add(time.Minute))
	evicted.Status.Phase = corev1.PodFailed
	starts.Name, starts.CreationTimestamp = cluster.AgentName+"-starts", metav1.NewTime(noon.Add(2*time.Minute))
	starts.Status.Phase = corev1.PodPending
	var mu sync.Mutex
	var asked []string
	once := func(objects ...client.Object) string {
		c := newCluster(t, append(shop(), objects...)...)
		rounds := serves(recorderOf(150))
		c.Rounds = func(ctx context.Context, agent *corev1.Pod, after uint64) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, agent.Name)
			return rounds(ctx, agent, after)
		}
		stdout, _, err := c.run(t, "report", "-n", "shop")
		if err != nil {
			t.Fatal(err)
		}
		return stdout
	}
	alone := once()
	asked = nil
	if diff := cmp.Diff(alone, once(newer, evicted, starts)); diff != "" {
		t.Errorf("with a second agent (-want +got):\n%s", diff)
	}
	if !slices.Equal(asked, []string{newer.Name}) {
		t.Errorf("asked %v, want %s alone", asked, newer.Name)
	}
}

// agentOn is the agent's pod of a node.
func agentOn(node string) *corev1.Pod {
	p := apiserver.RunningPod(kube.SystemNamespace, cluster.AgentName+"-"+node, apiserver.Container("agent", "20m", ""))
	p.Spec.NodeName = node
	return p
}

// TestReportOfTwoModes: where the label of the mode was set in the time that is covered, what was before has a row of its
// own, and both rows add up to the one without that label. A row of a node has several modes.
func TestReportOfTwoModes(t *testing.T) {
	rows := func(setAt time.Time, by string) (found []past.ReportRow) {
		t.Helper()
		c := newCluster(t, shop()...)
		c.Rounds = serves(recorderOf(150))
		c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				err := w.List(ctx, l, opts...)
				if list, ok := l.(*corev1.NamespaceList); ok {
					for i := range list.Items {
						list.Items[i].ManagedFields = []metav1.ManagedFieldsEntry{
							{Manager: "kubectl-create", Time: &metav1.Time{Time: noon.Add(-time.Second)}, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{}}}}`)},
							{Manager: "kubectl-label", Time: &metav1.Time{Time: setAt}, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:mbcas.io/mode":{}}}}`)},
						}
					}
				}
				return err
			},
		})
		stdout, _, err := c.run(t, "report", "-A", "--by", by, "-o", "json")
		var report past.Report
		if err == nil {
			err = json.Unmarshal([]byte(stdout), &report)
		}
		if err != nil {
			t.Fatal(err)
		}
		before := slices.ContainsFunc(report.Rows, func(r past.ReportRow) bool { return strings.HasPrefix(r.Mode, "before ") })
		if text := report.Text(false); strings.Contains(text, `Rows "before"`) != before {
			t.Errorf("by %s:\n%s", by, text)
		}
		return report.Rows
	}
	at := noon.Add(-time.Minute)
	sums := map[string]benefit.Figures{}
	modes := map[string]int{}
	for _, row := range rows(at, "pod") {
		modes[row.Group+" "+row.Mode]++
		sum := sums[row.Group]
		sum.Add(row.Figures)
		sums[row.Group] = sum
	}
	want := map[string]int{
		"shop/cart-7d9f before 11:59:00": 1, "shop/cart-7d9f enforce": 1, "shop/batch-x2 before 11:59:00": 1, "shop/batch-x2 enforce": 1,
	}
	if diff := cmp.Diff(want, modes); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	for _, outside := range []time.Time{noon.Add(-time.Hour), noon.Add(time.Hour)} {
		for _, row := range rows(outside, "pod") {
			mode := map[bool]string{true: "before 13:00:00", false: "enforce"}[outside.After(noon)]
			if row.Mode != mode || sums[row.Group] != row.Figures {
				t.Errorf("set at %v: %+v, want mode %s and %+v", outside, row, mode, sums[row.Group])
			}
		}
	}
	if by := rows(at, "node"); len(by) != 1 || by[0].Mode != "several" {
		t.Errorf("by node: %+v", by)
	}
}

// TestReportOfGonePods: pods that no longer exist are shown under the name of what made them, as far as their names tell.
func TestReportOfGonePods(t *testing.T) {
	isPod := func(o client.Object) bool { p, ok := o.(*corev1.Pod); return ok && p.Namespace == "shop" }
	c := newCluster(t, slices.DeleteFunc(shop(), isPod)...)
	c.Rounds = serves(recorderOf(30, "hog-7c5ddbdf54-x2z4b", "hog-7c5ddbdf54-9k8mm", "set-x2z4b", "web-0"))
	stdout, _, err := c.run(t, "report", "-A", "-o", "csv")
	for _, want := range []string{"\nshop/hog (gone),", "\nshop/set (gone),", "\nshop/web-0 (gone),"} {
		if err != nil || strings.Count(stdout, want) != 1 {
			t.Errorf("%v: want one line %q in:\n%s", err, want, stdout)
		}
	}
}
