package config_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// clusterWithDefaults is the API server with the namespaces of the cases.
func clusterWithDefaults(t *testing.T) *apiserver.Server {
	t.Helper()
	s := apiserver.Start(t)
	if s.Minor(t) < 36 {
		t.Skip("optional: MutatingAdmissionPolicies are served from 1.36")
	}
	create := func(o client.Object) {
		t.Helper()
		if err := s.Client.Create(t.Context(), o); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	for name, label := range defaultsOf {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if label != "" {
			ns.Labels = map[string]string{kube.DefaultLimitKey: label}
		}
		create(ns)
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	for _, name := range []string{"kube-system", "kube-node-lease", "kube-public", system} {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"64"}}}`, kube.DefaultLimitKey)
		label := client.RawPatch("application/merge-patch+json", patch)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		apiserver.Eventually(t, "the namespace "+name+" is there", func() (bool, any) {
			err := s.Client.Patch(t.Context(), ns, label)
			return err == nil, err
		})
	}
	create(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "machine"}, Handler: "machine"})
	return s
}

// policyOfDefaults are the objects of the component, as kubectl makes them.
func policyOfDefaults(
	t *testing.T,
) (*admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicyBinding) {
	t.Helper()
	objects := render(t, "testdata/default-limits")
	return one[*admissionv1.MutatingAdmissionPolicy](t, objects, defaultLimits),
		one[*admissionv1.MutatingAdmissionPolicyBinding](t, objects, defaultLimits)
}

// installDefaults puts the policy of the component in force until the test ends, changed.
func installDefaults(t *testing.T, s *apiserver.Server, change func(*admissionv1.MutatingAdmissionPolicySpec)) {
	t.Helper()
	policy, binding := policyOfDefaults(t)
	change(&policy.Spec)
	t.Cleanup(func() { awaitDefaults(t, s, "", false) })
	s.CreateUntilEnd(t, policy)
	s.CreateUntilEnd(t, binding)
}

// awaitDefaults waits until pods with the label get limits, or none.
func awaitDefaults(t *testing.T, s *apiserver.Server, label string, inForce bool) {
	t.Helper()
	apiserver.Eventually(t, fmt.Sprintf("the policy %s is in force: %v", label, inForce), func() (bool, any) {
		p, err := tryPod(t, s, newPods()[0], label)
		return err == nil && p.Spec.Containers[0].Resources.Limits.Cpu().IsZero() != inForce, err
	})
}

// withDefault is a namespace with the default limit of 64 cores.
func withDefault(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: name, Labels: map[string]string{kube.DefaultLimitKey: "64"},
	}}
}

// tryPod is the pod as the API server would store it.
func tryPod(t *testing.T, s *apiserver.Server, g given, label string) (*corev1.Pod, error) {
	t.Helper()
	p := g.pod.DeepCopy()
	p.Namespace, p.Name = g.namespace, "new"
	if label != "" {
		p.Labels = map[string]string{"mutant": label}
		for k, v := range g.pod.Labels {
			p.Labels[k] = v
		}
	}
	return p, s.Client.Create(context.Background(), p, client.DryRunAll) // also while a test cleans up
}

// fault says how a new pod differs from what it has to be; "" where it does not. plain is the pod without the policy.
func (g given) fault(p, plain *corev1.Pod, err error) string {
	if err != nil {
		return err.Error()
	}
	limits := map[string]string{}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if q, ok := c.Resources.Limits[corev1.ResourceCPU]; ok {
			limits[c.Name] = q.String()
		}
	}
	if len(limits)+len(g.limits) > 0 && !reflect.DeepEqual(limits, g.limits) {
		return fmt.Sprintf("limits %v, want %v", limits, g.limits)
	}
	label, has := p.Labels[kube.DefaultLimitKey]
	if has != g.byDefault || has && label != defaultsOf[g.namespace] {
		return fmt.Sprintf("label %q, want it: %v", label, g.byDefault)
	}
	if p.Status.QOSClass != plain.Status.QOSClass {
		return fmt.Sprintf("QoS class %s, without the policy %s", p.Status.QOSClass, plain.Status.QOSClass)
	}
	if got, want := withoutLimits(p), withoutLimits(plain); got != want {
		return fmt.Sprintf("besides limits it has\n%s\nwithout the policy\n%s", got, want)
	}
	return ""
}

// withoutLimits is the spec of a pod without CPU limits.
func withoutLimits(p *corev1.Pod) string {
	spec := p.Spec.DeepCopy()
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			r := &containers[i].Resources
			if delete(r.Limits, corev1.ResourceCPU); len(r.Limits) == 0 {
				r.Limits = nil
			}
		}
	}
	text, _ := json.Marshal(spec)
	return string(text)
}

// plainPods are the new pods without the policy.
func plainPods(t *testing.T, s *apiserver.Server) (all []*corev1.Pod) {
	t.Helper()
	for _, g := range newPods() {
		p, err := tryPod(t, s, g, "")
		if err != nil {
			t.Fatalf("%s, without the policy: %v", g.name, err)
		}
		all = append(all, p)
	}
	return all
}

// TestDefaultLimits: new pods get the default limit of their namespace where that changes neither their QoS class nor
// a request, and MBCAS can manage them. Pods that are there already can be changed as before.
func TestDefaultLimits(t *testing.T) {
	s := clusterWithDefaults(t)
	plain := plainPods(t, s)
	old := apiserver.Pod(limited, "old", apiserver.Container("web", "100m", ""))
	s.CreateUntilEnd(t, old)
	installDefaults(t, s, func(*admissionv1.MutatingAdmissionPolicySpec) {})
	awaitDefaults(t, s, "", true)
	for i, g := range newPods() {
		p, err := tryPod(t, s, g, "")
		if fault := g.fault(p, plain[i], err); fault != "" {
			t.Errorf("%s: %s", g.name, fault)
		}
	}
	old.Labels = map[string]string{"changed": "yes"}
	if err := s.Client.Update(t.Context(), old); err != nil || !old.Spec.Containers[0].Resources.Limits.Cpu().IsZero() {
		t.Errorf("a pod that was there before: %v, %+v", err, old.Spec.Containers[0].Resources)
	}
}

// defaultClauses are parts of the policy; with the second text in place of the first, it gives too much, or too little.
var defaultClauses = []struct{ old, new string }{
	{"object.metadata.?labels[?'mbcas.io/managed'].orValue('') != 'false'", "true"},
	{"object.metadata.?annotations[?'mbcas.io/managed'].orValue('') != 'false'", "true"},
	{"!('kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({}))", "true"},
	{"!has(object.spec.resources)", "true"},
	{"object.spec.?runtimeClassName.orValue('') == ''", "true"},
	{"object.spec.?os.?name.orValue('') != 'windows'", "true"},
	{"object.spec.?nodeSelector[?'kubernetes.io/os'].orValue('') != 'windows'", "true"},
	{"object.spec.?os.?name.orValue('') != 'windows'", "!has(object.spec.os)"},
	{"l.matches('^[0-9]{1,5}([.][0-9]{1,3})?$')", "true"},
	{"([.][0-9]{1,3})?", ""},
	{"c.?restartPolicy.orValue('') == 'Always'", "true"},
	{"c.?restartPolicy.orValue('') == 'Always'", "false"},
	{"!('cpu' in c.?resources.?limits.orValue({}))", "true"},
	{"!('cpu' in c.?resources.?limits.orValue({}))", "!has(c.resources.limits)"},
	{".isGreaterThan(quantity('0'))", ".compareTo(quantity('0')) >= 0"},
	{".isLessThan(quantity(variables.limit))", ".compareTo(quantity(variables.limit)) <= 0"},
	{".isLessThan(quantity(variables.limit))", ".isGreaterThan(quantity('0'))"},
	{"!c.?resizePolicy.orValue([]).exists(", "!c.?resizePolicy.orValue([]).filter(p, false).exists("},
	{"p.resourceName == 'cpu' && ", ""},
	{" && p.restartPolicy == 'RestartContainer'", ""},
	{"containers: object.spec.containers.filter(c, c.name in variables.names)", "containers: object.spec.containers"},
	{"metadata: Object.metadata{labels: {'mbcas.io/default-limit': variables.limit}},", ""},
	{"variables.names.size() == 0 ? Object{} :", ""},
	{`"kube-system",`, ""},
	{`"kube-node-lease",`, ""},
	{`"kube-public",`, ""},
	{`,"mbcas-system"`, ""},
}

// TestEveryClauseOfDefaultLimits: without any one clause of the policy at least one new pod is not what it has to be.
// All mutants are in force at once, each for pods with a label of its own.
func TestEveryClauseOfDefaultLimits(t *testing.T) {
	s := clusterWithDefaults(t)
	plain := plainPods(t, s)
	policy, binding := policyOfDefaults(t)
	mutate := func(name, old, with string) {
		text, err := json.Marshal(policy.Spec)
		if err != nil {
			t.Fatal(err)
		}
		plainText := strings.ReplaceAll(strings.ReplaceAll(string(text), `\u003c`, "<"), `\u003e`, ">")
		plainText = strings.ReplaceAll(plainText, `\u0026`, "&")
		if n := strings.Count(plainText, old); n != 1 && old != "" {
			t.Fatalf("the policy has %d times %s, want once", n, old)
		}
		if old != "" {
			plainText = strings.Replace(plainText, old, with, 1)
		}
		m := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := json.Unmarshal([]byte(plainText), &m.Spec); err != nil {
			t.Fatalf("%s -> %s: %v", old, with, err)
		}
		m.Spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"mutant": name}}
		s.CreateUntilEnd(t, m)
		b := binding.DeepCopy()
		b.Name, b.Spec.PolicyName = name, name
		s.CreateUntilEnd(t, b)
	}
	mutate("whole", "", "")
	for i, c := range defaultClauses {
		mutate(fmt.Sprintf("m%d", i), c.old, c.new)
	}
	faults := func(label string) (list []string) {
		for i, g := range newPods() {
			p, err := tryPod(t, s, g, label)
			expected := plain[i].DeepCopy()
			if f := g.fault(p, expected, err); f != "" {
				list = append(list, g.name+": "+f)
			}
		}
		return list
	}
	awaitDefaults(t, s, "whole", true)
	if list := faults("whole"); len(list) > 0 {
		t.Fatalf("the whole policy: %s", strings.Join(list, "\n"))
	}
	for i, c := range defaultClauses {
		awaitDefaults(t, s, fmt.Sprintf("m%d", i), true)
		list := faults(fmt.Sprintf("m%d", i))
		if len(list) == 0 {
			t.Errorf("every new pod is as it has to be with %q in place of %q", c.new, c.old)
		}
		broken := slices.ContainsFunc(list, func(f string) bool { return strings.HasPrefix(f, newPods()[0].name) })
		if broken && !strings.HasPrefix(c.old, "metadata:") {
			t.Errorf("with %q in place of %q no pod gets a limit, so nothing is tested", c.new, c.old)
		}
	}
}

// TestDefaultLimitsOfInjectedSidecars: a sidecar that a webhook injects gets the limit, too.
func TestDefaultLimitsOfInjectedSidecars(t *testing.T) {
	s := clusterWithDefaults(t)
	installDefaults(t, s, func(*admissionv1.MutatingAdmissionPolicySpec) {})
	awaitDefaults(t, s, "", true)
	ns := withDefault("meshed-")
	if err := s.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	sidecar := apiserver.Change{Op: "add", Path: "/spec/containers/-", Value: apiserver.Container("mesh", "50m", "")}
	patch, err := json.Marshal([]apiserver.Change{sidecar})
	if err != nil {
		t.Fatal(err)
	}
	jsonPatch, none := admissionreview.PatchTypeJSONPatch, admissionv1.SideEffectClassNone
	answer := admissionreview.AdmissionResponse{Allowed: true, Patch: patch, PatchType: &jsonPatch}
	rule := apiserver.Resizes
	rule.Operations, rule.Resources = []admissionv1.OperationType{admissionv1.Create}, []string{"pods"}
	s.CreateUntilEnd(t, &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "mesh"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "mesh.example.com", Rules: []admissionv1.RuleWithOperations{rule},
			NamespaceSelector: apiserver.Within(ns.Name), SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: apiserver.Webhook(t, apiserver.Review(answer)),
		}},
	})
	web := given{namespace: ns.Name, pod: apiserver.Pod("", "", apiserver.Container("web", "100m", ""))}
	apiserver.Eventually(t, "both containers have the limit", func() (bool, any) {
		p, err := tryPod(t, s, web, "")
		if err != nil || len(p.Spec.Containers) != 2 {
			return false, err
		}
		a, b := p.Spec.Containers[0].Resources.Limits.Cpu(), p.Spec.Containers[1].Resources.Limits.Cpu()
		return a.Value() == 64 && b.Value() == 64, fmt.Sprint(a, b)
	})
}

// TestDefaultLimitsNeverBlock: a policy that fails leaves the pod as it is. One that does not ignore failures, which
// the same pods notice, refuses it.
func TestDefaultLimitsNeverBlock(t *testing.T) {
	s := clusterWithDefaults(t)
	web := newPods()[0]
	broken := func(failure admissionv1.FailurePolicyType) func(t *testing.T) {
		return func(t *testing.T) {
			refused := failure == admissionv1.Fail
			installDefaults(t, s, func(spec *admissionv1.MutatingAdmissionPolicySpec) {
				if refused {
					spec.FailurePolicy = &failure
				}
				spec.Variables[0].Expression = "string(quantity(object.metadata.name).asInteger())"
				spec.MatchConditions = spec.MatchConditions[:1]
				spec.MatchConditions[0].Expression = "true"
				spec.Mutations = append(spec.Mutations, admissionv1.Mutation{
					PatchType: admissionv1.PatchTypeApplyConfiguration,
					ApplyConfiguration: &admissionv1.ApplyConfiguration{
						Expression: "Object{metadata: Object.metadata{labels: {'in-force': 'yes'}}}",
					},
				})
			})
			apiserver.Eventually(t, "the broken policy is in force", func() (bool, any) {
				p, err := tryPod(t, s, web, "")
				if refused {
					return apierrors.IsInvalid(err), err
				}
				asItIs := p.Spec.Containers[0].Resources.Limits.Cpu().IsZero()
				return err == nil && p.Labels["in-force"] == "yes" && asItIs, err
			})
		}
	}
	t.Run("as it is", broken(admissionv1.Ignore))
	t.Run("with Fail", broken(admissionv1.Fail))
}

// TestDefaultLimitsAmongOthers: the default of a LimitRange comes first, and its maximum for pods and quotas count the
// limit.
func TestDefaultLimitsAmongOthers(t *testing.T) {
	s := clusterWithDefaults(t)
	installDefaults(t, s, func(*admissionv1.MutatingAdmissionPolicySpec) {})
	awaitDefaults(t, s, "", true)
	cores := func(n string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
	}
	for name, c := range map[string]struct {
		limits  *corev1.LimitRangeItem
		quota   string
		limit   string // of web
		refused string
	}{
		"a default of containers": {
			&corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: cores("2")}, "", "2", "",
		},
		"a maximum of containers": {
			&corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cores("3")}, "", "3", "",
		},
		"a maximum of pods": {
			&corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cores("4")}, "", "",
			"maximum cpu usage per Pod is 4",
		},
		"a small quota": {nil, "10", "", "exceeded quota"},
		"a large quota": {nil, "100", "64", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ns := withDefault("among-")
			if err := s.Client.Create(t.Context(), ns); err != nil {
				t.Fatal(err)
			}
			if c.limits != nil {
				r := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "range"}}
				r.Spec.Limits = []corev1.LimitRangeItem{*c.limits}
				s.CreateUntilEnd(t, r)
			} else {
				countedQuota(t, s, ns.Name, c.quota)
			}
			pod := given{namespace: ns.Name, pod: apiserver.Pod("", "", apiserver.Container("web", "100m", ""),
				apiserver.Container("side", "10m", "20m"))}
			apiserver.Eventually(t, "the answer", func() (bool, any) {
				p, err := tryPod(t, s, pod, "")
				if c.refused != "" {
					return err != nil && strings.Contains(err.Error(), c.refused), err
				}
				got := p.Spec.Containers[0].Resources.Limits.Cpu()
				return err == nil && got.Equal(resource.MustParse(c.limit)), err
			})
		})
	}
}

// countedQuota is a ResourceQuota on limits.cpu, as the quota controller counts it.
func countedQuota(t *testing.T, s *apiserver.Server, namespace, hard string) {
	t.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse(hard)}
	s.CreateUntilEnd(t, q)
	q.Status.Hard = q.Spec.Hard
	q.Status.Used = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("0")}
	if err := s.Client.Status().Update(t.Context(), q); err != nil {
		t.Fatal(err)
	}
}
