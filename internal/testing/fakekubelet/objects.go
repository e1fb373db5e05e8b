package fakekubelet

import (
	"crypto/sha256"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// NodeObject is a node as a cluster of a cloud provider has it: with labels, images and conditions.
// Its kubelet reports it Ready for an hour.
func NodeObject(name string, cores int, now time.Time) *corev1.Node {
	since := metav1.NewTime(now.Add(-time.Hour))
	n := &corev1.Node{}
	n.Name = name
	n.Labels = map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		corev1.LabelInstanceTypeStable: "general-16", corev1.LabelTopologyZone: "zone-a", corev1.LabelTopologyRegion: "region-1",
		"node.example.com/pool": "workers",
	}
	n.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(cores), resource.DecimalSI),
		corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110"),
		corev1.ResourceEphemeralStorage: resource.MustParse("200Gi"),
	}
	n.Status = corev1.NodeStatus{
		Capacity: resources, Allocatable: resources,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: name},
		},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: "f1f2", SystemUUID: "f1f2", BootID: "f1f2", KernelVersion: "6.12.0", OSImage: "Linux",
			OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v1.36.0", ContainerRuntimeVersion: "containerd://2.1.0",
		},
	}
	for _, c := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: c, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficient", Message: "the kubelet has enough of it",
			LastHeartbeatTime: since, LastTransitionTime: since,
		})
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the kubelet posts ready status",
		LastHeartbeatTime: since, LastTransitionTime: since,
	})
	for i := range 30 {
		image := fmt.Sprintf("registry.example.com/team/image-%d", i)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names: []string{digest(image), image + ":1.0"}, SizeBytes: 100 << 20,
		})
	}
	return n
}

// Spec is what distinguishes one pod of a Deployment.
type Spec struct {
	Namespace, Workload, Node string
	Index                     int
	Request, Limit            cpu.Milli // of the container app
	Sidecar                   bool      // a second container without a CPU limit
}

// PodObject is a pod as a Deployment of a production cluster makes it: with probes, volumes,
// variables, tolerations and owner. It has no status yet.
func PodObject(s Spec) *corev1.Pod {
	hash := fmt.Sprintf("%08x", sha256.Sum256([]byte(s.Namespace+s.Workload)))[:10]
	p := &corev1.Pod{}
	p.Namespace, p.Name = s.Namespace, fmt.Sprintf("%s-%s-%05d", s.Workload, hash, s.Index)
	p.GenerateName = s.Workload + "-" + hash + "-"
	p.Labels = map[string]string{
		"app.kubernetes.io/name": s.Workload, "app.kubernetes.io/instance": s.Workload + "-production",
		"app.kubernetes.io/part-of": "shop", "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": s.Workload + "-1.2.3",
		"pod-template-hash": hash, "team": s.Namespace,
	}
	p.Annotations = map[string]string{
		"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z",
		"checksum/config": digest(s.Workload),
	}
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: s.Workload + "-" + hash, UID: types.UID(hash + "-4c1b-4b4e-8b5a-0123456789ab"),
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
	p.Spec = corev1.PodSpec{
		NodeName: s.Node, ServiceAccountName: s.Workload, DeprecatedServiceAccount: s.Workload,
		RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler",
		TerminationGracePeriodSeconds: ptr.To[int64](30), Priority: ptr.To[int32](0), EnableServiceLinks: ptr.To(true),
		PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority),
		SecurityContext:  &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), FSGroup: ptr.To[int64](1000)},
		Tolerations: []corev1.Toleration{
			toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable"),
		},
		Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
				Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
					TopologyKey:   corev1.LabelHostname,
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": s.Workload}},
				},
			}},
		}},
		Volumes: []corev1.Volume{volume("config"), volume("tls"), volume("kube-api-access")},
	}
	p.Spec.Containers = []corev1.Container{container("app", s.Request, s.Limit)}
	if s.Sidecar {
		p.Spec.Containers = append(p.Spec.Containers, container("proxy", 20, 0))
	}
	return p
}

func toleration(key string) corev1.Toleration {
	return corev1.Toleration{
		Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
	}
}

func volume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name + "-of-the-workload"}, DefaultMode: ptr.To[int32](0o644),
		},
	}}
}

// container has limits of CPU (0: none) and memory, probes, variables and mounts.
func container(name string, request, limit cpu.Milli) corev1.Container {
	c := corev1.Container{
		Name: name, Image: "registry.example.com/team/" + name + ":1.2.3", ImagePullPolicy: corev1.PullIfNotPresent,
		Args:                   []string{"--config=/etc/app/config.yaml", "--log-format=json", "--listen=:8080"},
		Ports:                  []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(request), corev1.ResourceMemory: resource.MustParse("256Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
		},
		ResizePolicy: []corev1.ContainerResizePolicy{
			{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired},
			{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.NotRequired},
		},
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true)},
	}
	if limit > 0 {
		c.Resources.Limits[corev1.ResourceCPU] = kube.Quantity(limit)
	}
	for i := range 12 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: fmt.Sprintf("value of setting %d", i)})
	}
	probe := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP}},
		PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
	}
	c.ReadinessProbe, c.LivenessProbe = probe, probe
	for _, mount := range []string{"config", "tls", "kube-api-access"} {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: mount, MountPath: "/etc/app/" + mount, ReadOnly: true})
	}
	return c
}

// Running is the status of the pod, all of whose containers run and are Ready since then.
func Running(pod *corev1.Pod, since metav1.Time) corev1.PodStatus {
	s := corev1.PodStatus{
		Phase: corev1.PodRunning, ObservedGeneration: pod.Generation, StartTime: &since, QOSClass: corev1.PodQOSBurstable,
		HostIP: "192.0.2.1", HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}},
		PodIP: "198.51.100.1", PodIPs: []corev1.PodIP{{IP: "198.51.100.1"}},
	}
	for _, c := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
	} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{
			Type: c, Status: corev1.ConditionTrue, LastTransitionTime: since, ObservedGeneration: pod.Generation,
		})
	}
	for i := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, running(pod, &pod.Spec.Containers[i], since))
	}
	return s
}

func running(pod *corev1.Pod, c *corev1.Container, since metav1.Time) corev1.ContainerStatus {
	resources := c.Resources.DeepCopy()
	status := corev1.ContainerStatus{
		Name: c.Name, Ready: true, Started: ptr.To(true), Image: c.Image, ImageID: digest(c.Image),
		State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}},
		ContainerID: "containerd://" + ContainerID(pod.UID, c.Name),
		Resources:   resources, AllocatedResources: resources.Requests,
		User: &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 1000, GID: 1000, SupplementalGroups: []int64{1000}}},
	}
	for _, m := range c.VolumeMounts {
		status.VolumeMounts = append(status.VolumeMounts, corev1.VolumeMountStatus{
			Name: m.Name, MountPath: m.MountPath, ReadOnly: true, RecursiveReadOnly: ptr.To(corev1.RecursiveReadOnlyDisabled),
		})
	}
	return status
}

// ContainerID is the runtime's ID of a container.
func ContainerID(pod types.UID, container string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(string(pod)+container)))
}

func digest(image string) string {
	return fmt.Sprintf("%s@sha256:%x", image, sha256.Sum256([]byte(image)))
}
