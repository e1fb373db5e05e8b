package doctor

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
)

// readSignals reads the DemandSignals of all namespaces, if the cluster knows any.
func (c *Facts) readSignals(ctx context.Context, a *cluster.Access) {
	var err error
	c.SignalCRD, err = cluster.Get(ctx, a.Client, "CRD", &apiextensionsv1.CustomResourceDefinition{}, "", cluster.SignalCRDName)
	c.note("signalcrd", err)
	if err == nil && c.SignalCRD == nil {
		return
	}
	var list v1alpha1.DemandSignalList
	if err := a.Client.List(ctx, &list); err != nil {
		c.note("demandsignals", fmt.Errorf("list demandsignals: %w", err))
	}
	c.Signals = list.Items
}

// signalPermissions are what the controller needs where there are DemandSignals: they, and the metrics that they name.
func signalPermissions(signals []v1alpha1.DemandSignal) []Permission {
	if len(signals) == 0 {
		return nil
	}
	group := v1alpha1.GroupVersion.Group
	needed := []Permission{
		{Verb: "list", Group: group, Resource: "demandsignals", For: "seeing DemandSignals"},
		{Verb: "patch", Group: group, Resource: "demandsignals", Subresource: "status", For: "saying what becomes of DemandSignals"},
	}
	custom, external := false, false
	for i := range signals {
		of := signals[i].Spec.Metric.Type
		custom, external = custom || of != v1alpha1.ExternalMetric, external || of == v1alpha1.ExternalMetric
	}
	if custom {
		needed = append(needed, Permission{Verb: "get", Group: "custom.metrics.k8s.io", Resource: "*", For: "reading the metrics of DemandSignals"})
	}
	if external {
		needed = append(needed, Permission{Verb: "list", Group: "external.metrics.k8s.io", Resource: "*", For: "reading the metrics of DemandSignals"})
	}
	return needed
}

// diagnoseSignals says which DemandSignals are not read, and why.
func diagnoseSignals(f *findings, c *Facts) {
	const subject = "DemandSignals"
	switch err := c.Unread["demandsignals"]; {
	case c.Unread["signalcrd"] == nil && c.SignalCRD == nil:
		f.warn(subject, "their CRD is not installed, so that nobody can write one", "Install the CRD that belongs to this version: kubectl apply -k config/base")
		return
	case err != nil:
		f.unread(subject, err)
		return
	case len(c.Signals) == 0:
		f.ok(subject, "none")
		return
	}
	read := 0
	for i := range c.Signals {
		d := &c.Signals[i]
		name := "DemandSignal " + d.Namespace + "/" + d.Name
		switch cond := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.SignalAvailable); {
		case cond == nil:
			f.warn(name, "nobody has looked at its metric yet", "Wait for a minute; if it stays so, look at the controller: it reads none with --signal-interval=0.")
		case cond.Status == metav1.ConditionTrue:
			read++
		default:
			f.warn(name, fmt.Sprintf("its metric counts for nothing (%s): %s", cond.Reason, format.OneLine(cond.Message)), signalRemedy(cond.Reason, d))
		}
	}
	if read > 0 {
		f.ok(subject, "%d of %s read", read, format.Plural(len(c.Signals), "metric"))
	}
}

// signalRemedy is what to do about a metric that counts for nothing.
func signalRemedy(reason string, d *v1alpha1.DemandSignal) string {
	switch reason {
	case v1alpha1.ReasonMetricMissing:
		group := "custom.metrics.k8s.io"
		if d.Spec.Metric.Type == v1alpha1.ExternalMetric {
			group = "external.metrics.k8s.io"
		}
		return "Check its spec.metric, and what feeds the adapter that serves " + group + "."
	case v1alpha1.ReasonMetricStale:
		return "Look at what feeds the metrics adapter, and at the clocks."
	case v1alpha1.ReasonInvalidMetric:
		return "Check its spec.metric."
	case v1alpha1.ReasonMetricForbidden:
		return "Apply the RBAC manifests of MBCAS again: kubectl apply -k config/base"
	case v1alpha1.ReasonMetricsAPIMissing:
		return "Install a metrics adapter, such as prometheus-adapter or KEDA."
	case v1alpha1.ReasonMetricsAPIUnavailable:
		return "kubectl get apiservices, and look at the metrics adapter."
	case v1alpha1.ReasonTargetUnknown:
		return "Check its spec.targetRef."
	case v1alpha1.ReasonTargetNotManaged:
		return "kubectl mbcas explain says more about a pod; without one that can be resized the signal may go."
	case v1alpha1.ReasonSignalsOff:
		return "Remove --signal-interval=0 from the controller's arguments."
	}
	return "kubectl describe dsig -n " + d.Namespace + " " + d.Name
}
