package doctor

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
)

// checkSignals says which DemandSignals have no effect, and why.
func checkSignals(f *findings, s subject) {
	const signals = "DemandSignals"
	switch {
	case s.Unreadable["signalcrd"] == nil && s.SignalCRD == nil:
		f.warn(signals, "their CRD is not installed, so none can be created",
			"Install the CRD of this version: kubectl apply -k config/base")
		return
	case len(s.Signals) == 0:
		f.ok(signals, "none")
		return
	}
	read := 0
	for i := range s.Signals {
		d := &s.Signals[i]
		name := "DemandSignal " + d.Namespace + "/" + d.Name
		switch cond := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.SignalAvailable); {
		case cond == nil:
			f.warn(name, "its metric has not been read yet",
				"Wait for a minute; if it stays so, check the controller: it reads no metric with --signal-interval=0.")
		case cond.Status == metav1.ConditionTrue:
			read++
		default:
			f.warn(name, fmt.Sprintf("its metric has no effect (%s): %s", cond.Reason, format.OneLine(cond.Message)),
				signalRemedy(cond.Reason, d))
		}
	}
	if read > 0 {
		f.ok(signals, "%d of %s read", read, format.Plural(len(s.Signals), "metric"))
	}
}

// signalRemedies are what to do about a metric without effect, by the reason of the condition.
var signalRemedies = map[string]string{
	v1alpha1.ReasonMetricStale:           "Check the source of the metrics adapter, and the clocks.",
	v1alpha1.ReasonInvalidMetric:         "Check its spec.metric.",
	v1alpha1.ReasonMetricForbidden:       reapply,
	v1alpha1.ReasonMetricsAPIMissing:     "Install a metrics adapter, such as prometheus-adapter or KEDA.",
	v1alpha1.ReasonMetricsAPIUnavailable: "kubectl get apiservices, and check the metrics adapter.",
	v1alpha1.ReasonTargetUnknown:         "Check its spec.targetRef.",
	v1alpha1.ReasonTargetNotManaged: "Run kubectl mbcas explain for a pod of its target; delete the signal if no pod " +
		"can be resized.",
	v1alpha1.ReasonSignalsOff: "Remove --signal-interval=0 from the controller's arguments.",
}

func signalRemedy(reason string, d *v1alpha1.DemandSignal) string {
	if reason == v1alpha1.ReasonMetricMissing {
		return "Check its spec.metric, and the source of the adapter that serves " +
			kube.Metric{Type: d.Spec.Metric.Type}.Group() + "."
	}
	return cmp.Or(signalRemedies[reason], "kubectl describe dsig -n "+d.Namespace+" "+d.Name)
}
