package fakekubelet

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fieldSet is a part of managedFields.
type fieldSet map[string]any

// SetManagers adds what the API server records of the writers of the pod: of its creator and of its
// kubelet.
func SetManagers(pod *corev1.Pod, at metav1.Time) {
	containers, conditions := fieldSet{}, fieldSet{}
	for i := range pod.Spec.Containers {
		containers[key("name", pod.Spec.Containers[i].Name)] = containerFields(&pod.Spec.Containers[i])
	}
	for _, c := range pod.Status.Conditions {
		conditions[key("type", string(c.Type))] = leaves(
			".", "f:lastProbeTime", "f:lastTransitionTime", "f:observedGeneration", "f:status", "f:type")
	}
	labels, annotations := leaves("."), leaves(".")
	for name := range pod.Labels {
		labels["f:"+name] = fieldSet{}
	}
	for name := range pod.Annotations {
		annotations["f:"+name] = fieldSet{}
	}
	spec := leaves("f:affinity", "f:dnsPolicy", "f:enableServiceLinks", "f:restartPolicy", "f:schedulerName",
		"f:serviceAccount", "f:serviceAccountName", "f:terminationGracePeriodSeconds")
	spec["f:containers"] = containers
	spec["f:securityContext"] = leaves(".", "f:fsGroup", "f:runAsNonRoot")
	status := leaves("f:containerStatuses", "f:hostIP", "f:hostIPs", "f:observedGeneration", "f:phase", "f:podIP",
		"f:podIPs", "f:startTime")
	status["f:conditions"] = conditions
	pod.ManagedFields = []metav1.ManagedFieldsEntry{
		writer("kube-controller-manager", "", at, fieldSet{
			"f:metadata": fieldSet{"f:generateName": fieldSet{}, "f:labels": labels, "f:annotations": annotations},
			"f:spec":     spec,
		}),
		writer("kubelet", "status", at, fieldSet{"f:status": status}),
	}
}

func writer(manager, subresource string, at metav1.Time, what fieldSet) metav1.ManagedFieldsEntry {
	text, err := json.Marshal(what)
	if err != nil {
		panic(err) // maps of maps always have a text
	}
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(text)), Subresource: subresource,
	}
}

// containerFields are those of a container that its creator wrote.
func containerFields(c *corev1.Container) fieldSet {
	probe := leaves(".", "f:failureThreshold", "f:periodSeconds", "f:successThreshold", "f:timeoutSeconds")
	probe["f:httpGet"] = leaves(".", "f:path", "f:port", "f:scheme")
	limits, env, mounts := leaves("."), leaves("."), leaves(".")
	for name := range c.Resources.Limits {
		limits["f:"+string(name)] = fieldSet{}
	}
	for _, e := range c.Env {
		env[key("name", e.Name)] = leaves(".", "f:name", "f:value")
	}
	for _, m := range c.VolumeMounts {
		mounts[key("mountPath", m.MountPath)] = leaves(".", "f:mountPath", "f:name", "f:readOnly")
	}
	f := leaves(".", "f:args", "f:image", "f:imagePullPolicy", "f:name", "f:resizePolicy", "f:terminationMessagePath",
		"f:terminationMessagePolicy")
	f["f:env"], f["f:volumeMounts"], f["f:livenessProbe"], f["f:readinessProbe"] = env, mounts, probe, probe
	f["f:resources"] = fieldSet{".": fieldSet{}, "f:limits": limits, "f:requests": leaves(".", "f:cpu", "f:memory")}
	f["f:securityContext"] = leaves(".", "f:allowPrivilegeEscalation", "f:readOnlyRootFilesystem")
	return f
}

func leaves(names ...string) fieldSet {
	f := fieldSet{}
	for _, name := range names {
		f[name] = fieldSet{}
	}
	return f
}

func key(name, value string) string { return `k:{"` + name + `":"` + value + `"}` }

// AddResizer adds a manager that changed the CPU limit of every limited container.
func AddResizer(pod *corev1.Pod, manager string, at metav1.Time) {
	containers := fieldSet{}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if _, limited := c.Resources.Limits[corev1.ResourceCPU]; limited {
			containers[key("name", c.Name)] = fieldSet{"f:resources": fieldSet{"f:limits": leaves("f:cpu")}}
		}
	}
	pod.ManagedFields = append(pod.ManagedFields,
		writer(manager, "resize", at, fieldSet{"f:spec": fieldSet{"f:containers": containers}}))
}
