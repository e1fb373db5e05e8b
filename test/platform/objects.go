//go:build linux

package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const (
	image = "mbcas.io/load:dev"
	port  = 8080
	app   = "app.kubernetes.io/name"
)

// Amounts of CPU, in thousandths of a core.
const (
	// quotaPods pods declare five eighths of their namespace's quota, of which a tenth is to stay free.
	quotaPods    = 20
	quotaRequest = 20
	quotaLimit   = 100
	quotaHard    = 3200
	quotaMark    = quotaHard * 9 / 10
	// webRequest is the request of the service under the HPA, which aims at webTarget percent of it.
	webRequest = 100
	webTarget  = 70
	webMost    = 10
)

func namespace(name, mode string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mbcas.io/mode": mode}}}
}

func milli(v int64) resource.Quantity { return *resource.NewMilliQuantity(v, resource.DecimalSI) }

// template is a pod that serves, on the node whose kernel is read.
func template(name, node string, request, limit int64) corev1.PodTemplateSpec {
	memory := resource.MustParse("192Mi") // for the requests that wait
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{app: name}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			NodeSelector:                  map[string]string{corev1.LabelHostname: node},
			TerminationGracePeriodSeconds: ptr.To[int64](10),
			Containers: []corev1.Container{{
				Name: "main", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				Args:  []string{"serve", fmt.Sprintf("--listen=:%d", port)},
				Ports: []corev1.ContainerPort{{ContainerPort: port}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: milli(request), corev1.ResourceMemory: memory},
					Limits:   corev1.ResourceList{corev1.ResourceCPU: milli(limit), corev1.ResourceMemory: memory},
				},
				// Requests that are under way end before the pod does.
				Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}},
				ReadinessProbe: &corev1.Probe{ // patient, so that a starved pod is slow and not gone
					ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(port)}},
					PeriodSeconds: 2, TimeoutSeconds: 10, FailureThreshold: 5,
				},
			}},
		},
	}
}

func quota(ns string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "compute"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: milli(quotaHard)}
	return q
}

// tenants are the pods that share the quota.
func tenants(ns, node string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tenant"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](quotaPods), PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{app: "tenant"}},
			Template: template("tenant", node, quotaRequest, quotaLimit),
		},
	}
}

// newcomer is a pod that just fits into what is to stay free.
func newcomer(ns, node string, i int) *corev1.Pod {
	t := template("newcomer", node, quotaRequest, quotaHard-quotaMark)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("new-%d", i), Labels: t.Labels}, Spec: t.Spec}
}

// web is the service that scales.
func web(ns, node string, limit int64) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{app: "web"}},
			Template: template("web", node, webRequest, limit),
		},
	}
}

// scaler is its HPA: as Kubernetes ships it, save that it scales in after a minute, so that this shows in a run.
func scaler(ns string) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MaxReplicas:    webMost,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name:   corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](webTarget)},
			}}},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](60)},
			},
		},
	}
}
