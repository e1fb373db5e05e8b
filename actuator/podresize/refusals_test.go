package podresize_test

import (
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// resizeTest is a harmless move, and what the cluster or the pod itself makes of it.
type resizeTest struct {
	pod    []corev1.Container // default: app with request 100m, limit 200m
	change func(*corev1.Pod)  // before it is created
	after  func(*fixture)     // once it runs
	to     string             // app's new limit; default 300m
	want   podresize.Outcome
	says   string
}

func (tt resizeTest) run(t *testing.T) {
	t.Helper()
	if len(tt.pod) == 0 {
		tt.pod = []corev1.Container{apiserver.Container("app", "100m", "200m")}
	}
	pod := apiserver.Pod("", "web", tt.pod...)
	if tt.change != nil {
		tt.change(pod)
	}
	s := newFixtureOf(t, pod)
	if tt.after != nil {
		tt.after(s)
	}
	if tt.to == "" {
		tt.to = "300m"
	}
	m := s.move("app", milli(tt.to))
	switch tt.want {
	case podresize.Accepted:
		expect(s.t, "Apply", s.resize.Apply(t.Context(), s.pod, m), tt.want, tt.says)
	case podresize.WouldMutate:
		got := s.untilDryRun(m, tt.want)
		expect(s.t, "DryRun", got, tt.want, tt.says)
		if p := s.stored(); got.Pod != nil || p.Generation != s.pod.Generation {
			t.Errorf("the dry run changed the pod, or returns one that is not stored: %+v", got.Pod)
		}
	default:
		s.refuses(m, tt.want, tt.says)
	}
}

// side is the default container beside another one.
func side(request, limit string) []corev1.Container {
	return []corev1.Container{apiserver.Container("app", "100m", "200m"), apiserver.Container("side", request, limit)}
}

// guaranteed is a container of a Guaranteed pod, or nearly so where the limit is above 100m.
func guaranteed(limit string) []corev1.Container {
	c := apiserver.Container("app", "100m", limit)
	c.Resources.Requests[corev1.ResourceMemory], c.Resources.Limits[corev1.ResourceMemory] = memory, memory
	return []corev1.Container{c}
}

// limitRange makes one of that item, by default for containers.
func limitRange(item corev1.LimitRangeItem) func(*fixture) {
	if item.Type == "" {
		item.Type = corev1.LimitTypeContainer
	}
	return func(s *fixture) {
		lr := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "bounds"}}
		lr.Spec.Limits = []corev1.LimitRangeItem{item}
		s.create(lr)
	}
}

func quota(hard, used string) func(*fixture) { return func(s *fixture) { s.quota(hard, used) } }

func replaceCPU(kind, value string) func(*fixture) {
	return func(s *fixture) {
		path := "/spec/containers/0/resources/" + kind + "/cpu"
		s.MutateResizes(s.t, s.namespace, apiserver.Change{Op: "replace", Path: path, Value: value})
	}
}

// refusal is what the policies and webhooks of the tests say.
const refusal = "not today"

func policy(reason metav1.StatusReason) func(*fixture) { return func(s *fixture) { s.policy(reason) } }

func denial(status metav1.Status) func(*fixture) {
	status.Message += refusal
	return func(s *fixture) { s.webhook(apiserver.Review(admissionv1.AdmissionResponse{Result: &status})) }
}

// TestRefusals meets each refusal on a real API server.
func TestRefusals(t *testing.T) {
	const qos = "Pod QOS Class may not change as a result of resizing"
	for reason, tt := range map[string]resizeTest{
		"quota without room": {
			after: quota("250m", "200m"), want: podresize.QuotaExceeded, says: "exceeded quota: budget",
		},
		"quota wants limits of another container": {
			pod: side("50m", ""), after: quota("10", "200m"),
			want: podresize.QuotaNeedsLimits, says: "must specify limits.cpu for: side",
		},
		"quota not computed yet": {after: quota("10", ""), want: podresize.NotYet, says: "status unknown for quota: budget"},
		"above a LimitRange's maximum": {
			after: limitRange(corev1.LimitRangeItem{Max: cpuList("250m")}),
			want:  podresize.LimitRangeRefused, says: "maximum cpu usage per Container is 250m, but limit is 300m",
		},
		"below a LimitRange's minimum": {
			after: limitRange(corev1.LimitRangeItem{Min: cpuList("190m")}), to: "150m",
			want: podresize.LimitRangeRefused, says: "minimum cpu usage per Container is 190m",
		},
		"above a LimitRange's ratio": {
			after: limitRange(corev1.LimitRangeItem{MaxLimitRequestRatio: cpuList("2")}), want: podresize.LimitRangeRefused,
			says: "cpu max limit to request ratio per Container is 2, but provided ratio is 3.0",
		},
		"above a LimitRange's maximum of the pod": {
			pod: side("100m", "200m"), after: limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpuList("450m")}),
			want: podresize.LimitRangeRefused, says: "maximum cpu usage per Pod is 450m, but limit is 500m",
		},
		"another container breaks a LimitRange": {
			pod: side("100m", "1"), after: limitRange(corev1.LimitRangeItem{Max: cpuList("500m")}),
			want: podresize.LimitRangeRefused, says: "maximum cpu usage per Container is 500m, but limit is 1",
		},
		"the user has no permission": {
			after: func(s *fixture) { s.resize = podresize.New(s.As(s.t, "stranger"), owner) },
			want:  podresize.NotAllowed, says: `User "stranger" cannot patch resource "pods/resize"`,
		},
		"permission on pods is not permission on pods/resize": {
			after: func(s *fixture) {
				s.allow("pod-writer", "pods")
				s.resize = podresize.New(s.As(s.t, "pod-writer"), owner)
			},
			want: podresize.NotAllowed, says: `cannot patch resource "pods/resize"`,
		},
		"the kubelet does not report resources": {
			after: func(s *fixture) {
				s.kubelet.Answer(s.pod, apiserver.Ignore)
				s.pod.Status.ContainerStatuses[0].Resources = nil
				must.Succeed(s.t, s.Client.Status().Update(s.t.Context(), s.pod))
			},
			want: podresize.NodeRefused, says: "Pod running on node without support for resize",
		},
		"a Guaranteed pod would become Burstable": {pod: guaranteed("100m"), want: podresize.Invalid, says: qos},
		"a Burstable pod would become Guaranteed": {pod: guaranteed("200m"), to: "100m", want: podresize.Invalid, says: qos},
		"below the request": {
			to: "50m", want: podresize.Invalid, says: "must be less than or equal to cpu limit of 50m",
		},
		"static pod": {
			change: func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} },
			want:   podresize.Invalid, says: "static pods cannot be resized",
		},
		"Windows pod": {
			change: func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} },
			want:   podresize.Invalid, says: "windows pods cannot be resized",
		},
		"changed since it was read": {
			after: func(s *fixture) {
				p := s.stored()
				p.Labels = map[string]string{"touched": "yes"}
				must.Succeed(s.t, s.Client.Update(s.t.Context(), p))
			},
			want: podresize.Conflict, says: "the object has been modified",
		},
		"another pod of the name": {
			after: func(s *fixture) { s.replace() }, want: podresize.Conflict, says: "the object has been modified",
		},
		"a webhook that is down": { // no refusal, and nothing was changed
			after: func(s *fixture) { s.webhook(hangUp) }, want: podresize.Unavailable, says: "failed calling webhook",
		},
	} {
		t.Run(reason, tt.run)
	}
	// Policies and webhooks choose their own code. TestClassify has more of them.
	for name, after := range map[string]func(*fixture){
		"a policy":                    policy(""),
		"a policy with another code":  policy(metav1.StatusReasonRequestEntityTooLarge),
		"a webhook":                   denial(metav1.Status{}),
		"a webhook, not found":        denial(metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound}),
		"a webhook, words of a quota": denial(metav1.Status{Code: 403, Message: "exceeded quota: of what is allowed, "}),
	} {
		t.Run(name, resizeTest{after: after, want: podresize.PolicyRefused, says: refusal}.run)
	}
}

// TestWouldMutate: DryRun finds out that admission would change more than was asked for.
func TestWouldMutate(t *testing.T) {
	memoryList := corev1.ResourceList{corev1.ResourceMemory: memory}
	for says, after := range map[string]func(*fixture){
		"side limits memory=64Mi is added":     limitRange(corev1.LimitRangeItem{Default: memoryList}),
		"app requests memory=64Mi is added":    limitRange(corev1.LimitRangeItem{Max: memoryList}),
		"app limits cpu=250m instead of 300m":  replaceCPU("limits", "250m"),
		"app requests cpu=50m instead of 100m": replaceCPU("requests", "50m"),
	} {
		t.Run(says, resizeTest{pod: side("50m", ""), after: after, want: podresize.WouldMutate, says: says}.run)
	}
}

// answer is the outcome from a minor version of Kubernetes on, until the next one.
type answer struct {
	since int
	want  podresize.Outcome
	says  string
}

// TestVersions: where API servers of different versions answer the same move differently, each of their answers.
// docs/versions.md has the same table.
func TestVersions(t *testing.T) {
	// It has no resources, and has finished.
	setup := func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{apiserver.Container("setup", "", "")} }
	defaults := limitRange(corev1.LimitRangeItem{Default: corev1.ResourceList{corev1.ResourceMemory: memory}})
	podLimit := func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpuList("150m"), Limits: cpuList("400m")}
	}
	const (
		podLevel = "resize of pods with pod-level resources is forbidden"
		init     = "resources for non-sidecar init containers are immutable"
	)
	page, err := os.ReadFile("../../docs/versions.md")
	if err != nil {
		t.Fatal(err)
	}
	for reason, tt := range map[string]struct {
		resizeTest
		answers []answer
	}{
		// The admission plugin PodResizeValidator is of 1.36. Before, the kubelet alone knows.
		"the node is smaller than the requests": {
			resizeTest{after: func(s *fixture) {
				n := s.node()
				n.Status.Allocatable = cpuList("50m")
				must.Succeed(s.t, s.Client.Status().Update(s.t.Context(), n))
			}},
			[]answer{
				{35, podresize.Accepted, ""}, {36, podresize.NodeRefused, "node didn't have enough allocatable resources"},
			},
		},
		"the node is not Linux": {
			resizeTest{after: func(s *fixture) {
				n := s.node()
				n.Labels[corev1.LabelOSStable] = "windows"
				must.Succeed(s.t, s.Client.Update(s.t.Context(), n))
			}},
			[]answer{{35, podresize.Accepted, ""}, {36, podresize.NodeRefused, "only supported on linux nodes"}},
		},
		"the node is gone": {
			resizeTest{after: func(s *fixture) { must.Succeed(s.t, s.Client.Delete(s.t.Context(), s.node())) }},
			[]answer{{35, podresize.Accepted, ""}, {36, podresize.NodeRefused, "not found"}},
		},
		// InPlacePodLevelResourcesVerticalScaling is on from 1.36.
		"pod-level resources": {
			resizeTest{change: podLimit}, []answer{{35, podresize.Invalid, podLevel}, {36, podresize.Accepted, ""}},
		},
		"pod-level resources, and a limit above them": {
			resizeTest{change: podLimit, to: "500m"},
			[]answer{
				{35, podresize.Invalid, podLevel}, {36, podresize.Invalid, "must be less than or equal to pod limits of 400m"},
			},
		},
		// Up to 1.36 the comparison of old and new containers loses the claims.
		"a container with a resource claim": {
			resizeTest{change: func(p *corev1.Pod) {
				claim := "gpu"
				p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
				p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
			}},
			[]answer{
				{35, podresize.Invalid, "only cpu and memory resources are mutable"}, {37, podresize.Accepted, ""},
			},
		},
		// InPlacePodVerticalScalingInitContainers is on from 1.36, where the node declares it.
		"a LimitRange gives a finished init container limits": {
			resizeTest{change: setup, after: defaults},
			[]answer{
				{35, podresize.Invalid, init},
				{36, podresize.NodeRefused, "requires features InPlacePodVerticalScalingInitContainers which are not available"},
			},
		},
		"the same on a node that can resize init containers": {
			resizeTest{change: setup, after: func(s *fixture) {
				n := s.node()
				n.Status.DeclaredFeatures = []string{"InPlacePodVerticalScalingInitContainers"}
				must.Succeed(s.t, s.Client.Status().Update(s.t.Context(), n))
				defaults(s)
			}},
			[]answer{{35, podresize.Invalid, init}, {36, podresize.WouldMutate, "setup limits memory=64Mi is added"}},
		},
	} {
		t.Run(reason, func(t *testing.T) {
			if !strings.Contains(string(page), "\n| "+reason+" | ") {
				t.Errorf("docs/versions.md has no row for it")
			}
			minor := apiserver.Start(t).Minor(t)
			if minor < tt.answers[0].since {
				t.Fatalf("no expectation for Kubernetes 1.%d", minor)
			}
			for _, a := range tt.answers {
				if a.since <= minor {
					tt.want, tt.says = a.want, a.says
				}
			}
			tt.run(t)
		})
	}
}

// TestReplaced: while there is no pod of the name, the pod is gone. Once there is, the uid in the patch alone stops a
// move for the pod before, if ever the two have the same resourceVersion.
func TestReplaced(t *testing.T) {
	s := newFixture(t)
	s.remove()
	expect(s.t, "Apply", s.resize.Apply(t.Context(), s.pod, s.move("app", 300)), podresize.PodGone, `pods "web" not found`)
	uid := s.pod.UID
	s.pod = s.replace()
	lookalike := s.pod.DeepCopy()
	lookalike.UID = uid
	move := actuator.Move{UID: string(uid), Changes: []actuator.Change{{Container: "app", From: 200, To: 300}}}
	expect(s.t, "Apply", s.resize.Apply(t.Context(), lookalike, move), podresize.Replaced, "field is immutable")
	got := s.resize.Apply(t.Context(), s.pod, move)
	expect(s.t, "Apply of a move for the old pod", got, podresize.Replaced, string(uid))
}

// TestMutated: an Apply that admission changes on the way is not Accepted, and returns what was stored. What the webhook
// changes beside resources does not get through a resize.
func TestMutated(t *testing.T) {
	s := newFixture(t)
	s.MutateResizes(t, s.namespace,
		apiserver.Change{Op: "replace", Path: "/spec/containers/0/resources/limits/cpu", Value: "250m"},
		apiserver.Change{Op: "add", Path: "/metadata/annotations", Value: map[string]string{"touched": "yes"}},
		apiserver.Change{Op: "replace", Path: "/spec/containers/0/image", Value: "other"},
	)
	s.untilDryRun(s.move("app", 300), podresize.WouldMutate)
	got := s.resize.Apply(t.Context(), s.pod, s.move("app", 300))
	expect(s.t, "Apply", got, podresize.WouldMutate, "requested CPU limits: app limits cpu=250m instead of 300m")
	stored := s.stored()
	if got.Pod == nil || got.Pod.Generation != stored.Generation || !sameSpec(got.Pod, stored) {
		t.Errorf("the returned pod is not the stored one: %+v", got.Pod)
	}
	if stored.Annotations["touched"] != "" || stored.Spec.Containers[0].Image != s.pod.Spec.Containers[0].Image {
		t.Errorf("a resize let a webhook change more than resources: %+v", stored)
	}
}
