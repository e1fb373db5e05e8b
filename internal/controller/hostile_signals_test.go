package controller

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/demandsignal"
	"github.com/mbcas/mbcas/internal/kube"
)

// TestHostileSignals: each field of a DemandSignal, generated from its schema with odd values, is refused with its name, or
// asks for no demand beyond what a signal may ask for. Afterwards a good signal counts again.
func TestHostileSignals(t *testing.T) {
	r := newRig(t)
	r.config.Signal.Interval, r.config.Signal.Control.Gain = 20*time.Millisecond, 120
	var c *Reconciler
	r.start(func(re *Reconciler) {
		c = re
		re.ReadMetric = func(_ context.Context, _ string, _ kube.Metric, _ labels.Selector, now time.Time) ([]demandsignal.Value, error) {
			return []demandsignal.Value{{Value: 0.4, At: now}}, nil
		}
	})
	web := r.ownedPod("web", "web", "100m", "500m")
	r.allocation(web, "made", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
	d := r.latency("odd", "web", "latencies")
	good := r.says(d, v1alpha1.ReasonMetricRead).Spec
	r.demandIs(web, "twice the target", func(p int32) bool { return p > 100 && p <= 300 })

	schema := r.definition("demandsignals.allocation.mbcas.io").Spec.Versions[0].Schema.OpenAPIV3Schema
	text, err := json.Marshal(good)
	r.must(err)
	var whole any
	r.must(json.Unmarshal(text, &whole))
	accepted, refused := 0, 0
	for i, f := range leaves(schema.Properties["spec"], "spec") {
		for _, value := range oddAt(i, f.schema) {
			what := strings.Join(f.path, ".")
			changed := with(map[string]any{"spec": whole}, f.path, value).(map[string]any)
			patch := []map[string]any{{"op": "replace", "path": "/spec", "value": changed["spec"]}}
			body, err := json.Marshal(patch)
			r.must(err)
			if err := r.Client.Patch(t.Context(), d.DeepCopy(), client.RawPatch(types.JSONPatchType, body)); err != nil {
				refused++
				r.refusal(what, f.path, value, err)
				continue
			}
			accepted++
			r.until(what+" is looked at", func() (bool, any) {
				got, reason := r.storedSignal(d)
				return reason != "" && got.Status.ObservedGeneration == got.Generation, got.Status
			})
			signals, _ := c.lookups.percentages(r.namespace) // what it asks for now; published to agents a moment later
			for _, p := range append(percents(signals), asksFor(r.publishedConstraints(web))) {
				if p < 0 || p > 1000 {
					t.Errorf("%s = %.60v: a demand of %d %%", what, value, p)
				}
			}
		}
	}
	if accepted < 5 || refused < 30 {
		t.Errorf("%d values accepted and %d refused: are they generated?", accepted, refused)
	}
	body, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": whole}})
	r.must(err)
	r.must(r.Client.Patch(t.Context(), d, client.RawPatch(types.JSONPatchType, body)))
	r.says(d, v1alpha1.ReasonMetricRead)
	r.demandIs(web, "twice the target again", func(p int32) bool { return p > 100 && p <= 300 })
	if limit := r.limit(web); limit != 500 {
		t.Errorf("limit %v, and nothing was decided", limit)
	}
}

func percents(signals []constraints.Signal) (list []int32) {
	for _, s := range signals {
		list = append(list, s.Percent)
	}
	return list
}
