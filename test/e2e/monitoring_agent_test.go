package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/test/internal/hang"
	"github.com/mbcas/mbcas/test/internal/poll"
)

// aSecondAgentIsTold: an agent of another pod starts on the node. It is of another version, its /proc/stat is
// empty, reads of the cgroup of one pod do not end, and it panics about a pod that comes later. Meanwhile the agents
// of three other nodes do not renew their Leases.
func (m *monitoring) aSecondAgentIsTold(t *testing.T) {
	m.silent(t, "MbcasTwoAgents", "MbcasVersionSkew", "MbcasSystemUseUnreadable", "MbcasCgroupBlocked", "MbcasPanicked",
		"MbcasRestoresStopped", "MbcasAgentsSilent")
	program := buggyAgent(t)
	removeNodes := m.silentNodes(t, 3)
	defer removeNodes()
	removeAgent := m.secondAgent(t, program, m.running(t, "search"))
	defer removeAgent()
	m.told(t, 2*time.Minute, "MbcasTwoAgents", "the agent of a newer pod holds the Lease")
	m.told(t, time.Minute, "MbcasVersionSkew", "2 versions run side by side")
	m.told(t, time.Minute, "MbcasSystemUseUnreadable", "The agent on node "+m.node+" subtracts")
	m.told(t, time.Minute, "MbcasCgroupBlocked", "On node "+m.node+" nothing is decided for 1 pods")

	m.deploy(t, observed, bug, resources{"100m", "300m", "32Mi"}, func(p *corev1.PodTemplateSpec) {
		p.Spec.Containers[0].Name = bug
	})
	removeBug := sync.OnceFunc(func() { kubectl(t, "-n", observed, "delete", "deployment", bug) })
	defer removeBug()
	m.told(t, 2*time.Minute, "MbcasPanicked", "A decision of ")
	// Nothing may happen on these nodes that has the controller count before it restores one.
	m.told(t, 5*time.Minute, "MbcasRestoresStopped", "More than a third of the agents are unresponsive")

	removeNodes()
	removeAgent()
	removeBug() // has the controller count agents again
	for _, name := range []string{"MbcasVersionSkew", "MbcasSystemUseUnreadable", "MbcasCgroupBlocked",
		"MbcasRestoresStopped", "MbcasAgentsSilent"} { // the others are of increases within minutes
		m.waitAlert(t, 2*time.Minute, name, false, nil)
	}
}

// bug is the name of a container about which buggyAgent panics.
const bug = "bug"

// buggyAgent builds an agent of another version, with a bug in its rounds.
func buggyAgent(t *testing.T) (program string) {
	t.Helper()
	dir := t.TempDir()
	at, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	const file, begin = "internal/round/round.go", "\nfunc Run(cfg Config, s State, in Input) (State, Output) {\n"
	text := readFile(t, file)
	if n := strings.Count(text, begin); n != 1 {
		t.Fatalf("%s has %q %d times, want once", file, begin, n)
	}
	panics := fmt.Sprintf("\tfor _, p := range in.Pods {\n\t\tfor _, c := range p.Pod.Containers {\n"+
		"\t\t\tif c.Name == %q {\n\t\t\t\tpanic(%[1]q)\n\t\t\t}\n\t\t}\n\t}\n", bug)
	mutant, overlay := filepath.Join(dir, "round.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(at, file): mutant}})
	if err == nil {
		err = errors.Join(os.WriteFile(mutant, []byte(strings.Replace(text, begin, begin+panics, 1)), 0o600),
			os.WriteFile(overlay, replace, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "mbcas-agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-trimpath", "-overlay="+overlay,
		"-ldflags=-s -w -X main.version=e2e-buggy", "-o", program, "./cmd/mbcas-agent")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	output(t, build)
	return program
}

// secondAgent runs a program as an agent beside that of the DaemonSet, and newer than it. It finds an empty
// /proc/stat, and its reads of the counters of one pod do not end before undo.
func (m *monitoring) secondAgent(t *testing.T, program string, unread *corev1.Pod) (undo func()) {
	t.Helper()
	ds := &appsv1.DaemonSet{}
	if err := m.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "mbcas-agent"}, ds); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	empty, hanging := filepath.Join(dir, "empty"), filepath.Join(dir, "hanging")
	if err := errors.Join(os.WriteFile(empty, nil, 0o644), os.WriteFile(hanging, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	release, err := hang.File(hanging)
	if err != nil {
		t.Fatal(err)
	}
	counters, err := filepath.Rel("/sys/fs/cgroup", filepath.Dir(cgroupOf(t, unread, "load").QuotaFile()))
	if err != nil {
		t.Fatal(err)
	}
	second := &corev1.Pod{Spec: ds.Spec.Template.Spec}
	second.Namespace, second.Name, second.Spec.NodeName = system, "second-agent", m.node
	second.Labels = map[string]string{"app.kubernetes.io/component": "agent"} // so the DaemonSet does not adopt it
	second.Spec.Containers[0].Command = []string{"/second-agent"}
	for name, f := range map[string]struct{ from, at string }{
		"program": {program, "/second-agent"},
		"stat":    {empty, "/proc/stat"},
		"hanging": {hanging, filepath.Join("/host/cgroup", counters, "cpu.stat")},
	} {
		second.Spec.Volumes = append(second.Spec.Volumes, corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: f.from}},
		})
		second.Spec.Containers[0].VolumeMounts = append(second.Spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: name, MountPath: f.at, ReadOnly: true})
	}
	m.create(t, second)
	return sync.OnceFunc(func() {
		if err := release(); err != nil { // else the agent cannot end
			t.Error(err)
		}
		kubectl(t, "-n", system, "delete", "pod", second.Name)
	})
}

// silentNodes adds nodes that are Ready, of which the agents once had a Lease and do not renew it. No pod runs on
// them: they have no label of their operating system, by which the DaemonSet would choose them.
func (m *monitoring) silentNodes(t *testing.T, count int) (undo func()) {
	t.Helper()
	var made []client.Object
	var kubelets []*coordinationv1.Lease
	ctx, cancel := context.WithCancel(t.Context())
	var renewing sync.WaitGroup
	undo = sync.OnceFunc(func() {
		cancel()
		renewing.Wait()
		for _, o := range made {
			if err := m.Delete(context.WithoutCancel(ctx), o); client.IgnoreNotFound(err) != nil {
				t.Errorf("delete %T %s: %v", o, o.GetName(), err)
			}
		}
	})
	t.Cleanup(undo) // also where one of them cannot be made
	for i := range count {
		name := fmt.Sprint("e2e-silent-", i)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: true}}
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
		}}
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		node.Status.Capacity = node.Status.Allocatable
		kubelet := leaseOf(corev1.NamespaceNodeLease, name, name, time.Now())
		agent := leaseOf(system, kube.AgentLease(name), "mbcas-agent", time.Now().Add(-time.Hour))
		for _, o := range []client.Object{kubelet, agent, node} {
			m.create(t, o)
			made = append(made, o)
		}
		kubelets = append(kubelets, kubelet)
	}
	renewing.Go(func() { m.keepReady(ctx, t, kubelets) })
	return undo
}

// keepReady renews the Leases of kubelets, so that their nodes stay Ready.
func (m *monitoring) keepReady(ctx context.Context, t *testing.T, kubelets []*coordinationv1.Lease) {
	for poll.Sleep(ctx, 5*time.Second) {
		for _, k := range kubelets {
			k.Spec.RenewTime = new(metav1.NowMicro())
			if err := m.Update(ctx, k); err != nil && ctx.Err() == nil {
				t.Errorf("renew the Lease of kubelet %s: %v", k.Name, err)
			}
		}
	}
}

// leaseOf is a Lease that was renewed at a time.
func leaseOf(namespace, name, holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(holder), LeaseDurationSeconds: new(int32(40)),
			RenewTime: new(metav1.NewMicroTime(renewed)),
		},
	}
}

// silent says that none of these alerts fires before its fault.
func (m *monitoring) silent(t *testing.T, names ...string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if annotations, fires := m.alerts[name]; fires {
			t.Errorf("%s fires before its fault: %s", name, annotations["description"])
		}
	}
}
