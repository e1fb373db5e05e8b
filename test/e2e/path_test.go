package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/cli/forward"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/story"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/test/internal/guard"
)

const (
	shop = "e2e-shop"
	// declared is the CPU limit of every managed pod here.
	declared = cpu.Milli(300)
)

// managed are the pods of the shop that MBCAS may resize; all others are witnesses.
var managed = []string{"web", "batch"}

// path is the state that the steps of the end-to-end path share.
type path struct {
	*suite
	pods map[string]*corev1.Pod // of the shop, as they started
}

// TestPath follows one node from an installation to its removal: limits are decided, raised, kept while
// MBCAS is killed, lowered, and restored.
func TestPath(t *testing.T) {
	(&path{suite: start(t)}).run(t)
}

// run runs the steps. Each starts from the state in which the one before it ended, so the first failure
// ends the test.
func (s *path) run(t *testing.T) {
	s.open(t)
	for _, step := range []struct {
		name string
		run  func(*path, *testing.T)
	}{
		{"PodsRunUnprivileged", (*path).podsRunUnprivileged},
		{"LastRoundIsOnLoopback", (*path).lastRoundIsOnLoopback},
		{"IdleNodeRaisesLimits", (*path).idleNodeRaisesLimits},
		{"KilledOnAnIdleNode", (*path).killedOnAnIdleNode},
		{"ContentionLowersLimits", (*path).contentionLowersLimits},
		{"ReleaseRaisesAtOnce", (*path).releaseRaisesAtOnce},
		{"RecordingReplays", (*path).recordingReplays},
		{"RestoreIsExact", (*path).restoreIsExact},
		{"WitnessesAreUntouched", (*path).witnessesAreUntouched},
		{"UninstallRestoresFirst", (*path).uninstallRestoresFirst},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(s, t) }) {
			t.Fatalf("the test ends at %s; allocations of the shop:%s", step.name, s.allocations(t, shop))
		}
	}
}

// open starts the shop: two managed pods, and witnesses that must never be resized.
func (s *path) open(t *testing.T) {
	s.namespace(t, shop, "enforce")
	r := resources{"100m", "300m", "32Mi"}
	for _, app := range managed {
		s.deploy(t, shop, app, r)
	}
	s.bare(t, shop, "guaranteed", resources{"50m", "50m", "32Mi"}, nil)
	s.bare(t, shop, "besteffort", resources{}, nil)
	s.bare(t, shop, "unlimited", resources{"50m", "", ""}, nil)
	s.bare(t, shop, "optedout", r, map[string]string{"mbcas.io/managed": "false"})
	s.pods = s.suite.pods(t, shop)
	if len(s.pods) != 6 {
		t.Fatalf("%d pods in the shop, want 6", len(s.pods))
	}
}

func (s *path) podsRunUnprivileged(t *testing.T) {
	accounts := map[string]bool{}
	for _, p := range s.list(t, system, nil) {
		accounts[p.Spec.ServiceAccountName] = true
		sc := p.Spec.SecurityContext
		if p.Spec.HostNetwork || p.Spec.HostPID || sc == nil || !*sc.RunAsNonRoot {
			t.Errorf("%s may be root or can access the host's network or processes", p.Name)
		}
		for _, c := range p.Spec.Containers {
			sc := c.SecurityContext
			if sc == nil || *sc.AllowPrivilegeEscalation || !*sc.ReadOnlyRootFilesystem ||
				!slices.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(sc.Capabilities.Add) > 0 {
				t.Errorf("%s/%s is not confined: %+v", p.Name, c.Name, sc)
			}
		}
	}
	if !accounts["mbcas-agent"] || !accounts["mbcas-controller"] {
		t.Errorf("service accounts %v: want those of the agent and the controller", accounts)
	}
}

// lastRoundIsOnLoopback: what names pods can be read through pods/portforward, and neither from the network
// nor through pods/proxy.
func (s *path) lastRoundIsOnLoopback(t *testing.T) {
	agent := s.agent(t)
	if agent == nil {
		t.Fatalf("no agent on %s", s.node)
	}
	pod := client.ObjectKeyFromObject(agent)
	var last allocation.RoundReport
	s.wait(t, time.Minute, "the last round names the managed pods", func() (bool, string) {
		data, err := forward.Get(t.Context(), s.access, pod, kube.AgentDebugPort, "/debug/round")
		if err == nil {
			err = json.Unmarshal(data, &last)
		}
		return err == nil && len(last.Pods) >= len(managed), orError(err, "%d pods", len(last.Pods))
	})
	address := net.JoinHostPort(agent.Status.PodIP, strconv.Itoa(kube.AgentDebugPort))
	if c, err := net.DialTimeout("tcp", address, s.deadline(5*time.Second)); err == nil {
		c.Close()
		t.Errorf("%s, the port for what names pods, is open to the network", address)
	}
	for _, port := range []string{"9090", strconv.Itoa(kube.AgentDebugPort)} {
		out, err := exec.CommandContext(t.Context(), "kubectl", "get", "--raw",
			fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%s/proxy/debug/round", pod.Namespace, pod.Name, port),
		).CombinedOutput()
		if err == nil {
			t.Errorf("pods/proxy on port %s answers /debug/round: %s", port, out)
		}
	}
}

// recordingReplays: what the agent has recorded of the real node since it was started anew gives
// the same results here, and tells that the limit of a pod was lowered under contention. A starved
// node may have had no looks.
func (s *path) recordingReplays(t *testing.T) {
	agent := s.agent(t)
	if agent == nil {
		t.Fatalf("no agent on %s", s.node)
	}
	pod := client.ObjectKeyFromObject(agent)
	file, err := forward.Get(t.Context(), s.access, pod, kube.AgentDebugPort, "/debug/rounds")
	must.Succeed(t, err)
	rec, err := record.Open(bytes.NewReader(file))
	must.Succeed(t, err)
	told, err := story.Tell(rec, story.Pod(shop, s.pods[managed[0]].Name))
	must.Succeed(t, err)
	r := told.Replayed
	if r.First != nil || r.Rounds < 20 || r.Decisions < r.Rounds {
		t.Errorf("%+v; the first difference: %v", r, r.First)
	}
	if !strings.Contains(told.Text(), "is to be lowered from") {
		t.Errorf("no decrease is told:\n%s", told.Text())
	}
	t.Logf("%d rounds, %d looks, %d joins in %d bytes", r.Rounds, r.Looks, r.Joins, len(file))
}

// tellsIfFailed logs what the agent has recorded of the last minutes, in sentences, when the test fails.
func (s *suite) tellsIfFailed(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.deadline(20*time.Second))
		defer cancel()
		var pods corev1.PodList
		agents := client.MatchingLabels{"app.kubernetes.io/component": "agent"}
		err := s.List(ctx, &pods, client.InNamespace(system), agents)
		if err != nil || len(pods.Items) == 0 {
			t.Logf("no agent tells what happened: %v", err)
			return
		}
		pod := client.ObjectKeyFromObject(&pods.Items[0])
		file, err := forward.Get(ctx, s.access, pod, kube.AgentDebugPort, "/debug/rounds")
		if err != nil {
			t.Logf("no recording: %v", err)
			return
		}
		rec, err := record.Open(bytes.NewReader(file))
		if err != nil {
			t.Logf("no recording: %v", err)
			return
		}
		rec.Minutes = rec.Minutes[max(0, len(rec.Minutes)-4):]
		told, err := story.Tell(rec, story.Everything)
		t.Logf("what happened (%v):\n%s", err, told.Text())
	})
}

func (s *path) idleNodeRaisesLimits(t *testing.T) {
	for _, app := range managed {
		s.raise(t, 3*time.Minute, s.pods[app])
		pa := s.inPhase(t, s.pods[app], v1alpha1.PhaseApplied)
		if d := pa.Status.DeclaredLimits; len(d) != 1 || d[0].CPULimit != declared {
			t.Errorf("%s: declared limits %v, want %v", app, d, declared)
		}
	}
}

// contentionLowersLimits: both pods demand the whole node, so each is capped at about half of it.
func (s *path) contentionLowersLimits(t *testing.T) {
	for _, app := range managed { // the supply may have risen since, as the machine came to rest
		s.raise(t, 3*time.Minute, s.pods[app])
	}
	for _, app := range managed {
		s.spin(t, s.pods[app], 2)
	}
	for _, app := range managed {
		s.falls(t, 3*time.Minute, s.pods[app])
		if q := s.quota(t, s.pods[app]); q < 100 {
			t.Errorf("%s has %v: want no managed pod below its request of 100m", app, q)
		}
	}
}

// restartRounds is after how many rounds a new agent decides again.
const restartRounds = warmUp + 5

// killedOnAnIdleNode: new instances of agent and controller, which end at once, change nothing.
func (s *path) killedOnAnIdleNode(t *testing.T) {
	before := s.atRest(t, shop, restartRounds)
	const component = "app.kubernetes.io/component"
	kubectl(t, "-n", system, "delete", "pod", "-l", component+" in (agent, controller)", "--grace-period=0", "--force")
	// `kubectl rollout status` may still count the old pods.
	s.wait(t, 5*time.Minute, "new pods of agent and controller are Ready", func() (bool, string) {
		ready := map[string]bool{}
		for _, p := range s.list(t, system, nil) {
			if !isReady(&p) {
				return false, p.Name + " is not"
			}
			ready[p.Labels[component]] = true
		}
		return ready["agent"] && ready["controller"], fmt.Sprint(ready)
	})
	s.rounds(t, restartRounds)
	if now := s.count(t, shop); now != before {
		t.Errorf("%d resizes, there were %d before agent and controller were killed: want none more%s",
			now, before, s.allocations(t, shop))
	}
}

func (s *path) releaseRaisesAtOnce(t *testing.T) {
	s.spin(t, s.pods["web"], 1) // alone it fits into the node
	s.spin(t, s.pods["batch"], 0)
	s.rises(t, 3*time.Minute, s.pods["web"])
	s.spin(t, s.pods["web"], 0)
	s.spin(t, s.pods["batch"], 1) // a pod that needs no more than its limit keeps it
	s.rises(t, 3*time.Minute, s.pods["batch"])
}

// restoreIsExact: in mode restore each pod gets exactly its declared limit, in the kernel and in its
// spec.
func (s *path) restoreIsExact(t *testing.T) {
	s.setMode(t, shop, "restore")
	for _, app := range managed {
		s.has(t, time.Minute, s.pods[app], declared)
		s.inPhase(t, s.pods[app], v1alpha1.PhaseRestored)
		if got := limit(s.pod(t, s.pods[app])); got != declared {
			t.Errorf("%s: limit %v in the spec, want %v", app, got, declared)
		}
	}
}

func (s *path) witnessesAreUntouched(t *testing.T) {
	resized := s.resizes(t, shop)
	for name, started := range s.pods {
		now := s.pod(t, started)
		if now.UID != started.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s was replaced or restarted", name)
		}
		if was := untouched(started); untouched(now) != was {
			t.Errorf("%s: more than CPU limits changed:\n%s\nwas\n%s", name, untouched(now), was)
		}
		if slices.Contains(managed, name) {
			continue
		}
		if n := len(resized[started.Name]); n > 0 || now.Generation != started.Generation {
			t.Errorf("%s was touched: %d resizes, generation %d and %d", name, n, started.Generation, now.Generation)
		}
	}
	for name, writes := range resized {
		for _, w := range writes {
			if w.user != guard.Controller {
				t.Errorf("%s was resized by %s", name, w.user)
			}
		}
	}
}

func (s *path) uninstallRestoresFirst(t *testing.T) {
	s.spin(t, s.pods["batch"], 0)
	s.setMode(t, shop, "enforce")
	s.raise(t, 3*time.Minute, s.pods["web"]) // what was decided before may be less: batch may have demanded a CPU
	uninstall(t)
	for _, app := range managed {
		if got := limit(s.pod(t, s.pods[app])); got != declared {
			t.Errorf("%s: limit %v after the uninstallation, want %v", app, got, declared)
		}
	}
	crd := func(kind string) client.Object {
		name := kind + ".allocation.mbcas.io"
		return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "mbcas-controller"}},
		crd("podallocations"), crd("nodeallocations"), crd("demandsignals"),
	} {
		s.wait(t, time.Minute, o.GetName()+" is gone", func() (bool, string) {
			err := s.Get(t.Context(), client.ObjectKeyFromObject(o), o)
			return errors.IsNotFound(err), orError(err, "still there")
		})
	}
}
