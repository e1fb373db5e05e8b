// Package workload is a script's pods as Kubernetes objects, and puts them on a cluster and removes
// them.
//
// Promises:
//   - With limits or without, everything but the CPU limits is the same: TestOnlyLimitsDiffer.
//   - The pods that MBCAS must never touch are what the script says they are: TestUntouchedPods.
//   - No PriorityClass preempts: TestClassesDoNotPreempt.
//   - Close removes everything that Open and Replace made, also of an earlier measurement:
//     TestOpenAndClose.
package workload

import (
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

const (
	// Port is where every pod listens.
	Port = 8080
	// NewPod is the name of pods that come and go.
	NewPod = "new-pod"

	image = "mbcas.io/load:dev"
	mode  = "mbcas.io/mode"

	defaultLimit = "mbcas.io/default-limit"
	weights      = "mbcas.io/weights"
)

func meta(ns, name string) metav1.ObjectMeta {
	labels := map[string]string{recorder.App: name, recorder.PartOf: recorder.PartOfValue}
	return metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}
}

func milli(v cpu.Milli) resource.Quantity {
	return *resource.NewMilliQuantity(int64(v), resource.DecimalSI)
}

// fixtures are what stays for the whole script: namespaces, PriorityClasses and the quota.
func fixtures(s *script.Script) (all []client.Object) {
	for _, name := range s.Namespaces {
		ns := &corev1.Namespace{ObjectMeta: meta("", name)}
		ns.Labels[mode] = "off"
		all = append(all, ns)
	}
	for name, value := range s.Classes {
		all = append(all, &schedulingv1.PriorityClass{
			ObjectMeta: meta("", name), Value: value,
			// It tells MBCAS what is important, and evicts no pod.
			PreemptionPolicy: ptr.To(corev1.PreemptNever),
		})
	}
	if s.Quota != nil {
		quota := &corev1.ResourceQuota{ObjectMeta: meta(s.Quota.Namespace, "compute")}
		quota.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: milli(s.Quota.LimitsCPU)}
		all = append(all, quota)
	}
	return all
}

// pods are the workloads of a run: Deployments, and HPAs of them. They run on the node named, whose
// kernel is read.
func pods(s *script.Script, node string, limits bool) (all []client.Object) {
	for _, w := range s.Workloads {
		all = append(all, Deployment(w, node, limits))
		if w.HPA != nil {
			all = append(all, scaler(w))
		}
	}
	return all
}

// Deployment is a workload. Without limits, a workload that MBCAS may manage has no CPU limit.
func Deployment(w script.Workload, node string, limits bool) *appsv1.Deployment {
	template := pod(w, node)
	if !limits && w.Managed() {
		delete(template.Spec.Containers[0].Resources.Limits, corev1.ResourceCPU)
	}
	d := &appsv1.Deployment{
		ObjectMeta: meta(w.Namespace, w.Name),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{recorder.App: w.Name}},
			Template: template,
		},
	}
	if w.HPA == nil {
		d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	}
	return d
}

func pod(w script.Workload, node string) corev1.PodTemplateSpec {
	m := meta("", w.Name)
	m.Name = ""
	if w.OptOut {
		m.Labels["mbcas.io/managed"] = "false"
	}
	if !w.Managed() {
		m.Labels[guard.Untouched] = "true"
	}
	if w.MaxCPU > 0 {
		m.Annotations = map[string]string{"mbcas.io/max-cpu": w.MaxCPU.String()}
	}
	c := container(w)
	grace := int64(1)
	if w.HPA != nil { // requests in progress end before the pod does
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}}
		grace = 10
	}
	return corev1.PodTemplateSpec{ObjectMeta: m, Spec: corev1.PodSpec{
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		PriorityClassName:             w.Class,
		NodeSelector:                  map[string]string{corev1.LabelHostname: node},
		TerminationGracePeriodSeconds: &grace,
		Containers:                    []corev1.Container{c},
	}}
}

func container(w script.Workload) corev1.Container {
	memory := resource.MustParse("192Mi") // for the requests that wait
	if w.Kind == script.Spin {
		memory = resource.MustParse("32Mi")
	}
	c := corev1.Container{
		Name: "main", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Args:  []string{fmt.Sprintf("--threads=%d", w.Threads), fmt.Sprintf("--listen=:%d", Port)},
		Ports: []corev1.ContainerPort{{ContainerPort: Port}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), RunAsNonRoot: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		// The timeout is long: a starved pod is slow, and stays Ready.
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(Port)},
			},
			PeriodSeconds: 2, TimeoutSeconds: 10, FailureThreshold: 5,
		},
	}
	if w.Request == 0 {
		return c // BestEffort
	}
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: milli(w.Request), corev1.ResourceMemory: memory}
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: memory}
	if w.Limit > 0 {
		c.Resources.Limits[corev1.ResourceCPU] = milli(w.Limit)
	}
	return c
}

func scaler(w script.Workload) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: meta(w.Namespace, w.Name),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: "apps/v1", Kind: "Deployment", Name: w.Name,
			},
			MaxReplicas: w.HPA.MaxReplicas,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name: corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{
						Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &w.HPA.Utilization,
					},
				},
			}},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleDown: &autoscalingv2.HPAScalingRules{
					StabilizationWindowSeconds: ptr.To(int32(w.HPA.ScaleDownWindow.Seconds())),
				},
			},
		},
	}
}

// newPod is a pod that comes and goes.
func newPod(w script.Workload, node string, i int) *corev1.Pod {
	t := pod(w, node)
	p := &corev1.Pod{ObjectMeta: meta(w.Namespace, fmt.Sprintf("%s-%d", NewPod, i)), Spec: t.Spec}
	maps.Copy(p.Labels, t.Labels)
	return p
}
