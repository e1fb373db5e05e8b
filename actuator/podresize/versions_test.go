package podresize_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// word is what API servers say to a resize from a minor version on, until the next word.
type word struct {
	since int
	want  podresize.Outcome
	says  string
}

// TestVersions: where API servers of different versions say different things to the same move, what each of them says.
// docs/versions.md has the same table.
func TestVersions(t *testing.T) {
	app := apiserver.Container("app", "100m", "200m")
	setup := corev1.Container{Name: "setup", Image: app.Image} // no resources; it has finished
	defaults := func(s *scene) {
		s.create(limitRange(s.namespace, corev1.LimitRangeItem{
			Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceMemory: memory},
		}))
	}
	podLimit := func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpuList("150m"), Limits: cpuList("400m")}
	}
	page, err := os.ReadFile("../../docs/versions.md")
	if err != nil {
		t.Fatal(err)
	}
	for reason, tt := range map[string]struct {
		change func(*corev1.Pod) // before it is created
		after  func(*scene)      // once it runs
		to     string            // app's new limit; default 300m
		words  []word
	}{
		// The admission plugin PodResizeValidator is of 1.36. Before, the kubelet alone knows.
		"the node is smaller than the requests": {
			after: func(s *scene) {
				s.changeNode(func(n *corev1.Node) { n.Status.Allocatable = cpuList("50m") })
			},
			words: []word{
				{35, podresize.Accepted, ""},
				{36, podresize.NodeRefused, "node didn't have enough allocatable resources"},
			},
		},
		"the node is not Linux": {
			after: func(s *scene) {
				n := s.node()
				n.Labels[corev1.LabelOSStable] = "windows"
				s.must(s.Client.Update(s.t.Context(), n))
			},
			words: []word{
				{35, podresize.Accepted, ""},
				{36, podresize.NodeRefused, "only supported on linux nodes"},
			},
		},
		"the node is gone": {
			after: func(s *scene) { s.must(s.Client.Delete(s.t.Context(), s.node())) },
			words: []word{
				{35, podresize.Accepted, ""},
				{36, podresize.NodeRefused, "not found"},
			},
		},
		// InPlacePodLevelResourcesVerticalScaling is on from 1.36.
		"pod-level resources": {
			change: podLimit,
			words: []word{
				{35, podresize.Invalid, "resize of pods with pod-level resources is forbidden"},
				{36, podresize.Accepted, ""},
			},
		},
		"pod-level resources, and a limit above them": {
			change: podLimit, to: "500m",
			words: []word{
				{35, podresize.Invalid, "resize of pods with pod-level resources is forbidden"},
				{36, podresize.Invalid, "must be less than or equal to pod limits of 400m"},
			},
		},
		// Up to 1.36 the comparison of old and new containers loses the claims.
		"a container with a resource claim": {
			change: func(p *corev1.Pod) {
				claim := "gpu"
				p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
				p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
			},
			words: []word{
				{35, podresize.Invalid, "only cpu and memory resources are mutable"},
				{37, podresize.Accepted, ""},
			},
		},
		// InPlacePodVerticalScalingInitContainers is on from 1.36, where the node declares it.
		"a LimitRange gives a finished init container limits": {
			change: func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{setup} },
			after:  defaults,
			words: []word{
				{35, podresize.Invalid, "resources for non-sidecar init containers are immutable"},
				{36, podresize.NodeRefused, "requires features InPlacePodVerticalScalingInitContainers which are not available"},
			},
		},
		"the same on a node that can resize init containers": {
			change: func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{setup} },
			after: func(s *scene) {
				s.changeNode(func(n *corev1.Node) { n.Status.DeclaredFeatures = []string{"InPlacePodVerticalScalingInitContainers"} })
				defaults(s)
			},
			words: []word{
				{35, podresize.Invalid, "resources for non-sidecar init containers are immutable"},
				{36, podresize.WouldMutate, "setup limits memory=64Mi is added"},
			},
		},
	} {
		t.Run(reason, func(t *testing.T) {
			if !strings.Contains(string(page), "\n| "+reason+" | ") {
				t.Errorf("docs/versions.md has no row for it")
			}
			pod := apiserver.Pod("", "web", *app.DeepCopy())
			if tt.change != nil {
				tt.change(pod)
			}
			s := newSceneOf(t, pod)
			if tt.after != nil {
				tt.after(s)
			}
			if tt.to == "" {
				tt.to = "300m"
			}
			m, w := s.move("app", milli(tt.to)), said(t, s.Minor(t), tt.words)
			switch w.want {
			case podresize.Accepted:
				s.expect("Apply", s.resize.Apply(t.Context(), s.pod, m), w.want, w.says)
			case podresize.WouldMutate:
				s.expect("DryRun", s.untilDryRun(m, w.want), w.want, w.says)
			default:
				s.refuses(m, w.want, w.says)
			}
		})
	}
}

// said is the word of that version.
func said(t *testing.T, minor int, words []word) word {
	t.Helper()
	if minor < words[0].since {
		t.Fatalf("no expectation for Kubernetes 1.%d", minor)
	}
	w := words[0]
	for _, next := range words[1:] {
		if next.since <= minor {
			w = next
		}
	}
	return w
}
