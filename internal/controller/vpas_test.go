package controller

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/autoscalers"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

// wire is what the controller's requests go through: it notes them, and lets those for one path fail.
type wire struct {
	mu   sync.Mutex
	seen []string
	cut  string
}

// through is one connection through it.
type through struct {
	*wire
	http.RoundTripper
}

func (w through) RoundTrip(q *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.seen = append(w.seen, q.Method+" "+q.URL.Path+" "+q.URL.RawQuery)
	cut := w.cut == q.URL.Path || w.cut == q.URL.Path+"?" && !strings.Contains(q.URL.RawQuery, "limit=1")
	w.mu.Unlock()
	if cut {
		return nil, fmt.Errorf("the test lets %s fail", q.URL.Path)
	}
	return w.RoundTripper.RoundTrip(q)
}

// fail lets requests for a path fail, with "?" behind it all but the first look at one object; "" none.
func (w *wire) fail(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = path
}

// requests are those so far for that method and path that are no watches.
func (w *wire) requests(method, suffix string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		parts := strings.SplitN(s, " ", 3)
		if parts[0] == method && strings.HasSuffix(parts[1], suffix) && !strings.Contains(parts[2], "watch=true") {
			n++
		}
	}
	return n
}

// wired is the same rig, whose controllers connect through a wire, as somebody else or with nil as they are.
func (r *rig) wired(as *rest.Config) (*rig, *wire) {
	w := &wire{}
	there, server := *r, *r.Server
	if as == nil {
		as = server.Config
	}
	server.Config = rest.CopyConfig(as)
	server.Config.QPS = -1
	server.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return through{w, next} })
	there.Server = &server
	return &there, w
}

// logs has a controller write its log to where it can be read.
func (r *rig) logs() (read func() string, set func(*Reconciler)) {
	out := &syncWriter{w: &bytes.Buffer{}}
	read = func() string {
		out.mu.Lock()
		defer out.mu.Unlock()
		return out.w.String()
	}
	return read, func(re *Reconciler) { re.Log = slog.New(slog.NewJSONHandler(out, nil)) }
}

const (
	vpaGroup = "/apis/autoscaling.k8s.io/v1"
	vpaPath  = vpaGroup + "/verticalpodautoscalers"
	cannot   = "cannot tell which pods a VerticalPodAutoscaler writes"
)

// vpaOf makes a VPA that writes the CPU of a Deployment's pods.
func (r *rig) vpaOf(deployment string) {
	r.Helper()
	vpa := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
	}}}
	vpa.SetGroupVersionKind(constraints.VPAKind)
	vpa.SetNamespace(r.namespace)
	vpa.SetName(deployment)
	r.must(r.Client.Create(r.Context(), vpa))
}

func (r *rig) installVPAs() {
	r.Helper()
	install(r, custom("verticalpodautoscalers", constraints.VPAKind.Group, constraints.VPAKind.Kind, false))
}

// looks waits until the controller has looked for VPAs some more times.
func (r *rig) looks(w *wire, times int) {
	r.Helper()
	until := w.requests(http.MethodGet, vpaGroup) + times
	r.until("looked for VPAs again", func() (bool, any) { n := w.requests(http.MethodGet, vpaGroup); return n >= until, n })
}

// TestVPAsAreReadFromTheCache: however often a node is looked at, the API server is not asked for VPAs.
func TestVPAsAreReadFromTheCache(t *testing.T) {
	r := newRig(t)
	r.installVPAs()
	r.vpaOf("tuned")
	there, w := r.wired(nil)
	var rec *Reconciler
	there.start(func(re *Reconciler) { rec = re })
	r.until("VPAs are watched", func() (bool, any) { return vpaState(rec) == autoscalers.VPAsWatched, "not watched" })
	before := w.requests(http.MethodGet, "verticalpodautoscalers")
	tuned, free := r.ownedPod("tuned", "tuned", "200m", "900m"), r.ownedPod("free", "free", "200m", "900m")
	for _, limit := range []int{1000, 1500, 2000, 2500, 3000} {
		r.at(free, limit)
	}
	if pa := r.stored(tuned); pa != nil {
		t.Errorf("the pod of a VPA has an allocation: %+v", pa.Status)
	}
	if n := w.requests(http.MethodGet, "verticalpodautoscalers") - before; n != 0 {
		t.Errorf("%d lists of VPAs while nodes were looked at, want none", n)
	}
}

// TestUntilVPAsAreKnown: a controller that cannot find out whether there are VPAs takes no pod for free of them. It says so once, and goes
// on restoring.
func TestUntilVPAsAreKnown(t *testing.T) {
	r := newRig(t)
	there, w := r.wired(nil)
	stop := there.start()
	pod := r.pod("web", "100m", "500m")
	r.at(pod, 2000)
	stop()

	w.fail(vpaGroup)
	log, to := r.logs()
	there.start(to)
	r.publish(pod, "0.000", app(3000))
	pa := r.allocation(pod, "held", stands(v1alpha1.PhaseNotApplied, reasons.AutoscalerLookupFailed))
	if !strings.HasSuffix(pa.Status.Message, ": VerticalPodAutoscalers: no answer of the API server") {
		t.Errorf("message %q", pa.Status.Message)
	}
	r.looks(w, 2)
	if got := r.limit(pod); got != 2000 {
		t.Errorf("limit %v while VPAs are not known, want 2000m as before", got)
	}
	r.mode(r.namespace, kube.ModeRestore)
	r.allocation(pod, "restored", stands(v1alpha1.PhaseRestored, reasons.Restoring))
	r.mode(r.namespace, kube.ModeEnforce)
	r.allocation(pod, "held again", stands(v1alpha1.PhaseNotApplied, reasons.AutoscalerLookupFailed))
	if n := strings.Count(log(), cannot); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, log())
	}
	w.fail("")
	r.until("raised", func() (bool, any) { r.confirm(pod); return r.limit(pod) == 3000, r.stored(pod).Status })

	// What is known stays known.
	w.fail(vpaGroup)
	r.looks(w, 2)
	r.at(pod, 2000)
}

// TestVPAsThatCannotBeRead: from when VPAs are installed until they can be read, no pod is resized; it does not change from one look to
// the next.
func TestVPAsThatCannotBeRead(t *testing.T) {
	r := newRig(t)
	there, w := r.wired(nil)
	log, to := r.logs()
	there.start(to)
	pod := r.pod("web", "100m", "500m")
	r.at(pod, 2000)
	w.fail(vpaPath)
	r.installVPAs()
	r.until("found", func() (bool, any) { return strings.Contains(log(), cannot), log() })
	r.publish(pod, "0.000", app(3000))
	held := r.allocation(pod, "held", stands(v1alpha1.PhaseNotApplied, reasons.AutoscalerLookupFailed))
	r.looks(w, 2)
	if now := r.stored(pod); now.ResourceVersion != held.ResourceVersion {
		t.Errorf("written again: %+v, before %+v", now.Status, held.Status)
	}
	if n := strings.Count(log(), cannot); n != 1 || strings.Contains(log(), "not dealt with") || r.limit(pod) != 2000 {
		t.Errorf("limit %v; said %d times, want once, and of no pod:\n%s", r.limit(pod), n, log())
	}
	w.fail("")
	r.until("raised", func() (bool, any) { r.confirm(pod); return r.limit(pod) == 3000, r.stored(pod).Status })
}

// TestVPAsThatStopAtTheStart: VPAs that are there and cannot all be read, as while their definition is being deleted, keep nothing but resizes
// from starting.
func TestVPAsThatStopAtTheStart(t *testing.T) {
	r := newRig(t)
	r.installVPAs()
	there, w := r.wired(nil)
	w.fail(vpaPath + "?")
	there.start()
	pod := r.pod("web", "100m", "500m")
	r.allocation(pod, "made", func(*v1alpha1.PodAllocation) bool { return true })
	r.publish(pod, "0.000", app(3000))
	r.allocation(pod, "held", stands(v1alpha1.PhaseNotApplied, reasons.AutoscalerLookupFailed))
	w.fail("")
	r.until("raised", func() (bool, any) { r.confirm(pod); return r.limit(pod) == 3000, r.stored(pod).Status })
}

// TestVPAsWithAnOldRole: a controller that may not read VPAs holds all pods back, and says which right it lacks and what to do. Once it has
// the right it needs no restart; and if it loses it again, the same.
func TestVPAsWithAnOldRole(t *testing.T) {
	r := newRig(t)
	r.installVPAs()
	r.vpaOf("tuned")
	role := r.oldRole()
	rules := role.Rules
	there, w := r.wired(r.User(t, role.Name).Config())
	log, to := r.logs()
	var ahead atomic.Int64
	var rec *Reconciler
	there.start(to, func(re *Reconciler) {
		rec, re.Now = re, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	tuned, free := r.ownedPod("tuned", "tuned", "200m", "900m"), r.ownedPod("free", "free", "200m", "900m")
	for _, pod := range []*corev1.Pod{tuned, free} {
		pa := r.allocation(pod, "held", stands(v1alpha1.PhaseNotApplied, reasons.AutoscalerLookupFailed))
		for _, part := range []string{"may not list verticalpodautoscalers", "config/rbac"} {
			if !strings.Contains(pa.Status.Message, part) {
				t.Errorf("message %q does not say %q", pa.Status.Message, part)
			}
		}
	}
	r.publish(free, "0.000", app(2000))
	r.looks(w, 3)
	if n := strings.Count(log(), cannot); n != 1 || strings.Contains(log(), "not dealt with") || r.limit(free) != 900 {
		t.Errorf("limit %v; said %d times, want once, and of no pod:\n%s", r.limit(free), n, log())
	}

	vpas := []string{"verticalpodautoscalers"}
	role.Rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{constraints.VPAKind.Group}, Resources: vpas, Verbs: []string{"list"}})
	r.must(r.Client.Update(r.Context(), role))
	r.allocation(free, "still held", func(pa *v1alpha1.PodAllocation) bool { return strings.Contains(pa.Status.Message, "may not watch") })
	role.Rules[len(rules)].Verbs = []string{"list", "watch"}
	r.must(r.Client.Update(r.Context(), role))
	r.until("raised", func() (bool, any) { r.confirm(free); return r.limit(free) == 2000, r.stored(free).Status })
	r.until("left to its VPA", func() (bool, any) { return r.stored(tuned) == nil, r.stored(tuned) })

	role.Rules = rules
	r.must(r.Client.Update(r.Context(), role))
	r.until("VPAs are unknown", func() (bool, any) {
		ahead.Add(int64(time.Second))                         // rights are checked once a minute
		r.hearAt(time.Now().Add(time.Duration(ahead.Load()))) // an agent that stops is another matter
		return vpaState(rec) == autoscalers.VPAsUnknown, vpaState(rec)
	})
	r.hearAt(time.Now().Add(time.Duration(ahead.Load())))
	r.publish(free, "0.000", app(3000))
	r.allocation(free, "held", stands(v1alpha1.PhaseNotApplied, reasons.AutoscalerLookupFailed))
	if got := r.limit(free); got != 2000 {
		t.Errorf("limit %v, want 2000m as before the right was lost", got)
	}
}

// oldRole makes a user of the role that the controller ships with, without the right to VPAs.
func (r *rig) oldRole() *rbacv1.ClusterRole {
	r.Helper()
	data, err := os.ReadFile("../../config/rbac/controller_role.yaml")
	r.must(err)
	documents := bytes.Split(data, []byte("\n---\n"))
	all, own := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	r.must(yaml.UnmarshalStrict(documents[0], all))
	r.must(yaml.UnmarshalStrict(documents[1], own))
	name := "old-" + r.config.Namespace
	all.Rules = slices.DeleteFunc(all.Rules, func(p rbacv1.PolicyRule) bool { return slices.Contains(p.APIGroups, constraints.VPAKind.Group) })
	user := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	everywhere := &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, Subjects: user}
	here := &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: user}
	own.Namespace, here.Namespace = r.config.Namespace, r.config.Namespace
	for _, o := range []client.Object{all, own, everywhere, here} {
		o.SetName(name)
		r.must(r.Client.Create(r.Context(), o))
		r.Cleanup(func() {
			if err := r.Client.Delete(context.Background(), o); err != nil {
				r.Error(err)
			}
		})
	}
	return all
}

// TestVPAPodsAreLeftAlone: a pod whose CPU a VPA writes goes back to its declared limits and is left to it, whether VPAs are installed
// before us or after.
func TestVPAPodsAreLeftAlone(t *testing.T) {
	r := newRig(t)
	var rec *Reconciler
	r.start(func(re *Reconciler) { rec = re })
	pod := r.ownedPod("web", "web", "200m", "900m")
	r.at(pod, 2000)

	remove := install(r, custom("verticalpodautoscalers", constraints.VPAKind.Group, constraints.VPAKind.Kind, false))
	vpa := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"targetRef":    map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
		"updatePolicy": map[string]any{"updateMode": "Off"},
	}}}
	vpa.SetGroupVersionKind(constraints.VPAKind)
	vpa.SetNamespace(r.namespace)
	vpa.SetName("web")
	r.must(r.Client.Create(r.Context(), vpa))
	r.until("VPAs are watched", func() (bool, any) { return vpaState(rec) == autoscalers.VPAsWatched, "not watched" })
	if got := r.limit(pod); got != 2000 {
		t.Errorf("limit %v under a VPA that writes nothing, want 2000m", got)
	}
	mode := func(m string) {
		t.Helper()
		patch := `{"spec":{"updatePolicy":{"updateMode":"` + m + `"}}}`
		r.must(r.Client.Patch(r.Context(), vpa.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	for _, m := range []string{"Initial", "Recreate", "Auto", "InPlaceOrRecreate", "InPlace"} {
		mode(m)
		r.until("restored and forgotten under "+m, func() (bool, any) { return r.limit(pod) == 900 && r.stored(pod) == nil, r.limit(pod) })
		mode("Off")
		r.at(pod, 2000)
	}
	mode("Recreate")
	r.until("restored", func() (bool, any) { return r.limit(pod) == 900 && r.stored(pod) == nil, r.limit(pod) })
	remove()
	r.until("VPAs are gone", func() (bool, any) { return vpaState(rec) == autoscalers.NoVPAs, "still there" })
	r.at(pod, 2000)
}

var rollout = kube.Target{APIVersion: "example.mbcas.io/v1", Kind: "Rollout", Name: "shop"}

// TestATargetThatDoesNotAnswer: the pods that an HPA of a target would protect are not resized while its scale subresource has never answered.
func TestATargetThatDoesNotAnswer(t *testing.T) {
	r := newRig(t)
	install(r, custom("rollouts", "example.mbcas.io", "Rollout", true))
	target := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(1)}}}
	target.SetAPIVersion(rollout.APIVersion)
	target.SetKind(rollout.Kind)
	target.SetNamespace(r.namespace)
	target.SetName(rollout.Name)
	r.must(r.Client.Create(r.Context(), target))
	target.Object["status"] = map[string]any{"replicas": int64(1), "selector": "app=shop"}
	r.must(r.Client.Status().Update(r.Context(), target))
	metric := onCPU(100)
	r.must(r.Client.Create(r.Context(), hpa(r.namespace, "shop", rollout, metric)))

	there, w := r.wired(nil)
	scale := "/apis/example.mbcas.io/v1/namespaces/" + r.namespace + "/rollouts/shop/scale"
	w.fail(scale)
	there.start()
	pod := r.ownedPod("shop", "shop", "200m", "900m")
	pa := r.allocation(pod, "held", stands(v1alpha1.PhaseNotApplied, reasons.AutoscalerLookupFailed))
	if want := reasons.AutoscalerLookupFailed.Sentence() + ": the pods of HorizontalPodAutoscaler shop, by its target Rollout/shop: no answer of the API server"; pa.Status.Message != want {
		t.Errorf("message %q, want %q", pa.Status.Message, want)
	}
	r.publish(pod, "0.500", app(220))
	asked := w.requests(http.MethodGet, "/scale")
	r.until("asked again", func() (bool, any) { n := w.requests(http.MethodGet, "/scale"); return n > asked, n })
	if got := r.limit(pod); got != 900 {
		t.Errorf("limit %v while it is not known that an HPA watches the pod, want 900m", got)
	}
	w.fail("")
	r.until("left to its HPA", func() (bool, any) {
		pa := r.stored(pod)
		return pa.Status.Constraints != nil && pa.Status.Constraints.NoDecrease == string(reasons.ScaledByHPA), pa.Status
	})
	if got := r.limit(pod); got != 900 {
		t.Errorf("limit %v, want 900m", got)
	}
}
