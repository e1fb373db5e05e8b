package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/poll"
)

const (
	system    = "mbcas-system"
	loadImage = "mbcas.io/load:e2e"
	modeLabel = "mbcas.io/mode"
)

// namespace makes a namespace in the given mode. After the test it removes the namespace and waits until its pods
// are gone: a pod that outlives its node is removed by the garbage collector, which a later guard counts as an eviction.
func (s *suite) namespace(t *testing.T, name, mode string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{modeLabel: mode}}}
	if err := s.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		err := poll.Until(ctx, 3*time.Minute, func() string {
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
	if err := s.Patch(t.Context(), ns, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
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

// template is a pod of one container that is idle until it gets a load.
func (s *suite) template(name string, r resources) corev1.PodTemplateSpec {
	grace := int64(1)
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			NodeSelector:                  map[string]string{corev1.LabelHostname: s.node},
			Tolerations:                   []corev1.Toleration{{Key: "mbcas.io/virtual", Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "load", Image: loadImage, Args: []string{"hog"}, ImagePullPolicy: corev1.PullNever, Resources: r.kubernetes(),
				ReadinessProbe: &corev1.Probe{
					ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstrPort}},
					PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 10,
				},
			}},
		},
	}
}

// deploy starts one replica under a Deployment, changed as is wanted.
func (s *suite) deploy(t *testing.T, namespace, name string, r resources, change ...func(*corev1.PodTemplateSpec)) {
	t.Helper()
	one := int32(1)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: s.template(name, r),
		},
	}
	for _, f := range change {
		f(&d.Spec.Template)
	}
	if err := s.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// bare starts a pod without an owner.
func (s *suite) bare(t *testing.T, namespace, name string, r resources, labels map[string]string) {
	t.Helper()
	from := s.template(name, r)
	for k, v := range labels {
		from.Labels[k] = v
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: from.Labels}, Spec: from.Spec}
	if err := s.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// pods are the namespace's pods by their app label, once each of them is Ready.
func (s *suite) pods(t *testing.T, namespace string) (byApp map[string]*corev1.Pod) {
	t.Helper()
	wait(t, 2*time.Minute, "every pod of "+namespace+" is Ready", func(ctx context.Context) (bool, string) {
		var list corev1.PodList
		if err := s.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return false, err.Error()
		}
		byApp = map[string]*corev1.Pod{}
		for i := range list.Items {
			p := &list.Items[i]
			if p.DeletionTimestamp != nil {
				continue
			}
			if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				return false, fmt.Sprintf("%s is %s %+v", p.Name, p.Status.Phase, p.Status.ContainerStatuses)
			}
			byApp[p.Labels["app"]] = p
		}
		return len(byApp) > 0, "no pods"
	})
	return byApp
}

func (s *suite) pod(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	var now corev1.Pod
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(p), &now); err != nil {
		t.Fatal(err)
	}
	return &now
}

// spin makes a pod spin with that many threads; with 0 it is idle.
func spin(t *testing.T, pod *corev1.Pod, threads int) {
	t.Helper()
	setLoad(t, pod, map[string]any{"threads": threads})
}

// setLoad sets the load of a pod.
func setLoad(t *testing.T, pod *corev1.Pod, what map[string]any) {
	t.Helper()
	body, _ := json.Marshal(what)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // a starved pod answers late
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+pod.Status.PodIP+":8080/plan", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("set the load of %s to %s: %v", pod.Name, body, err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("set the load of %s to %s: %s", pod.Name, body, resp.Status)
	}
}

// allocation is the pod's PodAllocation.
func (s *suite) allocation(ctx context.Context, pod *corev1.Pod) (*v1alpha1.PodAllocation, error) {
	var pa v1alpha1.PodAllocation
	err := s.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: string(pod.UID)}, &pa)
	return &pa, err
}

// untouched is everything of a pod's containers that a resize of CPU limits must not change. Ephemeral containers
// may come.
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

func summary(pa *v1alpha1.PodAllocation) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "phase %s %s (%s), applied %v", pa.Status.Phase, pa.Status.Reason, pa.Status.Message, pa.Status.AppliedLimits)
	if d := pa.Spec.Decision; d != nil {
		fmt.Fprintf(b, ", desired %v of %v to %v, demand %v, price %s, %s", *pa.Spec.DesiredCPULimit, d.Floor, d.Ceiling, d.Demand, d.Price, d.BoundBy)
	}
	return b.String()
}
