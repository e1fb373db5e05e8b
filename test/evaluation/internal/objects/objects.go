// Package objects is a cell of the evaluation as Kubernetes objects.
//
// Promises:
//   - Policies differ in CPU limits and autoscalers, and in nothing else of the workloads:
//     TestOnlyThePolicyDiffers.
//   - No PriorityClass preempts: TestClassDoesNotPreempt.
package objects

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/cpu"
	workload "github.com/mbcas/mbcas/test/evaluation/internal/client"
	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
)

const (
	// App is the label with the name of a workload.
	App = "app.kubernetes.io/name"
	// Image has every workload.
	Image = "mbcas.io/workload:dev"

	mode    = "mbcas.io/mode"
	weights = "mbcas.io/weights"
	data    = "/data"
)

// For a HorizontalPodAutoscaler: the share of the request to aim at, and the most replicas.
const (
	utilization = 70
	maxReplicas = 4
)

// batchRequest is the most that a tuned VPA requests for a batch job.
const batchRequest = cpu.Milli(100)

// Recommender is the name of the VPA's recommender with a short history, which the local cluster's add-on starts.
const Recommender = "short"

// Namespace is the cell's own: what a policy has learned about one cell says nothing about another.
func Namespace(c plan.Cell) string { return "evaluation-" + c.Name() }

// Class is the PriorityClass of important services. It tells policies what is important, and evicts no pod.
func Class() client.Object {
	return &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: plan.Important}, Value: plan.ImportantValue,
		PreemptionPolicy: ptr.To(corev1.PreemptNever),
	}
}

// NewNamespace is the namespace of a cell.
func NewNamespace(c plan.Cell) client.Object {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace(c), Labels: map[string]string{mode: "off"}}}
	if c.Policy.MBCAS {
		ns.Labels[mode] = "enforce"
	}
	if c.Policy.Weights {
		ns.Labels[weights] = "allow"
	}
	return ns
}

// Workloads are the Deployments of a cell on a node, and their autoscalers.
func Workloads(c plan.Cell, node string) (all []client.Object) {
	for _, w := range c.Situation.Workloads {
		all = append(all, deployment(w, c.Policy, node, c.Situation.Rollout == w.Name))
		if c.Policy.VPA != "" {
			all = append(all, vpa(w, c))
		}
		if c.Policy.HPA && !w.Batch() {
			all = append(all, hpa(w))
		}
	}
	for _, o := range all {
		o.SetNamespace(Namespace(c))
	}
	return all
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{App: name}}
}

func milli(v cpu.Milli) resource.Quantity {
	return *resource.NewMilliQuantity(int64(v), resource.DecimalSI)
}

func deployment(w plan.Workload, p plan.Policy, node string, rollout bool) *appsv1.Deployment {
	m := meta(w.Name)
	pod := m.DeepCopy()
	pod.Name = ""
	memory := corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory} // so that no figure depends on a disk
	d := &appsv1.Deployment{
		ObjectMeta: m,
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: m.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: *pod, Spec: corev1.PodSpec{
				AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
				PriorityClassName:             w.Class,
				NodeSelector:                  map[string]string{corev1.LabelHostname: node},
				TerminationGracePeriodSeconds: ptr.To[int64](2),
				Containers:                    []corev1.Container{container(w)},
				Volumes: []corev1.Volume{
					{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: memory.DeepCopy()}},
					{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: memory.DeepCopy()}},
				},
				SecurityContext: &corev1.PodSecurityContext{FSGroup: ptr.To[int64](65532)},
			}},
		},
	}
	if rollout {
		drain(&d.Spec.Template.Spec)
	}
	limits := d.Spec.Template.Spec.Containers[0].Resources.Limits
	switch {
	case p.Cap && w.Batch():
		limits[corev1.ResourceCPU] = milli(w.Cap)
	case p.NoLimits:
		delete(limits, corev1.ResourceCPU)
	}
	return d
}

// drain lets a pod end its requests before it ends, as those of a Deployment that is updated under load do.
func drain(pod *corev1.PodSpec) {
	pod.TerminationGracePeriodSeconds = ptr.To[int64](10)
	pod.Containers[0].Lifecycle = &corev1.Lifecycle{
		PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}},
	}
}

// Restart is what is added to the template of a Deployment so that its pods are replaced, as kubectl rollout
// restart does.
func Restart(at time.Time) []byte {
	const note = "kubectl.kubernetes.io/restartedAt"
	return fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, note, at.Format(time.RFC3339))
}

func container(w plan.Workload) corev1.Container {
	memory := resource.MustParse("512Mi")
	return corev1.Container{
		Name: "main", Image: Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{w.Kind, data + "/" + w.Kind}, WorkingDir: data,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: milli(w.Request), corev1.ResourceMemory: memory},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: milli(w.Limit), corev1.ResourceMemory: memory},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: data}, {Name: "tmp", MountPath: "/tmp"}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), RunAsNonRoot: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		// The timeout is long: a starved pod is slow, and stays Ready.
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(workload.ControlPort)},
			},
			PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 10,
		},
	}
}

func hpa(w plan.Workload) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: meta(w.Name),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: "apps/v1", Kind: "Deployment", Name: w.Name,
			},
			MaxReplicas: maxReplicas,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name: corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{
						Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](utilization),
					},
				},
			}},
		},
	}
}

func vpa(w plan.Workload, c plan.Cell) *unstructured.Unstructured {
	container := map[string]any{
		"containerName": "*", "controlledResources": []any{"cpu"}, "maxAllowed": map[string]any{"cpu": "1"},
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
		"spec": map[string]any{
			"targetRef":    map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": w.Name},
			"updatePolicy": map[string]any{"updateMode": c.Policy.VPA, "minReplicas": int64(1)},
		},
	}}
	spec := o.Object["spec"].(map[string]any)
	if c.Policy.Tuned {
		most := maxRequest(w, c.Situation)
		container["controlledValues"] = "RequestsOnly"
		container["maxAllowed"] = map[string]any{"cpu": most.String()}
		spec["recommenders"] = []any{map[string]any{"name": Recommender}}
	}
	spec["resourcePolicy"] = map[string]any{"containerPolicies": []any{container}}
	o.SetName(w.Name)
	return o
}

// maxRequest is the most that a tuned VPA may request for a workload: little for a batch job, and for services what
// fits the node beside each other, at most their limit.
func maxRequest(w plan.Workload, s plan.Situation) *resource.Quantity {
	free, services := plan.Allocatable, cpu.Milli(0)
	for _, x := range s.Workloads {
		if x.Batch() {
			free -= batchRequest
		} else {
			services++
		}
	}
	most := milli(batchRequest)
	if !w.Batch() {
		most = milli(min(w.Limit, free/services))
	}
	return &most
}
