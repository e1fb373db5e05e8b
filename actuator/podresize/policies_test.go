package podresize_test

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/apitest"
)

// resizes are the requests that policies and webhooks of these tests are asked about.
var resizes = admission.RuleWithOperations{
	Operations: []admission.OperationType{admission.Update},
	Rule:       admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/resize"}},
}

// only keeps a policy within the scene's namespace.
func (s *scene) only() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}}
}

// TestValidatingPolicy: a ValidatingAdmissionPolicy chooses its own code, by default that of an invalid object.
func TestValidatingPolicy(t *testing.T) {
	forbidden, invalid, tooLarge := metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge
	for name, reason := range map[string]*metav1.StatusReason{"default": nil, "forbidden": &forbidden, "invalid": &invalid, "too large": &tooLarge} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			policy := &admission.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
			policy.Spec = admission.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: resizes}}},
				Validations:      []admission.Validation{{Expression: "false", Message: "no resize on Fridays", Reason: reason}},
			}
			s.createUntilEnd(policy)
			s.createUntilEnd(&admission.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
				Spec: admission.ValidatingAdmissionPolicyBindingSpec{
					PolicyName: policy.Name, ValidationActions: []admission.ValidationAction{admission.Deny},
					MatchResources: &admission.MatchResources{NamespaceSelector: s.only()},
				},
			})
			s.refuses(s.move("app", 300), podresize.PolicyRefused, "no resize on Fridays")
		})
	}
}

// mutate makes a MutatingAdmissionPolicy that applies the JSON patch, a CEL expression, to each resize.
func (s *scene) mutate(patch string) {
	s.t.Helper()
	policy := &admission.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	policy.Spec = admission.MutatingAdmissionPolicySpec{
		MatchConstraints:   &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: resizes}}},
		ReinvocationPolicy: admission.NeverReinvocationPolicy,
		Mutations:          []admission.Mutation{{PatchType: admission.PatchTypeJSONPatch, JSONPatch: &admission.JSONPatch{Expression: patch}}},
	}
	s.createUntilEnd(policy)
	s.createUntilEnd(&admission.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: admission.MutatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, MatchResources: &admission.MatchResources{NamespaceSelector: s.only()},
		},
	})
}

// TestWouldMutate: DryRun finds out, before it is too late, that admission changes more than was asked for.
func TestWouldMutate(t *testing.T) {
	app := apitest.Container("app", "100m", "200m")
	for reason, tt := range map[string]struct {
		before func(*scene)
		says   string
	}{
		"a LimitRange gives another container limits": {
			func(s *scene) {
				s.create(limitRange(s.namespace, corev1.LimitRangeItem{
					Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceMemory: memory},
				}))
			}, "side limits memory=64Mi is added",
		},
		"a LimitRange's maximum becomes a limit and a request": {
			func(s *scene) {
				s.create(limitRange(s.namespace, corev1.LimitRangeItem{
					Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: memory},
				}))
			}, "app requests memory=64Mi is added",
		},
		"a policy sets another limit": {
			func(s *scene) {
				s.mutate(`[JSONPatch{op: "replace", path: "/spec/containers/0/resources/limits/cpu", value: "250m"}]`)
			}, "app limits cpu=250m instead of 300m",
		},
		"a policy lowers a request": {
			func(s *scene) {
				s.mutate(`[JSONPatch{op: "replace", path: "/spec/containers/0/resources/requests/cpu", value: "50m"}]`)
			}, "app requests cpu=50m instead of 100m",
		},
	} {
		t.Run(reason, func(t *testing.T) {
			s := newScene(t, app, apitest.Container("side", "50m", ""))
			tt.before(s)
			got := s.untilDryRun(s.move("app", 300), podresize.WouldMutate)
			s.expect("DryRun", got, podresize.WouldMutate, tt.says)
			if got.Pod != nil {
				t.Errorf("a dry run returns a pod that is not stored")
			}
			if p := s.stored(); p.Generation != s.pod.Generation {
				t.Errorf("the dry run changed the pod")
			}
		})
	}
}

// TestMutatedAllTheSame: an Apply that admission changes on the way is not Accepted, and returns what was stored.
// Of what the policy does beside resources nothing gets through a resize, so it is not spoken of.
func TestMutatedAllTheSame(t *testing.T) {
	s := newScene(t)
	s.mutate(`[JSONPatch{op: "replace", path: "/spec/containers/0/resources/limits/cpu", value: "250m"},
		JSONPatch{op: "add", path: "/metadata/annotations", value: {"touched": "yes"}},
		JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "other"}]`)
	s.untilDryRun(s.move("app", 300), podresize.WouldMutate)
	got := s.resize.Apply(t.Context(), s.pod, s.move("app", 300))
	s.expect("Apply", got, podresize.WouldMutate, "asked for: app limits cpu=250m instead of 300m")
	stored := s.stored()
	if got.Pod == nil || got.Pod.Generation != stored.Generation || !equality.Semantic.DeepEqual(got.Pod.Spec, stored.Spec) {
		t.Errorf("the returned pod is not the stored one: %+v", got.Pod)
	}
	if stored.Annotations["touched"] != "" || stored.Spec.Containers[0].Image != s.pod.Spec.Containers[0].Image {
		t.Errorf("a resize let a policy change more than resources: %+v", stored)
	}
}

// webhook makes a validating webhook for the resizes of the scene's namespace.
func (s *scene) webhook(effects admission.SideEffectClass, answer http.HandlerFunc) {
	s.t.Helper()
	server := httptest.NewUnstartedServer(answer)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	s.t.Cleanup(server.Close)
	fail := admission.Fail
	s.createUntilEnd(&admission.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Webhooks: []admission.ValidatingWebhook{{
			Name: "guard.example.com", Rules: []admission.RuleWithOperations{resizes}, NamespaceSelector: s.only(),
			FailurePolicy: &fail, SideEffects: &effects, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admission.WebhookClientConfig{
				URL:      &server.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
		}},
	})
}

// reviewer answers every review with allowed, or with the status.
func reviewer(denial *metav1.Status) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: denial == nil, Result: denial}
		json.NewEncoder(w).Encode(review)
	}
}

// TestWebhookRefuses: a webhook may answer with any code; none makes us take the pod for gone, the server for
// busy, or the patch for stale.
func TestWebhookRefuses(t *testing.T) {
	for name, denial := range map[string]*metav1.Status{
		"no code":   {Message: "not today"},
		"forbidden": {Code: 403, Message: "not today"},
		"not found": {Code: 404, Reason: metav1.StatusReasonNotFound, Message: "not today"},
		"conflict":  {Code: 409, Reason: metav1.StatusReasonConflict, Message: "not today"},
		"too many":  {Code: 429, Reason: metav1.StatusReasonTooManyRequests, Message: "not today"},
		"internal":  {Code: 500, Reason: metav1.StatusReasonInternalError, Message: "not today"},
		"quota":     {Code: 403, Message: "exceeded quota: of what is allowed today, not today"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.webhook(admission.SideEffectClassNone, reviewer(denial))
			s.refuses(s.move("app", 300), podresize.PolicyRefused, "not today")
		})
	}
}

// TestWebhookIsDown: that is the server's trouble and not a refusal; the change was not made.
func TestWebhookIsDown(t *testing.T) {
	s := newScene(t)
	s.webhook(admission.SideEffectClassNone, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	s.refuses(s.move("app", 300), podresize.Unavailable, "failed calling webhook")
}
