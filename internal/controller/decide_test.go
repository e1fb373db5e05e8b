package controller

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/market"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// running is a pod of one Ready container that requests 100m.
func running(uid string, limit cpu.Milli, mine bool) *corev1.Pod {
	start := metav1.NewTime(noon.Add(-time.Hour))
	resources := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(100)},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(limit)},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "shop", UID: types.UID(uid), Generation: 2, Labels: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Resources: resources}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "app", Resources: &resources, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: start}},
			}},
		},
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate}}
	if mine {
		pod.ManagedFields = append(pod.ManagedFields, note)
	}
	return pod
}

// note is how the API server notes that we wrote the limit of container app.
var note = metav1.ManagedFieldsEntry{
	Manager: kube.FieldManager, Subresource: "resize", Operation: metav1.ManagedFieldsOperationUpdate,
	FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:cpu":{}}}}}}}`),
}

// drawn is a pod with any history.
func drawn(t *rapid.T, i int) Pod {
	limit := func(what string) cpu.Milli { return cpu.Milli(10 * rapid.IntRange(11, 300).Draw(t, what)) }
	declared, now := limit("declared"), limit("limit")
	if rapid.Bool().Draw(t, "at declared") {
		now = declared
	}
	p := Pod{
		Pod:  running(fmt.Sprintf("pod-%d", i), now, rapid.Bool().Draw(t, "mine")),
		Mode: rapid.SampledFrom([]kube.Mode{kube.ModeEnforce, kube.ModeEnforce, kube.ModeEnforce, kube.ModeRestore, kube.ModeRecommend, kube.ModeOff}).Draw(t, "mode"),
		Progress: rapid.SampledFrom([]podresize.Progress{podresize.Done, podresize.Done, podresize.Done, podresize.Done, podresize.InProgress, podresize.Deferred,
			podresize.Infeasible, podresize.Errored}).Draw(t, "progress"),
		Ledgered:       rapid.Bool().Draw(t, "ledgered"),
		DecisionAge:    rapid.SampledFrom([]time.Duration{0, 0, 0, 59 * time.Second, time.Minute, time.Hour}).Draw(t, "age"),
		RestoreRefused: rapid.Bool().Draw(t, "restore refused"),
	}
	if rapid.IntRange(0, 3).Draw(t, "unknown") > 0 {
		p.Declared = []v1alpha1.ContainerLimit{app(declared)}
	}
	if rapid.IntRange(0, 9).Draw(t, "opted out") == 0 {
		p.Pod.Labels[kube.ManagedKey] = "false"
	}
	switch rapid.IntRange(0, 9).Draw(t, "unready") {
	case 0:
		p.Pod.Status.Conditions = nil
	case 1:
		unready(p.Pod, noon.Add(-time.Duration(rapid.IntRange(0, 300).Draw(t, "unready for"))*time.Second), rapid.SampledFrom([]string{"", "ContainersNotReady"}).Draw(t, "why unready"))
	case 2:
		ends(p.Pod, noon.Add(-time.Duration(rapid.IntRange(0, 300).Draw(t, "restarted before"))*time.Second))
	}
	drawPlatform(t, &p)
	if rapid.IntRange(0, 4).Draw(t, "no allocation") == 0 {
		return p
	}
	p.PA = allocation.New(p.Pod)
	if rapid.IntRange(0, 3).Draw(t, "undecided") > 0 {
		want := limit("want")
		p.PA.Spec.DesiredCPULimit, p.PA.Spec.Containers = &want, []v1alpha1.ContainerLimit{app(want)}
		p.PA.Spec.Decision = &v1alpha1.Decision{Price: rapid.SampledFrom([]market.Price{0, 1.5}).Draw(t, "price")}
	}
	s := &p.PA.Status
	if rapid.Bool().Draw(t, "recorded") {
		s.DeclaredLimits = p.Declared
	}
	if rapid.Bool().Draw(t, "applied") {
		at := metav1.NewMicroTime(noon.Add(-time.Duration(rapid.IntRange(1, 300).Draw(t, "ago")) * time.Second))
		s.AppliedLimits, s.LastAppliedTime, s.LastDecreaseTime = []v1alpha1.ContainerLimit{app(limit("last"))}, &at, &at
		if rapid.Bool().Draw(t, "as recorded") {
			s.AppliedLimits = []v1alpha1.ContainerLimit{app(now)}
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "hurt") == 0 {
		hurt := metav1.NewMicroTime(noon.Add(-time.Duration(rapid.SampledFrom([]int{1, 3, 60, 1200, 1440, 1800}).Draw(t, "minutes")) * time.Minute))
		s.Rollback.LastHarmfulDecreaseTime = &hurt
	}
	if rapid.Bool().Draw(t, "lowered") {
		since := metav1.NewMicroTime(noon.Add(-time.Duration(rapid.IntRange(0, 600).Draw(t, "since")) * time.Second))
		s.Rollback.Limits, s.Rollback.WindowStart = []v1alpha1.ContainerLimit{app(limit("from"))}, &since
	}
	s.Phase = rapid.SampledFrom([]v1alpha1.Phase{"", v1alpha1.PhasePending, v1alpha1.PhaseApplied, v1alpha1.PhaseNotApplied, v1alpha1.PhaseFailed, v1alpha1.PhaseRestored}).Draw(t, "phase")
	s.Reason = string(rapid.SampledFrom([]reasons.Reason{"", reasons.ResizeInFlight, reasons.DecisionTooOld, reasons.ExternalChange, reasons.ResizeTimedOut, reasons.ResizeDeferred, reasons.QuotaExceeded}).Draw(t, "reason"))
	if rapid.Bool().Draw(t, "backing off") {
		retry := metav1.NewMicroTime(noon.Add(time.Duration(rapid.IntRange(-300, 300).Draw(t, "retry")) * time.Second))
		s.Retry.Time, s.Retry.Failures = &retry, 1
	}
	return p
}

// drawPlatform draws what the platform says about the pod.
func drawPlatform(t *rapid.T, p *Pod) {
	one := func(what string) bool { return rapid.IntRange(0, 9).Draw(t, what) == 0 }
	bound := func(what string) *cpu.Milli {
		if rapid.IntRange(0, 3).Draw(t, "no "+what) > 0 {
			return nil
		}
		m := cpu.Milli(10 * rapid.IntRange(5, 350).Draw(t, what))
		return &m
	}
	if one("vpa") {
		p.VPA = "web"
	}
	if one("barred") {
		p.Barred, p.Bar = reasons.LimitRangeRefused, "container side"
	}
	if one("unsure") {
		p.Unsure = "VerticalPodAutoscalers"
	}
	p.Cautious = one("cautious")
	if c := (v1alpha1.ContainerConstraints{Name: "app", Floor: bound("floor"), Ceiling: bound("ceiling")}); c.Floor != nil || c.Ceiling != nil {
		p.Terms.Containers = []v1alpha1.ContainerConstraints{c}
	}
	p.Terms.Ceiling = bound("total ceiling")
	if rapid.IntRange(0, 3).Draw(t, "no decrease") == 0 {
		p.Terms.NoDecrease = string(reasons.ScaledByHPA)
	}
}

// TestDecideKeepsTheRules draws nodes with any history, and holds every decision to the rules that matter most.
func TestDecideKeepsTheRules(t *testing.T) {
	cfg := DefaultConfig()
	check := func(t *rapid.T) {
		v := View{Now: noon, Node: Node{
			Name: "n1", Allocatable: 4000,
			Ready:    rapid.IntRange(0, 4).Draw(t, "not ready") > 0,
			Pressure: rapid.IntRange(0, 4).Draw(t, "pressure") == 0,
			Draining: rapid.IntRange(0, 9).Draw(t, "draining") == 0, ShuttingDown: rapid.IntRange(0, 9).Draw(t, "shutting down") == 0,
			Silence: rapid.SampledFrom([]time.Duration{0, 0, 0, 2 * time.Minute, 10 * time.Minute}).Draw(t, "silence"),
		}}
		v.Blocked = rapid.SampledFrom([]reasons.Reason{"", "", "", "", "", reasons.Paused, reasons.PermissionMissing, reasons.CRDNotInstalled}).Draw(t, "blocked")
		for i := range rapid.IntRange(1, 20).Draw(t, "pods") {
			v.Pods = append(v.Pods, drawn(t, i))
		}
		tasks := Decide(cfg, v)
		if again := Decide(cfg, v); !reflect.DeepEqual(tasks, again) {
			t.Fatal("the same view is decided in two ways")
		}
		seen := map[types.UID]bool{}
		for _, task := range tasks {
			if uid := task.Pod.Pod.UID; seen[uid] {
				t.Fatalf("pod %s has two tasks", uid)
			} else {
				seen[uid] = true
			}
			if broken := breaks(cfg, v, task); broken != "" {
				t.Fatalf("%s: %s %v, status %+v", broken, task.Purpose, task.Move, task.Status)
			}
		}
	}
	for range 10 { // a broken rule shows in one of some hundred histories
		rapid.Check(t, check)
	}
}

// breaks names the rule that a task breaks; "" if it breaks none.
func breaks(cfg Config, v View, t Task) string {
	p, s := t.Pod, t.Status
	if p.Declared != nil && len(s.DeclaredLimits) == 0 && (p.PA != nil || t.Create) && !t.Delete {
		return "known declared limits are left out"
	}
	if t.Delete && p.Declared != nil && !kube.SameLimits(current(p), p.Declared) {
		return "forgotten before it was restored"
	}
	if _, foreign := adopt(p); foreign && p.Declared != nil && p.PA != nil && t.Move != nil {
		return "moved against somebody else"
	}
	if t.Move == nil {
		return ""
	}
	leaving := p.Mode == kube.ModeOff || p.Pod.Labels[kube.ManagedKey] == "false" || p.VPA != ""
	for _, c := range t.Move.Changes {
		if c.From != kube.Total(kube.Limits(p.Pod)) || c.From == c.To {
			return "starts from another limit, or changes nothing"
		}
		least, most := termsOf(p)
		switch t.Purpose {
		case Allocate:
			if c.To < least || c.To > max(least, most) && c.To >= c.From {
				return "outside floor and ceiling"
			}
			if c.To < c.From && !ready(p.Pod) {
				return "lowers a pod that is not Ready"
			}
			hurt := s.Rollback.LastHarmfulDecreaseTime != nil && v.Now.Sub(s.Rollback.LastHarmfulDecreaseTime.Time) < cfg.RollbackHoldOff
			if c.To < c.From && (p.Terms.NoDecrease != "" || hurt) && c.To < p.Declared[0].CPULimit && c.From <= max(least, most) {
				return "lowers a pod that must not be decreased below its declared limit, and is not above its ceiling"
			}
			if c.To < c.From && hurt && v.Now.Sub(s.Rollback.LastHarmfulDecreaseTime.Time) < cfg.RollbackWindow {
				return "lowers a pod that was hurt just now"
			}
			if c.To < c.From && p.Cautious && s.LastDecreaseTime != nil && v.Now.Sub(s.LastDecreaseTime.Time) < cfg.HPACooldown {
				return "lowers a pod of an HPA again within the cooldown"
			}
		case Rollback:
			if c.To < c.From || c.To > max(least, most) || s.Rollback.LastHarmfulDecreaseTime == nil {
				return "takes back what did no harm, or too much"
			}
		case Restore:
			if c.To != p.Declared[0].CPULimit {
				return "restores to something else"
			}
		}
	}
	switch {
	case v.Blocked != "":
		return "moved while blocked"
	case p.Declared == nil:
		return "moved without known declared limits"
	case p.Mode == kube.ModeRecommend && !leaving:
		return "moved in mode recommend"
	case t.Purpose == Revert:
		return ""
	case t.Purpose == Allocate && p.Barred != "":
		return "tries what the API server refuses"
	case (t.Purpose == Allocate || t.Purpose == Rollback) && p.Unsure != "":
		return "moves a pod that may be one of an autoscaler's"
	case !v.Node.Ready || v.Node.Pressure || v.Node.Draining || v.Node.ShuttingDown:
		return "moved on a node that cannot"
	case t.Purpose == Allocate && v.Node.Silence >= cfg.FreezeAfter:
		return "follows a silent agent"
	case t.Purpose == Allocate && p.DecisionAge >= cfg.FreezeAfter:
		return "moved on an old decision"
	case t.Purpose == Allocate && (leaving || p.Mode != kube.ModeEnforce):
		return "follows the market outside of it"
	case t.Purpose == Allocate && p.Progress == podresize.InProgress && s.Phase != v1alpha1.PhaseFailed && (s.Retry.Failures == 0 || s.Reason != string(reasons.DecisionTooOld)):
		return "a second resize in flight" // other than after the back-off of one that was given up, and asked for anew
	}
	return ""
}

func TestTrimKeepsTheProof(t *testing.T) {
	pod := running("p", 500, true)
	pod.Annotations = map[string]string{"big": "x", kube.ManagedKey: "false", kube.MaxCPUKey: "2"}
	pod.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{}}}}}`)
	pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: "kubelet", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`),
	})
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
	full := pod.DeepCopy()
	got, err := trimPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = trimPod(got); err != nil { // client-go may trim what it has trimmed before
		t.Fatal(err)
	}
	trimmed := got.(*corev1.Pod)
	if len(trimmed.ManagedFields) != 2 || trimmed.ManagedFields[0].FieldsV1 != nil || len(trimmed.Annotations) != 2 || trimmed.Spec.Containers[0].Env != nil {
		t.Errorf("trimmed to %+v", trimmed)
	}
	if !reflect.DeepEqual(kube.Ours(trimmed), kube.Ours(full)) || !reflect.DeepEqual(kube.MaybeOurs(trimmed), kube.MaybeOurs(full)) {
		t.Error("the proof is another after trimming")
	}
	for _, mode := range []kube.Mode{kube.ModeOff, kube.ModeEnforce} {
		if !reflect.DeepEqual(kube.Facts(trimmed, mode, "mbcas-system"), kube.Facts(full, mode, "mbcas-system")) {
			t.Error("the facts are others after trimming")
		}
	}
}

// TestSaysWhatSparesAPod: a pod that is not lowered says why as soon as the market would lower it, though it has room below its limit.
func TestSaysWhatSparesAPod(t *testing.T) {
	for name, c := range map[string]struct {
		bound  v1alpha1.BoundBy
		demand cpu.Milli
		price  market.Price
		want   reasons.Reason
	}{
		"CPU is not scarce":             {v1alpha1.BoundByNothing, 900, 0.000, reasons.Settled},
		"its budget buys what it wants": {v1alpha1.BoundByNothing, 190, 0.500, reasons.Settled},
		"it wants more":                 {v1alpha1.BoundByNothing, 300, 0.500, reasons.NoDisruptionAllowed},
		"it wants more than it has":     {v1alpha1.BoundByFloor, 1200, 0.500, reasons.NoDisruptionAllowed},
	} {
		limits := []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 1000}}
		pa := &v1alpha1.PodAllocation{Status: v1alpha1.PodAllocationStatus{DeclaredLimits: limits, AppliedLimits: limits}}
		pa.Spec.DesiredCPULimit, pa.Spec.Containers = &limits[0].CPULimit, limits
		pa.Spec.Decision = &v1alpha1.Decision{Budget: 100, Demand: c.demand, Price: c.price, Floor: 1000, Ceiling: 1600, BoundBy: c.bound}
		p := Pod{Pod: running("a", 1000, true), Mode: kube.ModeEnforce, PA: pa, Declared: limits, Ledgered: true, Progress: podresize.Done}
		p.Terms.NoDecrease = string(reasons.NoDisruptionAllowed)
		tasks := Decide(DefaultConfig(), View{Now: noon, Node: Node{Name: "n1", Ready: true, Allocatable: 1600}, Pods: []Pod{p}})
		if len(tasks) != 1 || tasks[0].Move != nil || tasks[0].Status.Reason != string(c.want) {
			t.Errorf("%s: %+v, want it left where it is with reason %s", name, tasks, c.want)
		}
	}
}

func TestSilence(t *testing.T) {
	const grace = time.Minute
	lease := func(at time.Time) *coordinationv1.Lease {
		renewed := metav1.NewMicroTime(at)
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
	}
	for name, c := range map[string]struct {
		first *coordinationv1.Lease
		want  time.Duration
	}{
		"no lease":                    {nil, grace},
		"renewed 10 s ago":            {lease(noon.Add(-10 * time.Second)), 10 * time.Second},
		"renewed an hour ago":         {lease(noon.Add(-time.Hour)), grace},
		"a clock that is ahead":       {lease(noon.Add(30 * time.Second)), 0},
		"a clock that is far ahead":   {lease(noon.Add(time.Hour)), grace},
		"renewed just a minute ago":   {lease(noon.Add(-grace)), grace},
		"renewed almost a minute ago": {lease(noon.Add(-59 * time.Second)), 59 * time.Second},
	} {
		s := newSilence()
		s.note("n1", c.first, noon, grace)
		if got := s.since("n1", noon); got != c.want {
			t.Errorf("%s: silent for %v at first sight, want %v", name, got, c.want)
		}
		// A renewal counts, whatever time it claims; seeing the same again does not.
		s.note("n1", lease(noon.Add(-48*time.Hour)), noon.Add(time.Second), grace)
		if got := s.since("n1", noon.Add(2*time.Second)); got != time.Second {
			t.Errorf("%s: silent for %v after a renewal a second ago", name, got)
		}
		s.note("n1", lease(noon.Add(-48*time.Hour)), noon.Add(time.Minute), grace)
		if got := s.since("n1", noon.Add(61*time.Second)); got != time.Minute {
			t.Errorf("%s: silent for %v, want the minute since the last renewal", name, got)
		}
	}
}

// TestAgentOfANodeThatIsBack: a node that comes back after more than five minutes is restored only if its agent does not renew its Lease
// for five minutes from when it could have.
func TestAgentOfANodeThatIsBack(t *testing.T) {
	cfg := DefaultConfig()
	for name, c := range map[string]struct {
		ready, silence time.Duration
		restored       bool
		again          time.Duration
	}{
		"back since a second": {time.Second, 6 * time.Minute, false, cfg.RestoreAfter + agentStart - time.Second},
		"not yet":             {cfg.RestoreAfter + agentStart - time.Second, time.Hour, false, time.Second},
		"still not heard of":  {cfg.RestoreAfter + agentStart, time.Hour, true, 0},
		"Ready all the time":  {time.Hour, cfg.RestoreAfter, true, 0},
		"silent not so long":  {time.Hour, cfg.RestoreAfter - time.Second, false, time.Second},
	} {
		p := lowered(cfg, -time.Hour)
		p.PA.Status.Phase = v1alpha1.PhaseApplied
		node := up(-c.ready)
		node.Silence = c.silence
		tasks := Decide(cfg, View{Now: noon, Node: node, Pods: []Pod{p}})
		if len(tasks) != 1 {
			t.Fatalf("%s: %d tasks, want one", name, len(tasks))
		}
		if got := tasks[0]; (got.Move != nil) != c.restored || !c.restored && (got.Again.Sub(noon) != c.again || got.Status.Reason != string(reasons.AgentUnresponsive)) {
			t.Errorf("%s: move %v, status %+v, another look at %v", name, got.Move, got.Status, got.Again)
		}
	}
}

func TestConfigReportsEverything(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	if free := DefaultConfig().Quota.Headroom; free != kube.QuotaHeadroom {
		t.Errorf("%v of a quota stays free, and the plugin says %v", free, kube.QuotaHeadroom)
	}
	err := Config{Actuator: actuator.DefaultConfig(), StartGrace: -1}.Validate()
	if got := len(err.(interface{ Unwrap() []error }).Unwrap()); got != 14 {
		t.Errorf("%d complaints, want 14: %v", got, err)
	}
}

// TestSignalIntervalIsWithinHoldFor: a metric that is read more seldom than its percentage is held for would lose it between two reads.
func TestSignalIntervalIsWithinHoldFor(t *testing.T) {
	c := DefaultConfig()
	for interval, fine := range map[time.Duration]bool{0: true, time.Second: true, time.Minute: true, time.Minute + 1: false, time.Second - 1: false} {
		c.SignalInterval = interval
		if err := c.Validate(); (err == nil) != fine || interval > time.Minute && (!strings.Contains(err.Error(), "SignalInterval is 1m0.000000001s") || !strings.Contains(err.Error(), "HoldFor 1m0s")) {
			t.Errorf("an interval of %v: %v", interval, err)
		}
	}
}

// termsOf are the least and the most that the pod of drawn may get, worked out the plain way.
func termsOf(p Pod) (least, most cpu.Milli) {
	least, most = 110, 4000
	for _, c := range p.Terms.Containers {
		if c.Floor != nil {
			least = max(least, *c.Floor)
		}
		if c.Ceiling != nil {
			most = min(most, *c.Ceiling)
		}
	}
	if c := p.Terms.Ceiling; c != nil {
		most = min(most, *c)
	}
	if most >= 110 { // below that nothing is moved
		least = min(least, most)
	}
	return least, most
}
