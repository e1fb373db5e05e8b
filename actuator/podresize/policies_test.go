package podresize_test

import (
	"net/http"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestValidatingPolicy: a ValidatingAdmissionPolicy chooses its own code, by default that of an invalid object.
func TestValidatingPolicy(t *testing.T) {
	forbidden, invalid, tooLarge := metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge
	for name, reason := range map[string]*metav1.StatusReason{"default": nil, "forbidden": &forbidden, "invalid": &invalid, "too large": &tooLarge} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			policy := &admission.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
			policy.Spec = admission.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: apiserver.Resizes}}},
				Validations:      []admission.Validation{{Expression: "false", Message: "no resize on Fridays", Reason: reason}},
			}
			s.CreateUntilEnd(s.t, policy)
			s.CreateUntilEnd(s.t, &admission.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
				Spec: admission.ValidatingAdmissionPolicyBindingSpec{
					PolicyName: policy.Name, ValidationActions: []admission.ValidationAction{admission.Deny},
					MatchResources: &admission.MatchResources{NamespaceSelector: apiserver.Within(s.namespace)},
				},
			})
			s.refuses(s.move("app", 300), podresize.PolicyRefused, "no resize on Fridays")
		})
	}
}

// TestWouldMutate: DryRun finds out, before it is too late, that admission changes more than was asked for.
func TestWouldMutate(t *testing.T) {
	app := apiserver.Container("app", "100m", "200m")
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
				s.MutateResizes(s.t, s.namespace, apiserver.Change{Op: "replace", Path: "/spec/containers/0/resources/limits/cpu", Value: "250m"})
			}, "app limits cpu=250m instead of 300m",
		},
		"a policy lowers a request": {
			func(s *scene) {
				s.MutateResizes(s.t, s.namespace, apiserver.Change{Op: "replace", Path: "/spec/containers/0/resources/requests/cpu", Value: "50m"})
			}, "app requests cpu=50m instead of 100m",
		},
	} {
		t.Run(reason, func(t *testing.T) {
			s := newScene(t, app, apiserver.Container("side", "50m", ""))
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
	s.MutateResizes(t, s.namespace,
		apiserver.Change{Op: "replace", Path: "/spec/containers/0/resources/limits/cpu", Value: "250m"},
		apiserver.Change{Op: "add", Path: "/metadata/annotations", Value: map[string]string{"touched": "yes"}},
		apiserver.Change{Op: "replace", Path: "/spec/containers/0/image", Value: "other"},
	)
	s.untilDryRun(s.move("app", 300), podresize.WouldMutate)
	got := s.resize.Apply(t.Context(), s.pod, s.move("app", 300))
	s.expect("Apply", got, podresize.WouldMutate, "requested CPU limits: app limits cpu=250m instead of 300m")
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
	fail := admission.Fail
	s.CreateUntilEnd(s.t, &admission.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Webhooks: []admission.ValidatingWebhook{{
			Name: "guard.example.com", Rules: []admission.RuleWithOperations{apiserver.Resizes}, NamespaceSelector: apiserver.Within(s.namespace),
			FailurePolicy: &fail, SideEffects: &effects, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: apiserver.Webhook(s.t, answer),
		}},
	})
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
			s.webhook(admission.SideEffectClassNone, apiserver.Review(admissionv1.AdmissionResponse{Result: denial}))
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
