package config_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestTypes: the type checker of Kubernetes has nothing to say about the policies. It skips rules for all versions of an
// API, so it is asked about copies that name today's.
func TestTypes(t *testing.T) {
	s := open(t)
	s.checkTypes(t)
	for _, policy := range s.policies(t) {
		p := typed(policy)
		s.createUntilEnd(t, p)
		apiserver.Eventually(t, p.Name+" has been checked", func() (bool, any) {
			s.must(t, s.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p))
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
			t.Errorf("%s: the type checker does not find the fault that was put there, so it knows no type", p.Name)
		}
	}
}

// typed is a copy of a policy for the versions of today, with one fault.
func typed(policy admissionv1.ValidatingAdmissionPolicy) *admissionv1.ValidatingAdmissionPolicy {
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "typed-" + policy.Name}, Spec: *policy.Spec.DeepCopy()}
	for i := range p.Spec.MatchConstraints.ResourceRules {
		rule := &p.Spec.MatchConstraints.ResourceRules[i].Rule
		rule.APIVersions = []string{"v1"}
		if slices.Contains(rule.APIGroups, "allocation.mbcas.io") {
			rule.APIVersions = []string{"v1alpha1"}
		}
		for i := range rule.Resources { // it knows no subresources, whose type is that of the resource here
			rule.Resources[i], _, _ = strings.Cut(rule.Resources[i], "/")
		}
		rule.Resources = slices.Compact(rule.Resources)
	}
	p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{Expression: "object.metadata.colour == 'red'"})
	return p
}

// checkTypes runs the controller of Kubernetes that does it, until the test ends.
func (s *stage) checkTypes(t *testing.T) {
	t.Helper()
	kubeconfig, err := s.User(t, "type-checker", "system:masters").KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-controller-manager"),
		"--kubeconfig", path, "--controllers", "validatingadmissionpolicy-status-controller", "--leader-elect=false", "--secure-port=0")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended with the test's context
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("kube-controller-manager:\n%s", log.String())
		}
	})
}
