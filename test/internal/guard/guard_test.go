package guard

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/test/internal/audit"
)

func pod() *corev1.Pod {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}
	}
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID, p.Spec.NodeName = "shop", "web", "web", "n1"
	p.Spec.Containers = []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
		Requests: list("100m", "32Mi"), Limits: list("200m", "32Mi"),
	}}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app"}}
	return p
}

func TestPodChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   string // of the fault; "" for none
	}{
		"a CPU limit": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1")
		}, ""},
		"a request": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("110m")
		}, "requests or memory"},
		"memory": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("33Mi")
		}, "requests or memory"},
		"a restart": {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ }, "was restarted"},
		"a restart by the test": {func(p *corev1.Pod) {
			p.Labels[Restarted] = "true"
			p.Status.ContainerStatuses[0].RestartCount++
		}, ""},
		"an eviction by the API": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		}, "was evicted"},
		"an untouched pod's limit": {func(p *corev1.Pod) {
			p.Generation++
			p.Labels[Untouched] = "true"
		}, "nothing may change it"},
		"an eviction by the kubelet": {func(p *corev1.Pod) { p.Status.Reason = "Evicted" }, "was evicted"},
	} {
		for _, excused := range []bool{false, true} {
			g := &Guard{pods: map[types.UID]guarded{}}
			p := pod()
			p.Labels = map[string]string{}
			if excused {
				p.Labels[Excused] = "vpa"
			}
			g.record(p)
			p = p.DeepCopy()
			c.change(p)
			g.record(p)
			g.record(p) // reported once
			want := c.want
			if excused && want != "was restarted" && want != "nothing may change it" {
				want = ""
			}
			got := strings.Join(g.report.Faults, "; ")
			if (got == "") != (want == "") || !strings.Contains(got, want) || len(g.report.Faults) > 1 {
				t.Errorf("%s (excused %v): faults %q, want %q", name, excused, got, want)
			}
		}
	}
}

func TestRequests(t *testing.T) {
	const late = "Timeout: request did not complete within requested timeout - context deadline exceeded"
	const cut = "Timeout: request did not complete within requested timeout - context canceled"
	const quota = "exceeded quota"
	for name, c := range map[string]struct {
		user, of, uri, message string // of: verb and subresource
		code                   int
		fault, busy            bool
	}{
		"a resize":                  {user: Controller, of: "patch resize", code: 200},
		"one of a pod that is gone": {user: Controller, of: "patch resize", code: 404},
		"one of a changed pod":      {user: Controller, of: "patch resize", code: 409},
		"a malformed one":           {user: Controller, of: "patch resize", code: 400, fault: true},
		"a forbidden one":           {user: Controller, of: "patch resize", code: 403, fault: true},
		"an invalid one":            {user: Controller, of: "patch resize", code: 422, fault: true},
		"one over a quota":          {user: Controller, of: "patch resize", code: 403, message: quota, fault: true},
		"one too many for now":      {user: Controller, of: "patch resize", code: 429, busy: true},
		"one that fails":            {user: Controller, of: "patch resize", code: 500, busy: true},
		"one without a server":      {user: Controller, of: "patch resize", code: 503, busy: true},
		"one cut off by its sender": {user: Controller, of: "patch resize", code: 504, message: cut, busy: true},
		"one that took too long":    {user: Controller, of: "patch resize", code: 504, message: late, busy: true},
		"a refused dry run":         {user: Controller, of: "patch resize", uri: "?dryRun=All", code: 403},
		"one by the agent":          {user: accounts + "mbcas-agent", of: "patch resize", code: 200, fault: true},
		"a pod deleted by us":       {user: Controller, of: "delete ", code: 200, fault: true},
		"a pod deleted":             {user: "admin", of: "delete ", code: 200},
		"an eviction":               {user: "admin", of: "create eviction", code: 201, fault: true},
		"an eviction by the VPA":    {user: "system:serviceaccount:x:vpa-updater", of: "create eviction", code: 201},
		"a new pod over a quota":    {user: "admin", of: "create ", code: 403, message: quota, fault: true},
		"a new pod not permitted":   {user: "admin", of: "create ", code: 403, message: "no"},
	} {
		var r Report
		verb, subresource, _ := strings.Cut(c.of, " ")
		e := audit.Event{Stage: "ResponseComplete", Verb: verb, RequestURI: "/x" + c.uri}
		e.User.Username, e.ObjectRef.Resource, e.ObjectRef.Subresource = c.user, "pods", subresource
		e.ResponseStatus.Code, e.ResponseStatus.Message = c.code, c.message
		r.request(e)
		if (len(r.Faults) > 0) != c.fault {
			t.Errorf("%s: faults %q, want one: %v", name, r.Faults, c.fault)
		}
		if busy := r.Busy == 1 && len(r.Notes) == 1; busy != c.busy {
			t.Errorf("%s: %d busy, notes %q, want one of each: %v", name, r.Busy, r.Notes, c.busy)
		}
	}
}
