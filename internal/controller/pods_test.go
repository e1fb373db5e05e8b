package controller

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// shape is one kind of pod, as the eligibility table of docs/kubernetes.md names it.
type shape struct {
	name       string
	containers []corev1.Container // nil: app with a limit of 500m
	change     func(*corev1.Pod)
	starting   bool                    // its containers do not run yet
	after      func(*rig, *corev1.Pod) // once it runs
	// out is why the market leaves it alone; "" where it takes part.
	out reasons.Reason
	// refused says that the API server itself refuses to change its limit, which is why.
	refused bool
	// want is what may become of its limits when each of its declared ones is doubled.
	want []v1alpha1.ContainerLimit // nil: app with 1000m
}

func limited(name string, limit cpu.Milli) v1alpha1.ContainerLimit {
	return v1alpha1.ContainerLimit{Name: name, CPULimit: limit}
}

var shapes = []shape{
	{name: "several containers", containers: []corev1.Container{apiserver.Container("app", "100m", "500m"), apiserver.Container("log", "50m", "200m")}, want: []v1alpha1.ContainerLimit{app(1000), limited("log", 400)}},
	{name: "a container without a limit beside limited ones", containers: []corev1.Container{apiserver.Container("app", "100m", "500m"), apiserver.Container("side", "", "")}},
	{name: "a native sidecar", want: []v1alpha1.ContainerLimit{app(1000), limited("proxy", 400)},
		change: func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{apiserver.Sidecar("proxy", "50m", "200m")}
		}},
	{name: "an init container that has finished",
		change: func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{apiserver.Container("migrate", "1", "2")}
		}},
	{name: "not starting yet, or a container cannot start, such as for want of an image, or an init container has failed",
		out: reasons.NotRunning, starting: true,
		change: func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{apiserver.Container("migrate", "1", "2")}
		}},
	{name: "an ephemeral container",
		after: func(r *rig, p *corev1.Pod) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "debug", Image: "registry.invalid/debug", TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullAlways,
			}}}
			r.must(r.Client.SubResource("ephemeralcontainers").Update(r.Context(), p))
		}},
	{name: "with resizePolicy RestartContainer for cpu", out: reasons.ResizeRestarts,
		change: func(p *corev1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
		}},
	{name: "resizePolicy RestartContainer for memory",
		change: func(p *corev1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
		}},
	{name: "with pod-level resources", out: reasons.PodLevelResources, refused: true,
		change: func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("600m")}, Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")},
			}
		}},
	{name: "static", out: reasons.StaticPod, refused: true,
		change: func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash", "kubernetes.io/config.source": "file"}
		}},
	{name: "on Windows", out: reasons.WindowsPod, refused: true,
		change: func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }},
	{name: "with a RuntimeClass", out: reasons.RuntimeClass,
		change: func(p *corev1.Pod) { class := "sandbox"; p.Spec.RuntimeClassName = &class }},
	{name: "Guaranteed", containers: []corev1.Container{guaranteed("500m")}, out: reasons.GuaranteedQoS, refused: true},
	{name: "BestEffort", containers: []corev1.Container{apiserver.Container("app", "", "")}, out: reasons.BestEffortQoS},
	{name: "without a CPU limit", containers: []corev1.Container{apiserver.Container("app", "100m", "")}, out: reasons.NoCPULimit},
	{
		name:       "with CPU limits of 100,000 cores or more, or with more than 64 containers that have one",
		containers: []corev1.Container{apiserver.Container("app", "100m", "100k")}, out: reasons.PodTooLarge,
	},
	{name: "request and limit equal, but Burstable", containers: []corev1.Container{apiserver.Container("app", "500m", "500m")}},
	{name: "no CPU request", containers: []corev1.Container{memoryOnly()}}, // it gets a request as high as its limit
	{name: "a limit written as 0.5", containers: []corev1.Container{apiserver.Container("app", "0.1", "0.5")}},
	{name: "a limit written as 0.5e0", containers: []corev1.Container{apiserver.Container("app", "100m", "0.5e0")}},
	{name: "a limit above the node, written as 1e3", containers: []corev1.Container{apiserver.Container("app", "100m", "1e3")}, want: []v1alpha1.ContainerLimit{app(4000)}},
	{name: "a limit that is not a multiple of 10m", containers: []corev1.Container{apiserver.Container("app", "33m", "123m")}, want: []v1alpha1.ContainerLimit{app(246)}},
	{name: "a limit below 10m, the kernel's lowest quota", containers: []corev1.Container{apiserver.Container("app", "1m", "4m")}, want: []v1alpha1.ContainerLimit{app(20)}},
	{name: "with `mbcas.io/managed=false`", out: reasons.OptedOut,
		change: func(p *corev1.Pod) { p.Labels = map[string]string{kube.ManagedKey: "false"} }},
	{name: "with an mbcas.io annotation that cannot be parsed", out: reasons.InvalidAnnotation,
		change: func(p *corev1.Pod) { p.Annotations = map[string]string{kube.MaxCPUKey: "lots"} }},
	{name: "on a kubelet that cannot resize", out: reasons.NodeCannotResize, refused: true,
		after: func(r *rig, p *corev1.Pod) {
			r.kubelet.Answer(p, apiserver.Ignore)
			p.Status.ContainerStatuses[0].Resources = nil
			r.must(r.Client.Status().Update(r.Context(), p))
		}},
}

func guaranteed(amount string) corev1.Container {
	c := apiserver.Container("app", amount, amount)
	c.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("64Mi")
	c.Resources.Requests[corev1.ResourceMemory] = resource.MustParse("64Mi")
	return c
}

func memoryOnly() corev1.Container {
	c := apiserver.Container("app", "", "500m")
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	return c
}

// TestPodsAsTheyAre runs pods of every shape: one that takes part follows, with nothing changed but the limits; one that does not is left
// alone with its reason; where it is the API server that refuses, it is asked.
func TestPodsAsTheyAre(t *testing.T) {
	r := newRig(t)
	sandbox := &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "sandbox"}, Handler: "sandbox",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
	}
	r.CreateUntilEnd(t, sandbox)
	r.start()
	page, err := os.ReadFile("../../docs/kubernetes.md")
	r.must(err)
	seen := map[reasons.Reason]bool{}
	for i, s := range shapes {
		seen[s.out] = true
		t.Run(s.name, func(t *testing.T) {
			row := "\n| " + s.name + " |"
			if s.out != "" {
				row += " `" + string(s.out) + "` |\n"
			}
			if strings.Count(string(page), row) != 1 {
				t.Errorf("docs/kubernetes.md: want one row that begins with %q", strings.TrimSpace(row))
			}
			if s.containers == nil {
				s.containers = []corev1.Container{apiserver.Container("app", "100m", "500m")}
			}
			if s.want == nil {
				s.want = []v1alpha1.ContainerLimit{app(1000)}
			}
			r := r.in(t)
			pod := apiserver.Pod(r.namespace, "pod-"+string(rune('a'+i)), s.containers...)
			if s.change != nil {
				s.change(pod)
			}
			early := s.after != nil && s.out != "" // not to be looked at before it is what it is to be
			if early {
				pod.Labels = map[string]string{kube.ManagedKey: "false"}
			}
			if s.starting {
				pod.Spec.NodeName = "without-kubelet"
				r.must(r.Client.Create(t.Context(), pod))
			} else {
				pod = r.kubelet.Run(t, pod)
			}
			if s.after != nil {
				s.after(r, pod)
			}
			if early {
				r.label(pod, "true")
				pod.Labels = nil
			}
			if s.out == "" {
				s.follows(r, pod)
			} else {
				s.staysOut(r, pod)
			}
		})
	}
	for _, reason := range eligibility.Exclusions() {
		switch reason {
		case reasons.SystemNamespace, reasons.NamespaceOff, reasons.ManagedByVPA: // of no shape: TestEveryExclusion (internal/eligibility)
		default:
			if !seen[reason] {
				t.Errorf("no shape of a pod is out for %s", reason)
			}
		}
	}
}

func (s shape) follows(r *rig, pod *corev1.Pod) {
	r.Helper()
	before := r.read(pod)
	pa := r.allocation(pod, "made", recorded)
	want := kube.Limits(pod)
	var total cpu.Milli
	for i := range want {
		want[i].CPULimit = max(10, 2*want[i].CPULimit)
		total += want[i].CPULimit
	}
	r.decideUpTo(pod, total, want...)
	r.until("limits follow", func() (bool, any) {
		got := kube.Limits(r.read(pod))
		return kube.SameLimits(got, s.want), got
	})
	r.allocation(pod, "applied", stands(v1alpha1.PhaseApplied, reasons.Settled))
	after := r.read(pod)
	if diff := cmp.Diff(withoutResize(before), withoutResize(after)); diff != "" {
		r.Errorf("more has changed than CPU limits:\n%s", diff)
	}
	if !kube.SameLimits(pa.Status.DeclaredLimits, kube.Limits(before)) {
		r.Errorf("declared %v, want %v", pa.Status.DeclaredLimits, kube.Limits(before))
	}
}

// decideUpTo publishes a decision with a ceiling as high as its limit.
func (r *rig) decideUpTo(pod *corev1.Pod, ceiling cpu.Milli, limits ...v1alpha1.ContainerLimit) {
	r.Helper()
	r.decide(pod, v1alpha1.Decision{Budget: 100, Floor: 10, Ceiling: ceiling, BoundBy: v1alpha1.BoundByNothing}, limits...)
}

func (s shape) staysOut(r *rig, pod *corev1.Pod) {
	r.Helper()
	if why, ok := eligibility.Eligible(eligibility.Pod{Pod: pod, Mode: kube.ModeEnforce, System: r.config.Namespace}); ok || why != s.out {
		r.Errorf("out for %q (in: %v), want %q", why, ok, s.out)
	}
	if s.refused {
		move := actuator.Move{UID: string(pod.UID), Changes: []actuator.Change{{Container: "app", From: 500, To: 1000}}}
		if got := podresize.New(r.Client, "another-client").Apply(r.Context(), pod, move); got.Outcome == podresize.Accepted {
			r.Error("the API server resizes it")
		}
	}
	// A pod made after it gets its allocation, so this one would have one by then.
	marker := r.pod("after-"+pod.Name, "100m", "500m")
	r.allocation(marker, "made", recorded)
	if pa := r.stored(pod); pa != nil {
		r.Errorf("it has an allocation: %+v", pa.Status)
	}
}
