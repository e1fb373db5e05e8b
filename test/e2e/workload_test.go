package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

const (
	system    = "mbcas-system"
	loadImage = "mbcas.io/load:dev"
	modeLabel = "mbcas.io/mode"
)

// namespace makes a namespace in the given mode. After the test it removes the namespace and waits until
// its pods are gone: a pod that outlives its node is removed by the garbage collector, which a later
// guard counts as an eviction.
func (s *suite) namespace(t *testing.T, name, mode string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{modeLabel: mode}}}
	s.create(t, ns)
	t.Cleanup(func() {
		ctx := context.Background()
		err := poll.Until(ctx, s.deadline(3*time.Minute), func() string {
			err := s.Delete(ctx, ns)
			if apierrors.IsNotFound(err) {
				return ""
			}
			return orError(err, "pods or other objects remain")
		})
		if err != nil {
			t.Errorf("remove namespace %s: %v", name, err)
		}
	})
}

func (s *suite) setMode(t *testing.T, namespace, mode string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, modeLabel, mode)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	must.Succeed(t, s.Patch(t.Context(), ns, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// resources are the requests and limits of a container; an empty text is none.
type resources struct{ cpuRequest, cpuLimit, memory string }

func (r resources) kubernetes() corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		if cpu != "" {
			l[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	return corev1.ResourceRequirements{Requests: list(r.cpuRequest, r.memory), Limits: list(r.cpuLimit, r.memory)}
}

// part is a container that is idle until it gets a load, on its own port.
func part(name string, port int, r resources) corev1.Container {
	return corev1.Container{
		Name: name, Image: loadImage, ImagePullPolicy: corev1.PullNever, Resources: r.kubernetes(),
		Args: []string{fmt.Sprintf("--listen=:%d", port)},
	}
}

// template is a pod of one container that is idle until it gets a load.
func (s *suite) template(name string, r resources) corev1.PodTemplateSpec {
	load := part("load", 8080, r)
	healthz := &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}
	load.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: healthz}, PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 10,
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			NodeSelector:                  map[string]string{corev1.LabelHostname: s.node},
			Tolerations: []corev1.Toleration{{
				Key: "mbcas.io/virtual", Operator: corev1.TolerationOpExists,
			}},
			Containers: []corev1.Container{load},
		},
	}
}

// deployment is one replica of a pod, changed as is wanted.
func (s *suite) deployment(
	namespace, name string, r resources, change ...func(*corev1.PodTemplateSpec),
) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Template: s.template(name, r),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		},
	}
	for _, f := range change {
		f(&d.Spec.Template)
	}
	return d
}

// create creates an object.
func (s *suite) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := s.Create(t.Context(), o); err != nil {
		t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// deploy starts a deployment.
func (s *suite) deploy(t *testing.T, namespace, name string, r resources, change ...func(*corev1.PodTemplateSpec)) {
	t.Helper()
	s.create(t, s.deployment(namespace, name, r, change...))
}

// bare starts a pod without an owner.
func (s *suite) bare(t *testing.T, namespace, name string, r resources, labels map[string]string) {
	t.Helper()
	from := s.template(name, r)
	maps.Copy(from.Labels, labels)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: from.Labels}
	s.create(t, &corev1.Pod{ObjectMeta: meta, Spec: from.Spec})
}

// list has the pods of a namespace.
func (s *suite) list(t *testing.T, namespace string, labels client.MatchingLabels) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	must.Succeed(t, s.List(t.Context(), &list, client.InNamespace(namespace), labels))
	return list.Items
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// pods are the namespace's pods by their app label, once each of them is Ready.
func (s *suite) pods(t *testing.T, namespace string) (byApp map[string]*corev1.Pod) {
	t.Helper()
	s.wait(t, 2*time.Minute, "every pod of "+namespace+" is Ready", func() (bool, string) {
		byApp = map[string]*corev1.Pod{}
		for _, p := range s.list(t, namespace, nil) {
			switch {
			case p.DeletionTimestamp != nil:
			case !isReady(&p):
				return false, fmt.Sprintf("%s is %s %+v", p.Name, p.Status.Phase, p.Status.ContainerStatuses)
			default:
				byApp[p.Labels["app"]] = &p
			}
		}
		return len(byApp) > 0, "no pods"
	})
	return byApp
}

func (s *suite) pod(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	var now corev1.Pod
	must.Succeed(t, s.Get(t.Context(), client.ObjectKeyFromObject(p), &now))
	return &now
}

// spin makes a pod spin with that many threads; with 0 it is idle.
func (s *suite) spin(t *testing.T, pod *corev1.Pod, threads int) {
	t.Helper()
	s.setLoad(t, pod, 8080, map[string]any{"threads": threads})
}

// end has the program of a pod end as if it were killed.
func (s *suite) end(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	s.put(t, pod, "8080/exit", nil)
}

// setLoad sets the load of the container of a pod that listens there.
func (s *suite) setLoad(t *testing.T, pod *corev1.Pod, port int, what map[string]any) {
	t.Helper()
	s.put(t, pod, fmt.Sprint(port, "/plan"), what)
}

// put sends something to the program of a pod, at this port and path.
func (s *suite) put(t *testing.T, pod *corev1.Pod, to string, what map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), s.deadline(20*time.Second)) // a starved pod answers late
	defer cancel()
	if err := traffic.Put(ctx, http.DefaultClient, "http://"+pod.Status.PodIP+":"+to, what); err != nil {
		t.Fatalf("send %v to %s of %s: %v", what, to, pod.Name, err)
	}
}

// untouched is everything of a pod's containers that a resize of CPU limits must not change.
// Ephemeral containers may come.
func untouched(pod *corev1.Pod) string {
	p := pod.DeepCopy()
	for i := range p.Spec.Containers {
		delete(p.Spec.Containers[i].Resources.Limits, corev1.ResourceCPU)
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil { // a sidecar
			delete(c.Resources.Limits, corev1.ResourceCPU)
		}
	}
	p.Spec.EphemeralContainers = nil
	text, _ := json.Marshal(p.Spec)
	return string(text)
}

func limit(pod *corev1.Pod) cpu.Milli {
	q := pod.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU]
	return cpu.Milli(q.MilliValue())
}
