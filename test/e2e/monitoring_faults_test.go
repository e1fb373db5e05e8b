package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// running is the pod of an app, once its Deployment has made it.
func (m *monitoring) running(t *testing.T, app string) (pod *corev1.Pod) {
	t.Helper()
	wait(t, time.Minute, "the pod of "+app, func() (bool, string) {
		pod = m.pods(t, observed)[app]
		return pod != nil, "not made yet"
	})
	return pod
}

// nothingIsToldInPeace: rules that were evaluated for half a minute have raised nothing. Where other work has
// filled this machine meanwhile, its node is full, and is told so.
func (m *monitoring) nothingIsToldInPeace(t *testing.T) {
	for _, app := range apps {
		m.running(t, app)
	}
	m.hasData(t, "half a minute of evaluations", `count_over_time(mbcas:nodes:max{state="free"}[1m]) >= 8`)
	full, err := m.query(t, "max_over_time(mbcas_node_without_idle_cpu[2m]) == 1")
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, annotations := range m.alerts {
		if name == "MbcasNodesFull" && len(full) > 0 {
			t.Logf("this machine is not at rest, so its node is full: %s", annotations["description"])
			continue
		}
		t.Errorf("%s fires on a cluster at rest: %s", name, annotations["description"])
	}
}

// aThrottledPodIsTold: a pod wants a core of an idle node, and an annotation bounds its limit at a fifth of it.
func (m *monitoring) aThrottledPodIsTold(t *testing.T) {
	m.deploy(t, observed, "bound", resources{"100m", "200m", "32Mi"}, func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{kube.MaxCPUKey: "200m"}
	})
	pod := m.running(t, "bound")
	spin(t, pod, 1)
	defer spin(t, pod, 0)
	m.told(t, 3*time.Minute, "MbcasThrottledWhileIdle", "of their time in the last hour")
}

// aFullNodeIsTold: four pods demand the whole node each.
func (m *monitoring) aFullNodeIsTold(t *testing.T) {
	m.waitAlert(t, 2*time.Minute, "MbcasNodesFull", false, nil) // other work may have filled this machine
	for _, app := range apps {
		spin(t, m.running(t, app), 4)
	}
	m.told(t, 3*time.Minute, "MbcasNodesFull", "On 100% of the nodes")
}

// aNodeFilledFromOutsideIsTold: programs outside of pods take all that pods leave of the node, and no pod demands more
// than it has.
func (m *monitoring) aNodeFilledFromOutsideIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	end := sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	defer end()
	for range 3 * runtime.NumCPU() {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = cmd.Wait() })
	}
	m.told(t, 2*time.Minute, "MbcasNodesFull", "On 100% of the nodes")
	end()
	wait(t, time.Minute, "the alert ends, or other work fills this machine", func() (bool, string) {
		full, err := m.query(t, "mbcas_node_without_idle_cpu == 1")
		m.mu.Lock()
		defer m.mu.Unlock()
		_, fires := m.alerts["MbcasNodesFull"]
		return err == nil && (!fires || len(full) > 0), orError(err, "it fires, and the node has idle CPU")
	})
}

// atMost bounds the limit of a pod, which lowers it; nothing bounds it any more after undo.
func (m *monitoring) atMost(t *testing.T, pod *corev1.Pod, limit string) (undo func()) {
	t.Helper()
	annotate := func(value string) {
		kubectl(t, "-n", pod.Namespace, "annotate", "--overwrite", "pod", pod.Name, kube.MaxCPUKey+value)
	}
	annotate("=" + limit)
	return func() { annotate("-") }
}

// The workloads that aHarmfulDecreaseIsTold harms, and one that it spares, in a namespace of their own: their pods
// are not Ready while others are waited for.
const (
	harmed = "e2e-harmed"
	spared = "spared"
)

var harmedApps = []string{"cart", "mail", "stock"}

const (
	harmedDeclared = cpu.Milli(180) // less than the share of each when the pods of the suite fill the node
	harmedLowered  = cpu.Milli(120) // one step below
)

// openHarmed starts these workloads, and has each pod demand more than its declared limit, which is its ceiling.
func (m *monitoring) openHarmed(t *testing.T) (pods map[string]*corev1.Pod) {
	m.namespace(t, harmed, "enforce")
	all := append(slices.Clone(harmedApps), spared)
	for _, app := range all {
		m.deploy(t, harmed, app, resources{"100m", harmedDeclared.String(), "32Mi"}, func(p *corev1.PodTemplateSpec) {
			p.Annotations = map[string]string{kube.MaxCPUKey: harmedDeclared.String()}
			probe := p.Spec.Containers[0].ReadinessProbe
			probe.FailureThreshold, probe.TimeoutSeconds = 2, 10 // a slow answer is no failure
		})
	}
	wait(t, time.Minute, "the pods of "+harmed, func() (bool, string) {
		pods = m.pods(t, harmed)
		return len(pods) == len(all), fmt.Sprintf("%d of %d", len(pods), len(all))
	})
	for _, pod := range pods {
		spin(t, pod, 1)
	}
	return pods
}

// aHarmfulDecreaseIsTold: one workload after the other is lowered, and is not Ready then. The first two of three hold
// nothing. From the third on the harmed ones get back their declared limits and no more, and no other pod is lowered,
// until a resume ends the hold.
func (m *monitoring) aHarmfulDecreaseIsTold(t *testing.T) {
	m.silent(t, "MbcasHarmfulDecreases")
	defer m.controllerFlags(t, fmt.Sprint("--hold-at-harmed-workloads=", len(harmedApps)))()
	pods := m.openHarmed(t)
	var undo []func()
	for i, app := range harmedApps {
		m.silent(t, "MbcasHarmHold")
		pod := pods[app]
		undo = append(undo, m.atMost(t, pod, harmedLowered.String()))
		m.has(t, time.Minute, pod, harmedLowered)
		setLoad(t, pod, map[string]any{"threads": 1, "unhealthy": true})
		m.waitAllocation(t, time.Minute, pod, "records the harmful decrease", func(pa *v1alpha1.PodAllocation) bool {
			return !pa.Status.Rollback.LastHarmfulDecreaseTime.IsZero()
		})
		m.hasData(t, app+" counts as harmed", fmt.Sprintf("max(mbcas_controller_harmed_workloads) == %d", i+1))
	}
	m.told(t, 2*time.Minute, "MbcasHarmfulDecreases", "limits from before were restored")
	m.told(t, 2*time.Minute, "MbcasHarmHold", "Rollbacks and restores go on")
	for i, app := range harmedApps {
		undo[i]() // a rollback keeps to bounds
		m.has(t, time.Minute, pods[app], harmedDeclared)
	}

	other := pods[spared]
	m.atMost(t, other, harmedLowered.String())
	m.waitAllocation(t, time.Minute, other, "is held", func(pa *v1alpha1.PodAllocation) bool {
		return pa.Status.Phase == v1alpha1.PhaseNotApplied && pa.Status.Reason == string(reasons.HarmSpread)
	})
	m.rounds(t, 5)
	if q := m.quota(t, other); q != harmedDeclared {
		t.Errorf("%s has %v while decisions are held, want its declared %v", other.Name, q, harmedDeclared)
	}
	if err := restore.Resume(t.Context(), m.Client, system, kube.PluginFieldManager, time.Now()); err != nil {
		t.Fatal(err)
	}
	m.waitAlert(t, time.Minute, "MbcasHarmHold", false, nil)
	m.has(t, time.Minute, other, harmedLowered)
	kubectl(t, "-n", harmed, "delete", "deployment", "--all")
}

// aSlowResizeIsTold: the kubelet is stopped while a resize is in flight, for ten seconds.
func (m *monitoring) aSlowResizeIsTold(t *testing.T) {
	pod := m.running(t, "search")
	signal(t, "kubelet", syscall.SIGSTOP)
	thaw := sync.OnceFunc(func() { signal(t, "kubelet", syscall.SIGCONT) })
	defer thaw()
	defer m.atMost(t, pod, "150m")()
	var since time.Time // from when it is in flight; zero: it is not
	wait(t, 30*time.Second, "a resize has been in flight for ten seconds", func() (bool, string) {
		pa, err := m.allocation(t, pod)
		if err != nil || pa.Status.Phase != v1alpha1.PhasePending {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) > 10*time.Second, orError(err, "%s", summary(pa))
	})
	thaw()
	m.told(t, time.Minute, "MbcasResizesSlow", "until the kubelet reports it")
}

// keepQuota writes a quota again and again, as a later resize would set it right. undo ends that, and writes the one
// from before.
func keepQuota(t *testing.T, file, quota string) (undo func()) {
	t.Helper()
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			_ = os.WriteFile(file, []byte(quota), 0) // while a resize is carried out the kernel may refuse it
			<-tick.C
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		writing.Wait()
		if err := os.WriteFile(file, before, 0); err != nil {
			t.Error(err)
		}
	})
}

// aWrongQuotaIsTold: the quota in the kernel of one pod is half of its limit, and that of another is gone, also that of
// the pod as a whole.
func (m *monitoring) aWrongQuotaIsTold(t *testing.T) {
	for _, app := range apps {
		spin(t, m.running(t, app), 0)
	}
	halved := cgroupOf(t, m.running(t, "batch"), "load").QuotaFile()
	text, err := os.ReadFile(halved)
	if err != nil {
		t.Fatal(err)
	}
	quota, period, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	n, err := strconv.Atoi(quota)
	if err != nil {
		t.Fatalf("%s: %v", halved, err)
	}
	defer keepQuota(t, halved, strings.TrimSpace(fmt.Sprint(n/2, " ", period)))()

	container := cgroupOf(t, m.running(t, "report"), "load").QuotaFile()
	pod := filepath.Join(filepath.Dir(filepath.Dir(container)), filepath.Base(container))
	none := "-1" // cgroup v1
	if filepath.Base(container) == "cpu.max" {
		none = "max"
	}
	undoPod := keepQuota(t, pod, none)
	defer undoPod()
	undo := keepQuota(t, container, none)
	defer undo()
	m.told(t, time.Minute, "MbcasUnenforced", "1 pods have limits without a quota")
	undo()
	undoPod()
	m.told(t, 2*time.Minute, "MbcasQuotaMismatch", "the quota in the kernel of 1 pods is not their limit")
}

// aBlindAgentIsTold: an agent starts that may neither list nor watch pods and nodes.
func (m *monitoring) aBlindAgentIsTold(t *testing.T) {
	role := func(verbs string) {
		kubectl(t, "patch", "clusterrole", "mbcas-agent", "--type=json", "-p", `[
			{"op":"test","path":"/rules/0/resources","value":["pods","nodes"]},
			{"op":"replace","path":"/rules/0/verbs","value":`+verbs+`}]`)
	}
	restart := func() {
		kubectl(t, "-n", system, "delete", "pod", "-l",
			"app.kubernetes.io/name=mbcas,app.kubernetes.io/component=agent")
	}
	role(`["get"]`)
	defer func() {
		role(`["list","watch"]`)
		restart()
		rolledOut(t, "daemonset/mbcas-agent")
	}()
	restart()
	m.told(t, 2*time.Minute, "MbcasAgentBlind", "has completed no round")
}

// aBlockedControllerIsTold: the controller may not resize pods, which it asks once a minute.
func (m *monitoring) aBlockedControllerIsTold(t *testing.T) {
	role := func(verbs string) {
		kubectl(t, "patch", "clusterrole", "mbcas-controller", "--type=json", "-p", `[
			{"op":"test","path":"/rules/`+m.resizeRule(t)+`/resources","value":["pods/resize"]},
			{"op":"replace","path":"/rules/`+m.resizeRule(t)+`/verbs","value":`+verbs+`}]`)
	}
	role(`["get"]`)
	defer role(`["patch"]`)
	m.told(t, 2*time.Minute, "MbcasBlocked", "The reason is PermissionMissing")
}

// resizeRule is the place of the rule about resizes in the controller's role.
func (m *monitoring) resizeRule(t *testing.T) string {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := m.Get(t.Context(), client.ObjectKey{Name: "mbcas-controller"}, role); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(slices.IndexFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Equal(r.Resources, []string{"pods/resize"})
	}))
}

// aPauseIsTold: the switch of the installation is off, and on again.
func (m *monitoring) aPauseIsTold(t *testing.T) {
	if err := restore.Pause(t.Context(), m.Client, system, kube.PluginFieldManager, "true"); err != nil {
		t.Fatal(err)
	}
	resume := sync.OnceFunc(func() {
		if err := restore.Resume(t.Context(), m.Client, system, kube.PluginFieldManager, time.Now()); err != nil {
			t.Error(err)
		}
	})
	defer resume()
	m.told(t, time.Minute, "MbcasPaused", "Nothing is resized")
	resume()
	m.waitAlert(t, time.Minute, "MbcasPaused", false, nil)
}

// apply applies manifests; undo deletes what is in them.
func apply(t *testing.T, manifests string) (undo func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "applied.yaml")
	if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "-f", file)
	return func() { kubectl(t, "delete", "-f", file) }
}

// anUnreadSignalIsTold: no metrics adapter is there for the metric of a DemandSignal.
func (m *monitoring) anUnreadSignalIsTold(t *testing.T) {
	sample, _, _ := strings.Cut(readFile(t, "config/samples/demand-signal.yaml"), "\n---\n")
	sample = strings.NewReplacer("mbcas-shop", observed, "name: front}", "name: web}").Replace(sample)
	defer apply(t, sample)()
	m.told(t, 2*time.Minute, "MbcasSignalsUnread", "1 DemandSignals have no effect; the reason is MetricsAPIMissing")
}

// aRefusedDecisionIsTold: the agent may not patch PodAllocations, and has decisions to publish.
func (m *monitoring) aRefusedDecisionIsTold(t *testing.T) {
	role := func(verbs string) {
		kubectl(t, "patch", "clusterrole", "mbcas-agent", "--type=json", "-p", `[
			{"op":"test","path":"/rules/2/resources","value":["podallocations"]},
			{"op":"replace","path":"/rules/2/verbs","value":`+verbs+`}]`)
	}
	role(`["get"]`)
	defer role(`["get","patch"]`)
	for _, app := range apps[:2] {
		spin(t, m.running(t, app), 0)
	}
	m.told(t, 3*time.Minute, "MbcasPublishRefused", "are forbidden")
}

// aKilledLeaderIsTold: the kernel kills the leader, which gives its Lease back to no other. The one that takes its
// place waits until the Lease is over. With the times of the shipped rules such a failover raises nothing: they wait
// for five minutes.
func (m *monitoring) aKilledLeaderIsTold(t *testing.T) {
	leaders := m.list(t, system, client.MatchingLabels{"app.kubernetes.io/component": "controller"})
	if len(leaders) != replicas {
		t.Fatalf("%d replicas of the controller, want %d", len(leaders), replicas)
	}
	procs := filepath.Join(filepath.Dir(cgroupOf(t, &leaders[0], "controller").QuotaFile()), "cgroup.procs")
	text, err := os.ReadFile(procs)
	if err != nil {
		t.Fatal(err)
	}
	for pid := range strings.FieldsSeq(string(text)) {
		id, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatalf("%s: %v", procs, err)
		}
		if err := syscall.Kill(id, syscall.SIGKILL); err != nil {
			t.Fatalf("kill the controller, process %d: %v", id, err)
		}
	}
	m.told(t, time.Minute, "MbcasNoLeader", "No replica of mbcas-controller holds its Lease")
	m.waitAlert(t, 3*time.Minute, "MbcasNoLeader", false, nil)
}

// noLeaderIsTold: no controller runs for a while.
func (m *monitoring) noLeaderIsTold(t *testing.T) {
	kubectl(t, "-n", system, "scale", "deployment/mbcas-controller", "--replicas=0")
	defer func() {
		kubectl(t, "-n", system, "scale", "deployment/mbcas-controller", fmt.Sprint("--replicas=", replicas))
		rolledOut(t, "deployment/mbcas-controller")
		m.waitAlert(t, 2*time.Minute, "MbcasNoLeader", false, nil)
	}()
	// The last samples of pods that are gone count for five minutes, unless their targets go with them.
	m.told(t, 7*time.Minute, "MbcasNoLeader", "No replica of mbcas-controller holds its Lease")
}

// aSilentAgentIsTold: the agent's pod goes, and with it its series. While the controller waits for it, its right to
// resize goes, too.
func (m *monitoring) aSilentAgentIsTold(t *testing.T) {
	patch := `{"spec":{"template":{"spec":{"nodeSelector":{"mbcas.io/nowhere":%s}}}}}`
	kubectl(t, "-n", system, "patch", "daemonset/mbcas-agent", "-p", fmt.Sprintf(patch, `"true"`))
	defer func() {
		kubectl(t, "-n", system, "patch", "daemonset/mbcas-agent", "-p", fmt.Sprintf(patch, "null"))
		rolledOut(t, "daemonset/mbcas-agent")
		m.waitAlert(t, 2*time.Minute, "MbcasAgentsSilent", false, nil)
	}()
	m.aBlockedControllerIsTold(t)
	// Where no other node has the controller count, it counts when it looks at this one again: after five minutes.
	m.told(t, 8*time.Minute, "MbcasAgentsSilent", "1 agents of Ready nodes have not renewed")
	found, err := m.query(t, `mbcas_cluster_nodes{state="silent"} == 1`)
	if err != nil || !slices.ContainsFunc(found, func(s sample) bool { return s.Metric["state"] == "silent" }) {
		t.Errorf("no node counts as silent: %v, %v", found, err)
	}
}
