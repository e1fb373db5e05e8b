// Package shop is the demo's workload as Kubernetes objects: a service that matters, a second service, a
// hog whose request is larger than its importance, and pods that MBCAS must never touch.
//
// Promises:
//   - With limits or without, everything but the CPU limits is the same: TestOnlyLimitsDiffer.
//   - The witnesses are what they claim to be: TestWitnesses.
package shop

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/test/demo/internal/script"
)

const (
	// Image holds mbcas-load.
	Image = "mbcas.io/load:dev"
	// Port is where services and hogs listen.
	Port = 8080
	// SearchCeiling is the most that search may get, in thousandths of a core.
	SearchCeiling = 800
	// PartOf labels every object of the demo.
	PartOf      = "app.kubernetes.io/part-of"
	PartOfValue = "mbcas-demo"
	// App labels the pods of a Deployment with its name.
	App = "app.kubernetes.io/name"
)

// Namespaces of the demo.
var Namespaces = []string{"shop", "batch"}

// Priority classes.
const (
	important = "shop-important"
	normal    = "shop-normal"
)

// Workload is one Deployment of one pod with one container.
type Workload struct {
	Namespace, Name string
	Args            []string
	Request, Limit  int64 // CPU in thousandths of a core; 0: none
	Class           string
	Labels          map[string]string
	Annotations     map[string]string
	// Witness: MBCAS must never touch it, for the reason given.
	Witness string
}

// Workloads is all of it. Requests fit the default local node (1600m allocatable) beside MBCAS itself.
func Workloads() []Workload {
	serve, idle := []string{"serve"}, []string{"hog"}
	// One thread that is throttled all the time: whoever could be tempted to raise a limit would be.
	tempting := []string{"hog", "--threads=1"}
	return []Workload{
		{Namespace: "shop", Name: script.Checkout, Args: serve, Request: 100, Limit: 500, Class: important},
		{Namespace: "shop", Name: script.Search, Args: serve, Request: 100, Limit: 300, Class: normal,
			// So that one lowering by the market is a large one: limits fall by a third at a time.
			Annotations: map[string]string{"mbcas.io/max-cpu": fmt.Sprintf("%dm", SearchCeiling)}},
		{Namespace: "batch", Name: script.Hog, Args: idle, Request: 600, Limit: 1200},
		{Namespace: "shop", Name: script.CheckoutTold, Args: serve, Request: 400, Limit: 500, Class: important},
		{Namespace: "batch", Name: script.HogTold, Args: idle, Request: 100, Limit: 1200},

		{Namespace: "shop", Name: "guaranteed", Args: tempting, Request: 30, Limit: 30, Witness: "Guaranteed"},
		{Namespace: "shop", Name: "besteffort", Args: idle, Witness: "BestEffort"},
		{Namespace: "shop", Name: "unlimited", Args: idle, Request: 50, Witness: "no CPU limit"},
		{Namespace: "shop", Name: "opted-out", Args: tempting, Request: 10, Limit: 30,
			Labels: map[string]string{"mbcas.io/managed": "false"}, Witness: "opted out"},
	}
}

// Find is the workload of that name.
func Find(name string) (Workload, bool) {
	for _, w := range Workloads() {
		if w.Name == name {
			return w, true
		}
	}
	return Workload{}, false
}

// Managed says whether the market may move the pod's limit.
func (w Workload) Managed() bool { return w.Witness == "" }

// Namespace is a namespace of the demo with a mode for MBCAS.
func Namespace(name, mode string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{PartOf: PartOfValue, "mbcas.io/mode": mode},
	}}
}

// Classes are the priority classes. They say what matters without evicting anybody.
func Classes() []*schedulingv1.PriorityClass {
	class := func(name string, value int32, text string) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{
			ObjectMeta:       metav1.ObjectMeta{Name: name, Labels: map[string]string{PartOf: PartOfValue}},
			Value:            value,
			PreemptionPolicy: ptr.To(corev1.PreemptNever),
			Description:      text,
		}
	}
	return []*schedulingv1.PriorityClass{
		class(important, 1_000_000, "Services that customers wait for."),
		class(normal, 2_000, "Services that matter less."),
	}
}

// Deployment is the workload's object. Without limits, a workload that MBCAS may manage has no CPU
// limit; witnesses are always as declared. Its pod runs on the node named, whose kernel the demo reads.
func (w Workload) Deployment(node string, limits bool) *appsv1.Deployment {
	labels := map[string]string{App: w.Name, PartOf: PartOfValue}
	for k, v := range w.Labels {
		labels[k] = v
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, Labels: map[string]string{App: w.Name, PartOf: PartOfValue}},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{App: w.Name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: w.Annotations},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken:  ptr.To(false),
					EnableServiceLinks:            ptr.To(false),
					PriorityClassName:             w.Class,
					NodeSelector:                  map[string]string{corev1.LabelHostname: node},
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					Containers:                    []corev1.Container{w.container(limits)},
				},
			},
		},
	}
}

func (w Workload) container(limits bool) corev1.Container {
	return corev1.Container{
		Name: "main", Image: Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Args:      append(w.Args[:len(w.Args):len(w.Args)], fmt.Sprintf("--listen=:%d", Port)),
		Ports:     []corev1.ContainerPort{{ContainerPort: Port}},
		Resources: w.resources(limits),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), RunAsNonRoot: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		// Patient, so that a starved pod is slow and not gone.
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(Port)}},
			PeriodSeconds: 3, TimeoutSeconds: 10, FailureThreshold: 5,
		},
	}
}

func (w Workload) resources(limits bool) corev1.ResourceRequirements {
	if w.Request == 0 {
		return corev1.ResourceRequirements{} // BestEffort
	}
	memory := resource.MustParse("32Mi")
	if w.Args[0] == "serve" {
		memory = resource.MustParse("192Mi") // for the requests that wait while it is starved
	}
	r := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: milli(w.Request), corev1.ResourceMemory: memory},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: memory},
	}
	if w.Limit > 0 && (limits || !w.Managed()) {
		r.Limits[corev1.ResourceCPU] = milli(w.Limit)
	}
	return r
}

func milli(v int64) resource.Quantity { return *resource.NewMilliQuantity(v, resource.DecimalSI) }
