package podresize_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// owner is the name under which the tests resize: the one that the policies of config/policy let through.
const owner = "mbcas-controller"

// fixture is one running pod in a namespace of its own on a real API server.
type fixture struct {
	*apiserver.Server
	t         *testing.T
	kubelet   *apiserver.Kubelet
	namespace string
	pod       *corev1.Pod // as read before anything is done to its surroundings
	resize    *podresize.Client
}

// newFixture runs a pod of one container called app with request 100m and limit 200m.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOf(t, apiserver.Pod("", "web", apiserver.Container("app", "100m", "200m")))
}

func newFixtureOf(t *testing.T, pod *corev1.Pod) *fixture {
	t.Helper()
	s := apiserver.Start(t)
	sc := &fixture{Server: s, t: t, namespace: s.Namespace(t), resize: podresize.New(s.Client, owner)}
	sc.kubelet = s.Kubelet(t, "node-"+sc.namespace)
	pod.Namespace = sc.namespace
	sc.pod = sc.kubelet.Run(t, pod)
	return sc
}

func (s *fixture) create(o client.Object) {
	s.t.Helper()
	must.Succeed(s.t, s.Client.Create(s.t.Context(), o))
}

// stored is the pod as the API server has it now.
func (s *fixture) stored() *corev1.Pod {
	s.t.Helper()
	p := &corev1.Pod{}
	must.Succeed(s.t, s.Client.Get(s.t.Context(), client.ObjectKeyFromObject(s.pod), p))
	return p
}

// move is a move of one container of the fixture's pod from the limit that it was read with.
func (s *fixture) move(container string, to cpu.Milli) actuator.Move {
	s.t.Helper()
	m := actuator.Move{UID: string(s.pod.UID), Changes: []actuator.Change{{Container: container, To: to}}}
	for _, c := range append(s.pod.Spec.Containers, s.pod.Spec.InitContainers...) {
		if c.Name == container {
			m.Changes[0].From = cpu.Milli(c.Resources.Limits.Cpu().MilliValue())
		}
	}
	return m
}

// refuses checks that both DryRun and Apply of the move come to the outcome, with a message that says so,
// and that the stored pod's resources stay as they are. Admission reads from caches, so the dry run is
// repeated until these know.
func (s *fixture) refuses(m actuator.Move, want podresize.Outcome, says string) {
	s.t.Helper()
	s.untilDryRun(m, want)
	before := s.stored()
	got := s.resize.Apply(s.t.Context(), s.pod, m)
	expect(s.t, "Apply", got, want, says)
	if got.Pod != nil {
		s.t.Errorf("a pod is returned with a refusal")
	}
	if after := s.stored(); !sameSpec(before, after) {
		s.t.Errorf("the refused move changed the pod:\n%+v\nwas\n%+v", after.Spec, before.Spec)
	}
}

func (s *fixture) untilDryRun(m actuator.Move, want podresize.Outcome) podresize.Result {
	s.t.Helper()
	var got podresize.Result
	apiserver.Eventually(s.t, fmt.Sprintf("the dry run is %v", want), func() (bool, any) {
		got = s.resize.DryRun(s.t.Context(), s.pod, m)
		return got.Outcome == want, fmt.Sprintf("%v: %s", got.Outcome, got.Message)
	})
	return got
}

func expect(t *testing.T, what string, got podresize.Result, want podresize.Outcome, says string) {
	t.Helper()
	if got.Outcome != want {
		t.Fatalf("%s is %v, want %v; message: %s", what, got.Outcome, want, got.Message)
	}
	if !strings.Contains(got.Message, says) {
		t.Errorf("%s says %q, want something with %q", what, got.Message, says)
	}
}

func cpuList(s string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(s)}
}

// quota makes a ResourceQuota of limits.cpu, and plays the quota controller, which fills in its status; with
// used "" it has not counted yet.
func (s *fixture) quota(hard, used string) {
	s.t.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "budget"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse(hard)}
	s.create(q)
	q.Status.Hard = q.Spec.Hard
	if used != "" {
		q.Status.Used = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse(used)}
	}
	must.Succeed(s.t, s.Client.Status().Update(s.t.Context(), q))
}

var memory = resource.MustParse("64Mi")

func milli(s string) cpu.Milli {
	q := resource.MustParse(s)
	return cpu.Milli(q.MilliValue())
}

func sameSpec(a, b *corev1.Pod) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) }

// policy makes a ValidatingAdmissionPolicy that refuses the resizes of the fixture's namespace; reason "" is its default.
func (s *fixture) policy(reason metav1.StatusReason) {
	s.t.Helper()
	refuse := admission.Validation{Expression: "false", Message: refusal}
	if reason != "" {
		refuse.Reason = &reason
	}
	name := metav1.ObjectMeta{Name: s.namespace}
	s.CreateUntilEnd(s.t, &admission.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admission.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admission.MatchResources{
			ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: apiserver.Resizes}},
		},
		Validations: []admission.Validation{refuse},
	}})
	binding := &admission.ValidatingAdmissionPolicyBinding{ObjectMeta: name}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = s.namespace, []admission.ValidationAction{admission.Deny}
	binding.Spec.MatchResources = &admission.MatchResources{NamespaceSelector: apiserver.Within(s.namespace)}
	s.CreateUntilEnd(s.t, binding)
}

// webhook makes a validating webhook for the resizes of the fixture's namespace.
func (s *fixture) webhook(answer http.HandlerFunc) {
	s.t.Helper()
	fail, none := admission.Fail, admission.SideEffectClassNone
	s.CreateUntilEnd(s.t, &admission.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Webhooks: []admission.ValidatingWebhook{{
			Name: "guard.example.com", Rules: []admission.RuleWithOperations{apiserver.Resizes},
			NamespaceSelector: apiserver.Within(s.namespace), FailurePolicy: &fail, SideEffects: &none,
			AdmissionReviewVersions: []string{"v1"}, ClientConfig: apiserver.Webhook(s.t, answer),
		}},
	})
}

// hangUp ends the connection without an answer.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// allow gives the user of the role's name all verbs on the resources in the fixture's namespace.
func (s *fixture) allow(user string, resources ...string) {
	s.t.Helper()
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: user}
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: resources, Verbs: []string{"*"}}
	s.create(&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}})
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
}

func (s *fixture) node() *corev1.Node {
	s.t.Helper()
	n := &corev1.Node{}
	must.Succeed(s.t, s.Client.Get(s.t.Context(), client.ObjectKey{Name: s.kubelet.Node}, n))
	return n
}

// remove deletes the fixture's pod at once, if it is there.
func (s *fixture) remove() {
	s.t.Helper()
	err := s.Client.Delete(s.t.Context(), s.pod.DeepCopy(), client.GracePeriodSeconds(0))
	must.Succeed(s.t, client.IgnoreNotFound(err))
}

// replace deletes it, and runs another pod of its name.
func (s *fixture) replace() *corev1.Pod {
	s.t.Helper()
	s.remove()
	app := apiserver.Container("app", "100m", "200m")
	return s.kubelet.Run(s.t, apiserver.Pod(s.namespace, s.pod.Name, app))
}
