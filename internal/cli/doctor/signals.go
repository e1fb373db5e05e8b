package doctor

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/format"
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

// signalRemedy is what to do about a metric without effect.
func signalRemedy(reason string, d *v1alpha1.DemandSignal) string {
	switch reason {
	case v1alpha1.ReasonMetricMissing:
		group := "custom.metrics.k8s.io"
		if d.Spec.Metric.Type == v1alpha1.ExternalMetric {
			group = "external.metrics.k8s.io"
		}
		return "Check its spec.metric, and the source of the adapter that serves " + group + "."
	case v1alpha1.ReasonMetricStale:
		return "Check the source of the metrics adapter, and the clocks."
	case v1alpha1.ReasonInvalidMetric:
		return "Check its spec.metric."
	case v1alpha1.ReasonMetricForbidden:
		return reapply
	case v1alpha1.ReasonMetricsAPIMissing:
		return "Install a metrics adapter, such as prometheus-adapter or KEDA."
	case v1alpha1.ReasonMetricsAPIUnavailable:
		return "kubectl get apiservices, and check the metrics adapter."
	case v1alpha1.ReasonTargetUnknown:
		return "Check its spec.targetRef."
	case v1alpha1.ReasonTargetNotManaged:
		return "Run kubectl mbcas explain for a pod of its target; delete the signal if no pod can be resized."
	case v1alpha1.ReasonSignalsOff:
		return "Remove --signal-interval=0 from the controller's arguments."
	}
	return "kubectl describe dsig -n " + d.Namespace + " " + d.Name
}
