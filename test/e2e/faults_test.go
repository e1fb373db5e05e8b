package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// faults is a path whose node and control plane fail below it.
type faults struct {
	path
	// state is the folder of the local cluster.
	state string
}

// TestFaults kills, freezes and sets back what MBCAS stands on, while the load changes. Limits stay as
// they are during each fault, and follow the load after it.
func TestFaults(t *testing.T) {
	s := &faults{path: path{suite: start(t)}, state: filepath.Dir(os.Getenv("KUBECONFIG"))}
	watched.APIServerFails()
	s.open(t)
	t.Cleanup(func() { repair(context.Background(), t) }) // before the namespace goes, which needs a kubelet
	s.idleNodeRaisesLimits(t)
	for _, step := range []struct {
		name string
		run  func(*faults, *testing.T)
	}{
		{"KubeletKilled", (*faults).kubeletKilled},
		{"ContainerdKilled", (*faults).containerdKilled},
		{"EtcdFrozen", (*faults).etcdFrozen},
		{"APIServerKilled", (*faults).apiServerKilled},
		{"EtcdSetBack", (*faults).etcdSetBack},
		{"RestoreIsExact", func(s *faults, t *testing.T) { s.restoreIsExact(t) }},
		{"WitnessesAreUntouched", func(s *faults, t *testing.T) { s.witnessesAreUntouched(t) }},
		{"UninstallRestoresFirst", func(s *faults, t *testing.T) { s.uninstallRestoresFirst(t) }},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(s, t) }) {
			t.Fatalf("the test ends at %s; allocations of the shop:%s", step.name, s.allocations(t, shop))
		}
	}
}

// kubeletKilled: a limit changes in its spec while no kubelet can carry that out, and in the kernel when
// it is back.
func (s *faults) kubeletKilled(t *testing.T) {
	s.contend(t)
	s.halves(t)
	s.kill(t, "kubelet")
	before := s.quotas(t)
	s.release(t)
	s.wait(t, time.Minute, "the limit of web changes in its spec", func() (bool, string) {
		now := limit(s.pod(t, s.pods["web"])) // of a decrease that is in flight, or of the increase
		return now != before["web"], "it is " + now.String()
	})
	s.keeps(t, before)
	repair(t.Context(), t)
	s.webRises(t)
}

// containerdKilled: the agent needs no container runtime.
func (s *faults) containerdKilled(t *testing.T) {
	agent := s.agent(t)
	s.kill(t, "containerd")
	s.contend(t)
	s.decidesOn(t, agent)
	repair(t.Context(), t)
	s.halves(t)
}

// etcdFrozen: three writes in a row time out. Limits stay, then follow the load.
func (s *faults) etcdFrozen(t *testing.T) {
	signal(t, "etcd", syscall.SIGSTOP)
	thaw := sync.OnceFunc(func() { signal(t, "etcd", syscall.SIGCONT) })
	defer thaw()
	before := s.accepted(t) // from now on no resize is
	s.wait(t, time.Minute, "the kernel enforces the last resizes", func() (bool, string) {
		now := s.quotas(t)
		return maps.Equal(now, before), fmt.Sprintf("%v, want %v", now, before)
	})
	s.release(t)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: shop, GenerateName: "write-"}}
		if err := s.Create(ctx, o); err == nil {
			t.Error("a write succeeded while etcd was frozen")
		}
		cancel()
	}
	s.keeps(t, before)
	thaw()
	repair(t.Context(), t) // components that lost their Lease have ended
	s.webRises(t)
}

// apiServerKilled: the agent decides on, and what it decides arrives when the API server is back.
func (s *faults) apiServerKilled(t *testing.T) {
	agent := s.agent(t)
	s.kill(t, "kube-apiserver")
	s.contend(t)
	s.decidesOn(t, agent)
	repair(t.Context(), t)
	s.halves(t)
}

// etcdSetBack: every object becomes as it was in a copy of etcd's data from before the last resizes. All components
// start anew then, MBCAS's pods too, as Kubernetes asks for: watches go on from a version that the store has not
// reached again.
func (s *faults) etcdSetBack(t *testing.T) {
	data, snapshot := filepath.Join(s.state, "etcd"), filepath.Join(t.TempDir(), "etcd")
	replace := func(from, to string) {
		must.Succeed(t, errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))))
	}
	s.kill(t, "etcd")
	replace(data, snapshot)
	repair(t.Context(), t)
	s.release(t)
	s.webRises(t)
	for component := range strings.FieldsSeq("kubelet kube-scheduler kube-controller-manager kube-apiserver etcd") {
		s.kill(t, component)
	}
	replace(snapshot, data)
	repair(t.Context(), t)
	must.Succeed(t, s.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(system)))
	s.rounds(t, 10)
	s.webRises(t)
	s.contend(t)
	s.halves(t)
	s.release(t)
	s.webRises(t)
}

// contend has both managed pods demand the whole node.
func (s *faults) contend(t *testing.T) {
	t.Helper()
	for _, app := range managed {
		s.spin(t, s.pods[app], 2)
	}
}

// halves waits until both have about half of it.
func (s *faults) halves(t *testing.T) {
	t.Helper()
	for _, app := range managed {
		s.falls(t, 3*time.Minute, s.pods[app])
	}
}

// release ends the contention: only web still demands a CPU.
func (s *faults) release(t *testing.T) {
	t.Helper()
	s.spin(t, s.pods["web"], 1)
	s.spin(t, s.pods["batch"], 0)
}

// webRises waits until web, which demands a CPU alone, has as much as it can get.
func (s *faults) webRises(t *testing.T) {
	t.Helper()
	s.rises(t, 2*time.Minute, s.pods["web"])
}

// quotas are the limits that the kernel enforces on the managed pods.
func (s *faults) quotas(t *testing.T) map[string]cpu.Milli {
	t.Helper()
	found := map[string]cpu.Milli{}
	for _, app := range managed {
		found[app] = s.quota(t, s.pods[app])
	}
	return found
}

// accepted are the limits to which the managed pods were resized last.
func (s *faults) accepted(t *testing.T) map[string]cpu.Milli {
	t.Helper()
	found, all := map[string]cpu.Milli{}, s.resizes(t, shop)
	for _, app := range managed {
		of := all[s.pods[app].Name]
		if len(of) == 0 {
			t.Fatalf("%s was never resized", app)
		}
		found[app] = of[len(of)-1].to
	}
	return found
}

// keeps asserts that the kernel enforces the same limits as before the fault.
func (s *faults) keeps(t *testing.T, before map[string]cpu.Milli) {
	t.Helper()
	if now := s.quotas(t); !maps.Equal(now, before) {
		t.Errorf("during the fault the kernel enforces %v, before it %v", now, before)
	}
}

// decidesOn waits until an agent has played some rounds more.
func (s *faults) decidesOn(t *testing.T, agent *corev1.Pod) {
	t.Helper()
	first, err := roundsOf(t, agent)
	must.Succeed(t, err)
	s.wait(t, time.Minute, "the agent's rounds go on", func() (bool, string) {
		now, err := roundsOf(t, agent)
		return now >= first+5, orError(err, "%d rounds, %d before", now, first)
	})
}

// pid is the process ID of a component of the local cluster; 0 if it does not run.
func pid(t *testing.T, component string) int {
	t.Helper()
	status, _ := cluster(t.Context(), "status").Output() // fails if any component does
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == component {
			pid, _ := strconv.Atoi(f[1])
			return pid
		}
	}
	t.Fatalf("mbcas-cluster status knows no %s:\n%s", component, status)
	return 0
}

// kill kills a component of the local cluster, and waits until it has ended.
func (s *faults) kill(t *testing.T, component string) {
	t.Helper()
	signal(t, component, syscall.SIGKILL)
	s.wait(t, 10*time.Second, component+" has ended", func() (bool, string) {
		return pid(t, component) == 0, "it runs"
	})
}

// signal sends a signal to a component of the local cluster.
func signal(t *testing.T, component string, s syscall.Signal) {
	t.Helper()
	id := pid(t, component)
	if id == 0 {
		t.Fatalf("%s does not run", component)
	}
	if err := syscall.Kill(id, s); err != nil {
		t.Fatalf("send %v to %s, process %d: %v", s, component, id, err)
	}
}

// repair starts what does not run of the local cluster.
func repair(ctx context.Context, t *testing.T) {
	t.Helper()
	if out, err := cluster(ctx, "up").CombinedOutput(); err != nil {
		t.Fatalf("mbcas-cluster up: %v\n%s", err, out)
	}
}
