package config_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

type policySpec = admissionv1.ValidatingAdmissionPolicySpec

// clauses are parts of expressions of a policy; with the second text in place of the first, it refuses too little.
var clauses = []struct{ policy, old, new string }{
	{agents, "object.metadata.?labels.orValue({}) == oldObject.metadata.?labels.orValue({})", "true"},
	{agents, "object.metadata.?annotations.orValue({}) == oldObject.metadata.?annotations.orValue({})", "true"},
	{agents, "object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([])", "true"},
	{agents, "object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([])", "true"},

	{resizes, "'recommend'", "'enforce'"}, // as the component enforce has it
	{resizes, "['kube-system', 'kube-node-lease', 'kube-public', 'mbcas-system']", "['mbcas-system']"},
	{resizes, "['kube-system', 'kube-node-lease', 'kube-public', 'mbcas-system']", "['kube-system']"},
	{resizes, "oldObject.metadata.?labels[?'mbcas.io/managed'].orValue('') == 'false'", "false"},
	{resizes, "oldObject.metadata.?annotations[?'mbcas.io/managed'].orValue('') == 'false'", "false"},
	{resizes, "variables.mode == 'enforce'", "variables.mode in ['enforce', 'restore']"},
	{resizes, "variables.mode == 'enforce'", "variables.mode in ['enforce', 'off']"},
	{resizes, "variables.mode == 'enforce'", "variables.mode in ['enforce', 'recommend']"},
	{resizes, "variables.mode == 'enforce'", "!(variables.mode in ['off', 'recommend', 'restore'])"},
	{
		resizes, "oldObject.metadata.?managedFields.orValue([]) .filter(m, m.manager == 'mbcas-controller' &&",
		"oldObject.metadata.?managedFields.orValue([]).filter(m,",
	},
	{
		resizes, "variables.ours.exists(m, ['f:containers', 'f:initContainers']",
		"variables.oursAfter.exists(m, ['f:containers', 'f:initContainers']",
	},
	{resizes, "oldObject.metadata.?generation.orValue(0) != 1", "true"},
	{resizes, "(k == 'cpu' || c.resources.limits[k] == b.resources.limits[k])", "true"},
	{resizes, "k in b.?resources.?limits.orValue({})", "true"},
	{resizes, "quantity(c.resources.limits['cpu']).isGreaterThan(quantity('0'))", "true"},
	{resizes, "!quantity(c.resources.limits['cpu']).isGreaterThan(quantity('99999999m'))", "true"},

	{records, "object.metadata.?ownerReferences.orValue([]).size() == 1", "true"},
	{records, "o.apiVersion == 'v1'", "true"},
	{records, "o.kind == 'Pod'", "true"},
	{records, "o.name == object.spec.podRef.name", "true"},
	{records, "o.uid == object.spec.podRef.uid", "true"},
	{told, "o.apiVersion == 'v1'", "true"},
	{told, "o.kind == 'Node'", "true"},
	{told, "o.name == object.metadata.name", "true"},
	{maps, "request.namespace == 'mbcas-system'", "true"},
	{
		maps, "(object.metadata.name in ['mbcas', 'mbcas-settings'] || object.metadata.name.startsWith('mbcas-declared-'))",
		"true",
	},
	{leases, "request.namespace == 'mbcas-system'", "true"},
	{leases, "!variables.isAgent && request", "request"},
	{leases, ".size() <= 512", ".size() >= 0"},
	{leases, "k == 'mbcas.io/market'", "true"},
	{leases, "object.metadata.?labels.orValue({})", "{}"},
	{leases, "request.name.startsWith('mbcas-controller-')", "true"},
	{leases, "variables.inSystem && variables.ofReplica", "variables.ofReplica"},
	{leases, "object.metadata.name == variables.own", "true"},
	{leases, "'mbcas-agent-' + variables.node", "object.metadata.name"},
	{leases, "? variables.node", "? object.metadata.name"},
	{leases, ": 'mbcas-controller'", ": object.metadata.name"},
}

// mutant is a policy without a part of it.
type mutant struct {
	of, lacks, name string
	spec            *policySpec
}

// mutants are the policies, each without one validation or with one clause changed.
func mutants(t *testing.T, policies []admissionv1.ValidatingAdmissionPolicy) (all []mutant) {
	t.Helper()
	for _, p := range policies {
		add := func(lacks string) *policySpec {
			m := mutant{p.Name, lacks, fmt.Sprintf("m%d", len(all)), p.Spec.DeepCopy()}
			for i := range m.spec.Validations {
				m.spec.Validations[i].Message, m.spec.Validations[i].MessageExpression = "no", ""
			}
			all = append(all, m)
			return m.spec
		}
		for i, v := range p.Spec.Validations {
			if len(p.Spec.Validations) > 1 { // a policy without its only one is no policy
				add("the validation " + v.Expression).Validations[i].Expression = "true"
			}
		}
		for _, c := range clauses {
			if c.policy != p.Name {
				continue
			}
			if n := replace(add(c.old), c.old, c.new); n != 1 {
				t.Fatalf("policy %s has %d times the clause %s, want once", p.Name, n, c.old)
			}
		}
	}
	return all
}

// replace changes a text in the expressions of a policy, and says how often it was there.
func replace(s *policySpec, old, text string) (n int) {
	change := func(expression *string) {
		n += strings.Count(*expression, old)
		*expression = strings.ReplaceAll(*expression, old, text)
	}
	for i := range s.Variables {
		change(&s.Variables[i].Expression)
	}
	for i := range s.Validations {
		change(&s.Validations[i].Expression)
	}
	return n
}

// TestEveryExpressionIsNeeded: without our policies every request that they refuse succeeds, and without any one
// validation or clause at least one of them does. All mutants are tried at once: each only warns, so that the warnings
// with the answer to a request name the mutants that would refuse it.
func TestEveryExpressionIsNeeded(t *testing.T) {
	e := open(t)
	e.elevate(t)
	policies := e.policies(t)
	all := mutants(t, policies)
	e.unbind(t, policies)
	for _, m := range all {
		e.CreateUntilEnd(t, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: m.name}, Spec: *m.spec})
		e.CreateUntilEnd(t, binding(m.name, admissionv1.Warn))
	}
	// try says which mutants would refuse a request.
	try := func(r request) string {
		ctx, warnings := apiserver.Warned(t.Context())
		if err := r.try(ctx, t, e, true); err != nil {
			return "refused: " + err.Error()
		}
		text := strings.Join(*warnings, "")
		if len(text) > 3500 { // the API server drops what goes beyond 4096
			t.Fatalf("%s: %d characters of warnings, so some may be lost", r.action, len(text))
		}
		return text
	}
	// The API server hears of policies and of bindings in their order.
	last := all[len(all)-1]
	apiserver.Eventually(t, "our policies are out of force, and all mutants are in force", func() (bool, any) {
		said := ""
		for _, r := range accessTable() {
			if r.by == last.of {
				if said = try(r); strings.Contains(said, "'"+last.name+"'") {
					return true, said
				}
			}
		}
		return false, said
	})
	warned := map[string]int{}
	for _, r := range accessTable() {
		if !strings.HasPrefix(r.by, "mbcas-") {
			continue
		}
		text := try(r)
		if strings.HasPrefix(text, "refused: ") {
			t.Errorf("%s %s: %s", r.user, r.action, text)
		}
		for _, m := range all {
			if m.of == r.by && strings.Contains(text, "'"+m.name+"'") {
				warned[m.name]++
			}
		}
	}
	refusals := map[string]int{}
	for _, r := range accessTable() {
		refusals[r.by]++
	}
	for _, m := range all {
		switch warned[m.name] {
		case refusals[m.of]:
			t.Errorf("policy %s refuses all %d requests without %s", m.of, refusals[m.of], m.lacks)
		case 0:
			t.Errorf("policy %s refuses nothing without %s: the mutant is not in force", m.of, m.lacks)
		}
	}
	t.Logf("%d mutants of %d policies, each let something through", len(all), len(policies))
}

func binding(policy string, actions ...admissionv1.ValidationAction) client.Object {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy, ValidationActions: actions},
	}
}

// unbind takes our policies out of force until the test ends.
func (e *environment) unbind(t *testing.T, policies []admissionv1.ValidatingAdmissionPolicy) {
	t.Helper()
	for _, p := range policies {
		must.Succeed(t, e.Client.Delete(t.Context(), binding(p.Name)))
	}
	t.Cleanup(func() {
		for _, p := range policies {
			again := binding(p.Name, admissionv1.Deny, admissionv1.Audit)
			must.Succeed(t, e.Client.Create(context.Background(), again))
		}
		e.awaitPolicies(t)
	})
}
