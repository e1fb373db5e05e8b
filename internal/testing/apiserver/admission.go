package apiserver

import (
	"context"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Resizes are the requests that a policy or a webhook of a test is asked about.
var Resizes = admission.RuleWithOperations{
	Operations: []admission.OperationType{admission.Update},
	Rule:       admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/resize"}},
}

// Within keeps a policy or a webhook within a namespace.
func Within(namespace string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
}

// CreateUntilEnd creates what would disturb other tests, and deletes it when the test ends.
func (s *Server) CreateUntilEnd(t testing.TB, o client.Object) {
	t.Helper()
	if err := s.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

// Change is one operation of a JSON patch.
type Change struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// MutateResizes has a webhook apply the changes to each resize of the namespace until the test ends.
func (s *Server) MutateResizes(t testing.TB, namespace string, changes ...Change) {
	t.Helper()
	patch, err := json.Marshal(changes)
	if err != nil {
		t.Fatal(err)
	}
	jsonPatch, none := admissionv1.PatchTypeJSONPatch, admission.SideEffectClassNone
	s.CreateUntilEnd(t, &admission.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admission.MutatingWebhook{{
			Name: "change.example.com", Rules: []admission.RuleWithOperations{Resizes}, NamespaceSelector: Within(namespace),
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: Webhook(t, Review(admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: &jsonPatch})),
		}},
	})
}

// Webhook serves a webhook until the test ends, and says how the API server reaches it.
func Webhook(t testing.TB, answer http.HandlerFunc) admission.WebhookClientConfig {
	t.Helper()
	server := httptest.NewUnstartedServer(answer)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return admission.WebhookClientConfig{
		URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
}

// Review gives every review that answer.
func Review(answer admissionv1.AdmissionResponse) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response := answer
		response.UID = review.Request.UID
		review.Response = &response
		if err := json.NewEncoder(w).Encode(review); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}
