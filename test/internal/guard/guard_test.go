package guard

import (
	"cmp"
	"strings"
	"testing"
	"time"

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

func TestModeChanges(t *testing.T) {
	const mode = "denied request: the mode of namespace shop is recommend (label mbcas.io/mode)"
	const policy = "ValidatingAdmissionPolicy 'mbcas-controller' with binding 'mbcas-controller' "
	const other = policy + "denied request: the controller of MBCAS changes no request"
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := func(second float64) time.Time { return began.Add(time.Duration(second * float64(time.Second))) }
	for name, c := range map[string]struct {
		namespace, body string // of a change from second 10 to 10.1
		code            int
		from, to        float64 // of the resize
		message         string
		fault           bool
	}{
		"during it":                  {from: 9, to: 10.05},
		"right after it":             {from: 10.2, to: 10.3},
		"two seconds after it":       {from: 12.1, to: 12.2},
		"later":                      {from: 12.2, to: 12.3, fault: true},
		"before it":                  {from: 9, to: 9.9, fault: true},
		"of another namespace":       {namespace: "other", from: 10.2, to: 10.3, fault: true},
		"of another label":           {body: `{"metadata":{"labels":{"team":"a"}}}`, from: 10.2, to: 10.3, fault: true},
		"that was refused":           {code: 403, from: 10.2, to: 10.3, fault: true},
		"refused for another reason": {from: 10.2, to: 10.3, message: other, fault: true},
		"refused by another policy":  {from: 10.2, to: 10.3, message: mode, fault: true},
	} {
		change := audit.Event{Verb: "patch", Received: at(10), Ended: at(10.1)}
		change.ObjectRef.Resource, change.ObjectRef.Name = "namespaces", cmp.Or(c.namespace, "shop")
		change.RequestObject = []byte(cmp.Or(c.body, `{"metadata":{"labels":{"mbcas.io/mode":"recommend"}}}`))
		change.ResponseStatus.Code = cmp.Or(c.code, 200)
		resize := audit.Event{Verb: "patch", Received: at(c.from), Ended: at(c.to)}
		resize.User.Username, resize.ObjectRef.Namespace, resize.ObjectRef.Name = Controller, "shop", "web"
		resize.ObjectRef.Resource, resize.ObjectRef.Subresource = "pods", "resize"
		resize.ResponseStatus.Code, resize.ResponseStatus.Message = 403, cmp.Or(c.message, policy+mode)
		var r Report
		for _, e := range []audit.Event{resize, change} { // the API server logs requests as they end
			r.modeChange(e)
		}
		r.request(resize)
		if fault, noted := len(r.Faults) == 1, len(r.Notes) == 1; fault != c.fault || noted == fault {
			t.Errorf("a resize %s: faults %q, notes %q, want a fault: %v", name, r.Faults, r.Notes, c.fault)
		}
	}
}
