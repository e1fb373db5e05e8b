package podresize_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// owner is the name under which the tests resize: the one that the policies of config/policy let through.
const owner = "mbcas-controller"

// scene is one running pod in a namespace of its own on a real API server.
type scene struct {
	*apiserver.Server
	t         *testing.T
	kubelet   *apiserver.Kubelet
	namespace string
	pod       *corev1.Pod // as read before anything is done to its surroundings
	resize    *podresize.Client
}

// newScene runs the pod; with no containers given, one called app with request 100m and limit 200m.
func newScene(t *testing.T, containers ...corev1.Container) *scene {
	t.Helper()
	if len(containers) == 0 {
		containers = []corev1.Container{apiserver.Container("app", "100m", "200m")}
	}
	return newSceneOf(t, apiserver.Pod("", "web", containers...))
}

func newSceneOf(t *testing.T, pod *corev1.Pod) *scene {
	t.Helper()
	s := apiserver.Start(t)
	sc := &scene{Server: s, t: t, namespace: s.Namespace(t), resize: podresize.New(s.Client, owner)}
	sc.kubelet = s.Kubelet(t, "node-"+sc.namespace)
	pod.Namespace = sc.namespace
	sc.pod = sc.kubelet.Run(t, pod)
	return sc
}

// must ends the test at a step that only prepares it.
func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) create(o client.Object) {
	s.t.Helper()
	s.must(s.Client.Create(s.t.Context(), o))
}

// stored is the pod as the API server has it now.
func (s *scene) stored() *corev1.Pod {
	s.t.Helper()
	p := &corev1.Pod{}
	s.must(s.Client.Get(s.t.Context(), client.ObjectKeyFromObject(s.pod), p))
	return p
}

// move is a move of one container of the scene's pod from the limit that it was read with.
func (s *scene) move(container string, to cpu.Milli) actuator.Move {
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
func (s *scene) refuses(m actuator.Move, want podresize.Outcome, says string) {
	s.t.Helper()
	s.untilDryRun(m, want)
	before := s.stored()
	got := s.resize.Apply(s.t.Context(), s.pod, m)
	s.expect("Apply", got, want, says)
	if got.Pod != nil {
		s.t.Errorf("a pod is returned with a refusal")
	}
	if after := s.stored(); !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		s.t.Errorf("the refused move changed the pod:\n%+v\nwas\n%+v", after.Spec, before.Spec)
	}
}

func (s *scene) untilDryRun(m actuator.Move, want podresize.Outcome) podresize.Result {
	s.t.Helper()
	var got podresize.Result
	apiserver.Eventually(s.t, fmt.Sprintf("the dry run is %v", want), func() (bool, any) {
		got = s.resize.DryRun(s.t.Context(), s.pod, m)
		return got.Outcome == want, fmt.Sprintf("%v: %s", got.Outcome, got.Message)
	})
	return got
}

func (s *scene) expect(what string, got podresize.Result, want podresize.Outcome, says string) {
	s.t.Helper()
	if got.Outcome != want {
		s.t.Fatalf("%s is %v, want %v; message: %s", what, got.Outcome, want, got.Message)
	}
	if !strings.Contains(got.Message, says) {
		s.t.Errorf("%s says %q, want something with %q", what, got.Message, says)
	}
}

func limitRange(ns string, item corev1.LimitRangeItem) *corev1.LimitRange {
	lr := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "bounds"}}
	lr.Spec.Limits = []corev1.LimitRangeItem{item}
	return lr
}

func cpuList(s string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(s)}
}

// quota makes a ResourceQuota of limits.cpu, and plays the quota controller, which fills in its status; with
// used "" it has not counted yet.
func (s *scene) quota(hard, used string) {
	s.t.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "budget"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse(hard)}
	s.create(q)
	q.Status.Hard = q.Spec.Hard
	if used != "" {
		q.Status.Used = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse(used)}
	}
	s.must(s.Client.Status().Update(s.t.Context(), q))
}

var memory = resource.MustParse("64Mi")

func milli(s string) cpu.Milli {
	q := resource.MustParse(s)
	return cpu.Milli(q.MilliValue())
}

func milliQuantity(m int64) *resource.Quantity {
	return resource.NewMilliQuantity(m, resource.DecimalSI)
}
