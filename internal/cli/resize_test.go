package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/forward"
	"github.com/mbcas/mbcas/internal/cli/resize"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// access is one to a real API server, in the namespace.
func access(t *testing.T, s *apiserver.Server, namespace string) *user {
	t.Helper()
	c, err := client.New(s.Config, client.Options{Scheme: scheme})
	must.Succeed(t, err)
	k, err := kubernetes.NewForConfig(s.Config)
	must.Succeed(t, err)
	return &user{cluster.Access{Client: c, Discovery: k.Discovery(), Namespace: namespace, System: kube.SystemNamespace, Now: time.Now}}
}

// node is a node of the real API server whose kubelet follows resizes, and access to a namespace.
func node(t *testing.T, name string) (*apiserver.Kubelet, *user) {
	t.Helper()
	s := apiserver.Start(t)
	return s.Kubelet(t, name), access(t, s, s.Namespace(t))
}

func limit(name string, m cpu.Milli) v1alpha1.ContainerLimit {
	return v1alpha1.ContainerLimit{Name: name, CPULimit: m}
}

// recordDeclared stores an allocation for the pod with the given declared limits.
func recordDeclared(t *testing.T, c client.Client, pod *corev1.Pod, declared ...v1alpha1.ContainerLimit) {
	t.Helper()
	pa := allocation.New(pod)
	must.Succeed(t, c.Create(t.Context(), pa))
	pa.Status.Phase, pa.Status.Reason, pa.Status.DeclaredLimits = v1alpha1.PhaseApplied, "Settled", declared
	must.Succeed(t, c.Status().Update(t.Context(), pa))
}

func reload(t *testing.T, c client.Client, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	var p corev1.Pod
	must.Succeed(t, c.Get(t.Context(), client.ObjectKeyFromObject(pod), &p))
	return &p
}

var sameQuantity = cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })

// wantLimits compares the stored pod with the spec that it had, but for these CPU limits.
func wantLimits(t *testing.T, a *user, before *corev1.Pod, limits map[string]cpu.Milli) {
	t.Helper()
	got := reload(t, a.Client, before)
	if diff := cmp.Diff(kube.WithLimits(before, limits).Spec, got.Spec, sameQuantity); diff != "" {
		t.Errorf("spec of pod %s (-want +got):\n%s", got.Name, diff)
	}
}

// TestTouchesLimitsOnly: a resize changes the requested limit of one container only, and waits until it
// is in force.
func TestTouchesLimitsOnly(t *testing.T) {
	k, a := node(t, "cli-touches")
	pod := apiserver.Pod(a.Namespace, "web", apiserver.Container("app", "100m", "300m"), apiserver.Container("proxy", "50m", "100m"), apiserver.Container("free", "10m", ""))
	pod.Spec.InitContainers = []corev1.Container{apiserver.Sidecar("mesh", "20m", "80m")}
	pod.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("64Mi")
	before := k.Run(t, pod)

	a.prints(t, "resize web -c app --cpu-limit 0.45", "container app 300m -> 450m", "in force after")
	wantLimits(t, a, before, map[string]cpu.Milli{"app": 450})
	if got := kube.Containers(reload(t, a.Client, before))[0].InForce(); got != 450 {
		t.Errorf("in force when the command returned: %v", got)
	}
	a.prints(t, "resize web -c mesh --cpu-limit 120m")
	wantLimits(t, a, before, map[string]cpu.Milli{"app": 450, "mesh": 120})
	for _, m := range reload(t, a.Client, before).ManagedFields {
		if m.Manager == kube.FieldManager {
			t.Errorf("the change is recorded as the controller's: it would not be seen as made by hand")
		}
	}
}

// TestRefusesUnsafe: a resize that passes the checks and that the API server or the kubelet refuses
// fails with the reason.
func TestRefusesUnsafe(t *testing.T) {
	s := apiserver.Start(t)
	k := s.Kubelet(t, "cli-refuses")
	for name, c := range map[string]struct {
		memory string // request and limit
		answer apiserver.Answer
		args   string
		want   string // part of the error
		stays  bool   // nothing is changed
	}{
		"turns Guaranteed": {
			memory: "64Mi", args: "--cpu-limit 100m", want: "Pod QOS Class may not change", stays: true,
		},
		"node never can": {answer: apiserver.Refuse, args: "--cpu-limit 400m", want: "the node never has that much"},
		"never done": {
			answer: apiserver.Stall, args: "--cpu-limit 400m --timeout 700ms", want: "not in force after 700ms",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := access(t, s, s.Namespace(t))
			pod := apiserver.Pod(a.Namespace, "web", apiserver.Container("app", "100m", "200m"))
			if r := pod.Spec.Containers[0].Resources; c.memory != "" {
				r.Requests[corev1.ResourceMemory], r.Limits[corev1.ResourceMemory] = resource.MustParse(c.memory), resource.MustParse(c.memory)
			}
			before := k.Run(t, pod)
			k.Answer(before, c.answer)
			err := a.fails(t, "resize web "+c.args, c.want)
			if c.stays {
				wantLimits(t, a, before, nil)
			} else if err != nil && !strings.Contains(err.Error(), "--cpu-limit 200m --force") {
				t.Errorf("error %q does not say how to take it back", err)
			}
		})
	}
}

// TestRestoreIsExact: a restore sets every recorded limit exactly, and changes nothing else.
func TestRestoreIsExact(t *testing.T) {
	k, a := node(t, "cli-restores")
	moved := k.Run(t, apiserver.Pod(a.Namespace, "moved", apiserver.Container("app", "100m", "300m"), apiserver.Container("proxy", "50m", "200m")))
	recordDeclared(t, a.Client, moved, limit("app", 1234), limit("proxy", 77))
	resizeAs(t, a, moved, kube.FieldManager, map[string]cpu.Milli{"app": 310, "proxy": 210})
	there := k.Run(t, apiserver.Pod(a.Namespace, "there", apiserver.Container("app", "100m", "300m")))
	recordDeclared(t, a.Client, there, limit("app", 300))
	unknown := k.Run(t, apiserver.Pod(a.Namespace, "unknown", apiserver.Container("app", "100m", "300m")))
	lost := k.Run(t, apiserver.Pod(a.Namespace, "lost", apiserver.Container("app", "100m", "300m")))
	ledger(t, a.Client, lost, limit("app", 410))
	resizeAs(t, a, lost, kube.FieldManager, map[string]cpu.Milli{"app": 310})

	a.prints(t, "restore --all", "2 pods restored, 2 at their declared limits or never changed, 0 failed")
	for _, p := range []struct {
		pod    *corev1.Pod
		limits map[string]cpu.Milli
	}{
		{moved, map[string]cpu.Milli{"app": 1234, "proxy": 77}},
		{there, nil}, {unknown, nil},
		{lost, map[string]cpu.Milli{"app": 410}},
	} {
		wantLimits(t, a, p.pod, p.limits)
	}
	a.prints(t, "restore moved", "already has its declared limit of 1311m")
}

// resizeAs changes limits under a name.
func resizeAs(t *testing.T, a *user, pod *corev1.Pod, manager string, to map[string]cpu.Milli) {
	t.Helper()
	now := reload(t, a.Client, pod)
	move := actuator.Move{UID: string(pod.UID)}
	for _, l := range kube.Limits(now) {
		if m, ok := to[l.Name]; ok {
			move.Changes = append(move.Changes, actuator.Change{Container: l.Name, From: l.CPULimit, To: m})
		}
	}
	apiserver.Eventually(t, "the resize is accepted", func() (bool, any) { // the kubelet writes the status meanwhile
		r := podresize.New(a.Client, manager).Apply(t.Context(), reload(t, a.Client, pod), move)
		return r.Outcome == podresize.Accepted, r
	})
}

// TestRestoreKeepsExternalChanges: a limit that another client set after MBCAS stays, also on a pod that
// is opted out, whatever is recorded, and also if it is set during the restore.
func TestRestoreKeepsExternalChanges(t *testing.T) {
	k, a := node(t, "cli-owners")
	pod := apiserver.Pod(a.Namespace, "web", apiserver.Container("app", "100m", "300m"), apiserver.Container("proxy", "50m", "200m"))
	pod.Labels = map[string]string{kube.ManagedKey: "false"}
	web := k.Run(t, pod)
	ledger(t, a.Client, web, limit("app", 300), limit("proxy", 200))
	resizeAs(t, a, web, kube.FieldManager, map[string]cpu.Milli{"app": 900, "proxy": 400})
	resizeAs(t, a, web, "kubectl-edit", map[string]cpu.Milli{"app": 700})

	a.prints(t, "restore --all", "left as it is: another client set app=700m", "1 with limits that another client set, 0 failed")
	wantLimits(t, a, web, map[string]cpu.Milli{"app": 700, "proxy": 200})

	// The owner is faster than the command, which had read the pod before.
	resizeAs(t, a, web, kube.FieldManager, map[string]cpu.Milli{"proxy": 400})
	before := reload(t, a.Client, web)
	declared := []v1alpha1.ContainerLimit{limit("proxy", 200)}
	resizeAs(t, a, web, "kubectl-edit", map[string]cpu.Milli{"proxy": 250})
	var out, errs bytes.Buffer
	again := func(p *corev1.Pod) *actuator.Move { return planRestore(p, declared, "").move }
	err := resize.Apply(t.Context(), &a.Access, Streams{Out: &out, Err: &errs}, resize.Resize{Pod: before, Move: *again(before), Options: resize.Options{Redecide: again}})
	if err == nil || !strings.Contains(err.Error(), "left as they are") {
		t.Errorf("%q, %v", out.String(), err)
	}
	wantLimits(t, a, web, map[string]cpu.Milli{"app": 700, "proxy": 250})
}

// ledger stores the controller's second record of a pod.
func ledger(t *testing.T, c client.Client, pod *corev1.Pod, declared ...v1alpha1.ContainerLimit) {
	t.Helper()
	ns := &corev1.Namespace{}
	ns.Name = kube.SystemNamespace
	if err := c.Create(t.Context(), ns); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	l := restore.NodeLedger{Namespace: kube.SystemNamespace, Node: pod.Name}
	entry := restore.Entry{Namespace: pod.Namespace, Pod: pod.Name, Limits: declared}
	if _, err := l.Write(t.Context(), c, map[types.UID]restore.Entry{pod.UID: entry}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestResizeRetriesOnConflict: a pod that changes during the command is resized from its new limit.
func TestResizeRetriesOnConflict(t *testing.T) {
	k, a := node(t, "cli-insists")
	read := k.Run(t, apiserver.Pod(a.Namespace, "web", apiserver.Container("app", "100m", "300m")))
	a.prints(t, "resize web --cpu-limit 450m")
	move := actuator.Move{UID: string(read.UID), Changes: []actuator.Change{{Container: "app", From: 300, To: 600}}}
	var out, errs bytes.Buffer
	err := resize.Apply(t.Context(), &a.Access, Streams{Out: &out, Err: &errs},
		resize.Resize{Pod: read, Move: move, Options: resize.Options{Wait: true, Timeout: time.Minute}})
	if err != nil || !strings.Contains(out.String(), "450m -> 600m") {
		t.Errorf("%q, %v", out.String(), err)
	}
	wantLimits(t, a, read, map[string]cpu.Milli{"app": 600})
}

// TestDryRunChangesNothing: with --dry-run the API server checks the request, and no object changes.
func TestDryRunChangesNothing(t *testing.T) {
	k, a := node(t, "cli-dry")
	pod := k.Run(t, apiserver.Pod(a.Namespace, "web", apiserver.Container("app", "100m", "700m")))
	recordDeclared(t, a.Client, pod, limit("app", 700))
	resizeAs(t, a, pod, kube.FieldManager, map[string]cpu.Milli{"app": 300})
	apiserver.Eventually(t, "the resize is in force", func() (bool, any) {
		pod = reload(t, a.Client, pod)
		progress, why := resize.Unfinished(pod)
		return progress == actuator.Done, why
	})
	for args, want := range map[string]string{
		"resize web --cpu-limit 450m --dry-run":         "300m -> 450m (dry run",
		"restore web --dry-run":                         "300m -> 700m (dry run",
		"restore --all --dry-run":                       "1 pod would be restored",
		"mode " + a.Namespace + " restore --dry-run":    "-> restore (dry run)",
		"resize web --cpu-limit 400m --force --dry-run": "300m -> 400m (dry run",
	} {
		a.prints(t, args, want)
	}
	if after := reload(t, a.Client, pod); after.ResourceVersion != pod.ResourceVersion {
		t.Errorf("the pod changed: %s -> %s", pod.ResourceVersion, after.ResourceVersion)
	}
	var ns corev1.Namespace
	if err := a.Client.Get(t.Context(), client.ObjectKey{Name: a.Namespace}, &ns); err != nil || ns.Labels[kube.ModeLabel] != "" {
		t.Errorf("namespace labels %v, %v", ns.Labels, err)
	}
}

// TestTenant: a user with access to one namespace gets answers there, with a note on what is
// missing.
func TestTenant(t *testing.T) {
	s := apiserver.Start(t)
	k := s.Kubelet(t, "cli-tenant")
	admin := access(t, s, s.Namespace(t))
	pod := k.Run(t, apiserver.Pod(admin.Namespace, "web", apiserver.Container("app", "100m", "300m")))
	recordDeclared(t, admin.Client, pod, limit("app", 700))
	a := *admin
	a.Client = s.As(t, "tenant")
	role := &rbacv1.Role{Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "namespaces"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"podallocations"}, Verbs: []string{"get", "list"}},
	}}
	binding := &rbacv1.RoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "look"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}},
	}
	for _, o := range []client.Object{role, binding} {
		o.SetNamespace(a.Namespace)
		o.SetName("look")
		must.Succeed(t, admin.Client.Create(t.Context(), o))
	}
	apiserver.Eventually(t, "the role counts", func() (bool, any) {
		err := a.Client.List(t.Context(), &corev1.PodList{}, client.InNamespace(a.Namespace))
		return err == nil, err
	})
	for args, want := range map[string]string{
		"list": "1 of 1 pod", "explain web": "mode unknown", "usage": "has figures",
	} {
		a.prints(t, args, want, "The default mode is unknown")
	}
	a.fails(t, "resize web --cpu-limit 400m", "you may not resize pods here: ask for the verb patch on pods/resize")
	a.fails(t, "list -A", "list pods in all namespaces")
}

// TestLogOnServer: the real API server selects Events by the pod that they are about.
func TestLogOnServer(t *testing.T) {
	s := apiserver.Start(t)
	a := access(t, s, s.Namespace(t))
	pod := apiserver.Pod(a.Namespace, "web", apiserver.Container("app", "100m", "300m"))
	must.Succeed(t, a.Client.Create(t.Context(), pod))
	e := &corev1.Event{Reason: "ResizeCompleted"}
	e.Namespace, e.Name = a.Namespace, "web.1"
	e.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Namespace: a.Namespace, Name: "web", UID: pod.UID}
	must.Succeed(t, a.Client.Create(t.Context(), e))
	a.prints(t, "log web", "ResizeCompleted")
}

// TestForwardIsForbidden: the real API server refuses a user without the verbs to forward a port, and that is recognised.
func TestForwardIsForbidden(t *testing.T) {
	agent := types.NamespacedName{Namespace: kube.SystemNamespace, Name: "mbcas-agent-abcde"}
	_, err := forward.Get(t.Context(), apiserver.Start(t).User(t, "nothing-allowed").Config(), agent, 9091, "/debug/round")
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"mbcas-agent-abcde" is forbidden`) {
		t.Errorf("error %v, want one that says forbidden, and is recognised", err)
	}
}
