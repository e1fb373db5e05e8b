package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// dsig is a DemandSignal of the shop whose condition has a reason; "" for none yet.
func dsig(name string, of v1alpha1.SignalMetricType, reason string) *v1alpha1.DemandSignal {
	d := &v1alpha1.DemandSignal{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	d.Spec.Metric.Type = of
	if reason != "" {
		c := metav1.Condition{Type: v1alpha1.SignalAvailable, Status: metav1.ConditionFalse, Reason: reason, Message: "the message"}
		if reason == v1alpha1.ReasonMetricRead {
			c.Status = metav1.ConditionTrue
		}
		d.Status.Conditions = []metav1.Condition{c}
	}
	return d
}

// TestDoctorChecksSignals: doctor reports a missing CRD, signals without effect with the reason and
// a remedy, and missing permissions of the controller.
func TestDoctorChecksSignals(t *testing.T) {
	signals := []client.Object{
		dsig("fine", v1alpha1.ExternalMetric, v1alpha1.ReasonMetricRead), dsig("new", v1alpha1.ExternalMetric, ""), dsig("odd", v1alpha1.ExternalMetric, "Odd"),
	}
	reasons := []string{
		v1alpha1.ReasonMetricMissing, v1alpha1.ReasonMetricStale, v1alpha1.ReasonInvalidMetric, v1alpha1.ReasonMetricForbidden, v1alpha1.ReasonMetricsAPIMissing,
		v1alpha1.ReasonMetricsAPIUnavailable, v1alpha1.ReasonTargetUnknown, v1alpha1.ReasonTargetNotManaged, v1alpha1.ReasonSignalsOff,
	}
	for _, reason := range reasons {
		signals = append(signals, dsig(strings.ToLower(reason), v1alpha1.PodsMetric, reason))
	}
	all := func(string, string, string) bool { return true }
	for name, tt := range map[string]struct {
		objects []client.Object
		may     func(user, verb, resource string) bool
		want    []string
	}{
		"none":   {shop(), all, []string{"DemandSignals       none"}},
		"no CRD": {without(shop(), cluster.SignalCRDName), all, []string{"their CRD is not installed, so none can be created", "kubectl apply -k config/base"}},
		"read and unread": {append(shop(), signals...), all, []string{
			"1 of 12 metrics read", "DemandSignal shop/new", "its metric has not been read yet", "its metric has no effect (Odd): the message", "kubectl describe dsig -n shop odd",
			"may watch pods, patch pods/resize, create podallocations, patch podallocations/status, list demandsignals, patch demandsignals/status, get everything of custom.metrics.k8s.io, list everything of external.metrics.k8s.io",
		}},
		"rights": {append(shop(), signals...), func(_, verb, resource string) bool { return resource != "*" || verb == "get" }, []string{
			"its service account may not list everything of external.metrics.k8s.io, needed for reading the metrics of DemandSignals",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, tt.objects...)
			c.may = tt.may
			stdout, _, _ := c.run(t, "doctor")
			for _, w := range tt.want {
				if !strings.Contains(stdout, w) {
					t.Errorf("doctor does not say %q:\n%s", w, stdout)
				}
			}
			if strings.Count(stdout, "describe dsig") > 1 {
				t.Errorf("a known reason has no remedy of its own:\n%s", stdout)
			}
			for _, reason := range reasons {
				if said := strings.Contains(stdout, "("+reason+"): the message"); said != (len(tt.objects) > len(shop())) {
					t.Errorf("%s is reported: %v\n%s", reason, said, stdout)
				}
			}
		})
	}
}

// TestSignalsOfTheNode: usage and explain name the DemandSignals that raise the demand of other pods
// of the node, as far as the user may read their allocations.
func TestSignalsOfTheNode(t *testing.T) {
	raised := allocated(apiserver.RunningPod("lab", "front"), constrained(v1alpha1.Constraints{
		DemandPercent: percentOf(300), DemandBy: "DemandSignal/p99",
	}))
	const want = "he demand of 1 pod is raised by DemandSignal lab/p99 (300%)."
	c := newCluster(t, append(shop(), raised)...)
	prints := func(args, want string) bool {
		stdout, _, err := c.run(t, strings.Split(args, " ")...)
		return err == nil && strings.Contains(strings.Join(strings.Fields(stdout), " "), want)
	}
	if !prints("explain batch-x2", want) {
		t.Error("explain does not name the signal")
	}
	c.Round = respond(strings.Replace(lastRound, `"demand":"5100m"`, `"demand":"5100m","signalDemand":"1700m"`, 1))
	if !prints("usage", "Note: The pods of node node-1 demand 5100m, DemandSignals add 1700m. T"+want) {
		t.Error("usage does not name the signal")
	}
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*v1alpha1.PodAllocationList); ok && opts[0] != client.InNamespace("shop") {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "podallocations"}, "", errors.New("no"))
			}
			return inner.List(ctx, list, opts...)
		},
	})
	if !prints("explain batch-x2", "Decision:") || prints("explain batch-x2", "DemandSignal lab/p99") {
		t.Error("explain of a user that may not list the node's allocations")
	}
}
