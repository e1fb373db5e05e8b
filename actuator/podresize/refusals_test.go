package podresize_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestRefusals meets each refusal on a real API server: what an object of the cluster, or the pod itself,
// makes of a harmless move.
func TestRefusals(t *testing.T) {
	type test struct {
		pod    []corev1.Container // default: app with request 100m, limit 200m
		change func(*corev1.Pod)  // before it is created
		after  func(*scene)       // once it runs
		to     string             // app's new limit; default 300m
		want   podresize.Outcome
		says   string
	}
	app := apiserver.Container("app", "100m", "200m")
	for reason, tt := range map[string]test{
		"quota without room": {
			after: func(s *scene) { s.quota("250m", "200m") },
			want:  podresize.QuotaExceeded, says: "exceeded quota: budget",
		},
		"quota wants limits of another container": {
			pod:   []corev1.Container{app, apiserver.Container("side", "50m", "")},
			after: func(s *scene) { s.quota("10", "200m") },
			want:  podresize.QuotaNeedsLimits, says: "must specify limits.cpu for: side",
		},
		"quota not computed yet": {
			after: func(s *scene) { s.quota("10", "") },
			want:  podresize.NotYet, says: "status unknown for quota: budget",
		},
		"above a LimitRange's maximum": {
			after: func(s *scene) {
				s.create(limitRange(s.namespace, corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpuList("250m")}))
			},
			want: podresize.LimitRangeRefused, says: "maximum cpu usage per Container is 250m, but limit is 300m",
		},
		"below a LimitRange's minimum": {
			after: func(s *scene) {
				s.create(limitRange(s.namespace, corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: cpuList("190m")}))
			},
			to: "150m", want: podresize.LimitRangeRefused, says: "minimum cpu usage per Container is 190m",
		},
		"above a LimitRange's ratio": {
			after: func(s *scene) {
				s.create(limitRange(s.namespace, corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, MaxLimitRequestRatio: cpuList("2")}))
			},
			want: podresize.LimitRangeRefused, says: "cpu max limit to request ratio per Container is 2, but provided ratio is 3.0",
		},
		"above a LimitRange's maximum of the pod": {
			pod: []corev1.Container{app, apiserver.Container("side", "100m", "200m")},
			after: func(s *scene) {
				s.create(limitRange(s.namespace, corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpuList("450m")}))
			},
			want: podresize.LimitRangeRefused, says: "maximum cpu usage per Pod is 450m, but limit is 500m",
		},
		"another container breaks a LimitRange": {
			pod: []corev1.Container{app, apiserver.Container("side", "100m", "1")},
			after: func(s *scene) {
				s.create(limitRange(s.namespace, corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpuList("500m")}))
			},
			want: podresize.LimitRangeRefused, says: "maximum cpu usage per Container is 500m, but limit is 1",
		},
		"the user has no permission": {
			after: func(s *scene) { s.resize = podresize.New(s.As(s.t, "stranger"), owner) },
			want:  podresize.NotAllowed, says: `User "stranger" cannot patch resource "pods/resize"`,
		},
		"permission on pods is not permission on pods/resize": {
			after: func(s *scene) {
				s.allow("pod-writer", "pods")
				s.resize = podresize.New(s.As(s.t, "pod-writer"), owner)
			},
			want: podresize.NotAllowed, says: `cannot patch resource "pods/resize"`,
		},
		"the kubelet does not report resources": {
			after: func(s *scene) {
				s.kubelet.Answer(s.pod, apiserver.Ignore)
				s.pod.Status.ContainerStatuses[0].Resources = nil
				s.must(s.Client.Status().Update(s.t.Context(), s.pod))
			},
			want: podresize.NodeRefused, says: "Pod running on node without support for resize",
		},
		"a Guaranteed pod would become Burstable": {
			pod:  []corev1.Container{guaranteed()},
			want: podresize.Invalid, says: "Pod QOS Class may not change as a result of resizing",
		},
		"a Burstable pod would become Guaranteed": {
			pod: []corev1.Container{almostGuaranteed()},
			to:  "100m", want: podresize.Invalid, says: "Pod QOS Class may not change as a result of resizing",
		},
		"below the request": {
			to: "50m", want: podresize.Invalid, says: "must be less than or equal to cpu limit of 50m",
		},
		"static pod": {
			change: func(p *corev1.Pod) {
				p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			},
			want: podresize.Invalid, says: "static pods cannot be resized",
		},
		"Windows pod": {
			change: func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} },
			want:   podresize.Invalid, says: "windows pods cannot be resized",
		},
		"changed since it was read": {
			after: func(s *scene) {
				p := s.stored()
				p.Labels = map[string]string{"touched": "yes"}
				s.must(s.Client.Update(s.t.Context(), p))
			},
			want: podresize.Conflict, says: "the object has been modified",
		},
		"another pod of the name": {
			after: func(s *scene) {
				s.remove()
				s.kubelet.Run(s.t, apiserver.Pod(s.namespace, s.pod.Name, app))
			},
			want: podresize.Conflict, says: "the object has been modified",
		},
	} {
		t.Run(reason, func(t *testing.T) {
			if len(tt.pod) == 0 {
				tt.pod = []corev1.Container{app}
			}
			pod := apiserver.Pod("", "web", tt.pod...)
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
			s.refuses(s.move("app", milli(tt.to)), tt.want, tt.says)
		})
	}
}

// TestGone: there is no pod to compare with afterwards.
func TestGone(t *testing.T) {
	s := newScene(t)
	s.remove()
	s.expect("Apply", s.resize.Apply(t.Context(), s.pod, s.move("app", 300)), podresize.PodGone, `pods "web" not found`)
}

// TestReplaced: the uid in the patch alone stops a move for another pod of the name, if ever the two have
// the same resourceVersion.
func TestReplaced(t *testing.T) {
	s := newScene(t)
	old := s.pod
	s.remove()
	s.pod = s.kubelet.Run(t, apiserver.Pod(s.namespace, old.Name, apiserver.Container("app", "100m", "200m")))
	lookalike := s.pod.DeepCopy()
	lookalike.UID = old.UID
	got := s.resize.Apply(t.Context(), lookalike, actuator.Move{UID: string(old.UID), Changes: []actuator.Change{{Container: "app", From: 200, To: 300}}})
	s.expect("Apply", got, podresize.Replaced, "field is immutable")
	got = s.resize.Apply(t.Context(), s.pod, actuator.Move{UID: string(old.UID), Changes: []actuator.Change{{Container: "app", From: 200, To: 300}}})
	s.expect("Apply of a move for the old pod", got, podresize.Replaced, string(old.UID))
}

func guaranteed() corev1.Container {
	c := apiserver.Container("app", "100m", "100m")
	c.Resources.Requests[corev1.ResourceMemory] = memory
	c.Resources.Limits[corev1.ResourceMemory] = memory
	return c
}

func almostGuaranteed() corev1.Container {
	c := guaranteed()
	c.Resources.Limits[corev1.ResourceCPU] = cpuList("200m")[corev1.ResourceCPU]
	return c
}

// allow gives the user of the role's name all verbs on the resources in the scene's namespace.
func (s *scene) allow(user string, resources ...string) {
	s.t.Helper()
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: user}
	s.create(&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: resources, Verbs: []string{"*"}}}})
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
}

func (s *scene) node() *corev1.Node {
	s.t.Helper()
	n := &corev1.Node{}
	s.must(s.Client.Get(s.t.Context(), client.ObjectKey{Name: s.kubelet.Node}, n))
	return n
}

func (s *scene) changeNode(change func(*corev1.Node)) {
	s.t.Helper()
	n := s.node()
	change(n)
	s.must(s.Client.Status().Update(s.t.Context(), n))
}

// remove deletes the scene's pod at once.
func (s *scene) remove() {
	s.t.Helper()
	s.must(s.Client.Delete(s.t.Context(), s.pod.DeepCopy(), client.GracePeriodSeconds(0)))
}
