package config_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestTypes: the type checker of Kubernetes finds no fault in the policies. It skips rules for all versions of an
// API, so it checks copies that name the present versions.
func TestTypes(t *testing.T) {
	e := open(t)
	e.Controllers(t, "validatingadmissionpolicy-status-controller")
	for _, policy := range e.policies(t) {
		p := typed(policy)
		e.create(t, p)
		t.Cleanup(func() { must.Succeed(t, e.Client.Delete(context.Background(), p)) })
		apiserver.Eventually(t, p.Name+" has been checked", func() (bool, any) {
			must.Succeed(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p))
			return p.Status.ObservedGeneration == p.Generation && p.Status.TypeChecking != nil, p.Status
		})
		known := false
		for _, w := range p.Status.TypeChecking.ExpressionWarnings {
			if strings.Contains(w.Warning, "undefined field 'colour'") {
				known = true
				continue
			}
			t.Errorf("%s, %s: %s", p.Name, w.FieldRef, w.Warning)
		}
		if !known {
			t.Errorf("%s: the type checker does not report the fault in this copy, so it knows no type", p.Name)
		}
	}
}

// typed is a copy of a policy for the present versions, with one fault.
func typed(policy admissionv1.ValidatingAdmissionPolicy) *admissionv1.ValidatingAdmissionPolicy {
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "typed-" + policy.Name}, Spec: *policy.Spec.DeepCopy()}
	for i := range p.Spec.MatchConstraints.ResourceRules {
		rule := &p.Spec.MatchConstraints.ResourceRules[i].Rule
		rule.APIVersions = []string{"v1"}
		if slices.Contains(rule.APIGroups, "allocation.mbcas.io") {
			rule.APIVersions = []string{"v1alpha1"}
		}
		for i := range rule.Resources { // the checker knows no subresources; here their type is that of the resource
			rule.Resources[i], _, _ = strings.Cut(rule.Resources[i], "/")
		}
		rule.Resources = slices.Compact(rule.Resources)
	}
	p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{Expression: "object.metadata.colour == 'red'"})
	return p
}
