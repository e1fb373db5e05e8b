package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

// reaches waits until the kernel enforces a limit of the pod's first container that suits.
func (s *suite) reaches(t *testing.T, most time.Duration, pod *corev1.Pod, what string, suits func(cpu.Milli) bool) {
	t.Helper()
	s.wait(t, most, pod.Labels["app"]+" "+what, func() (bool, string) {
		now := s.quota(t, pod)
		pa, err := s.allocation(t, pod)
		return suits(now), orError(err, "quota %v, supply of the node %v; %s", now, s.supply(t), summary(pa))
	})
}

// has waits until the kernel enforces that limit.
func (s *suite) has(t *testing.T, most time.Duration, pod *corev1.Pod, limit cpu.Milli) {
	t.Helper()
	s.reaches(t, most, pod, fmt.Sprintf("has a limit of %v", limit), func(q cpu.Milli) bool { return q == limit })
}

// raise has the pod use its whole limit until that is most of the node, where it stays when the pod is idle.
func (s *suite) raise(t *testing.T, most time.Duration, pod *corev1.Pod) {
	t.Helper()
	s.spin(t, pod, 1)
	s.rises(t, most, pod)
	s.spin(t, pod, 0)
}

// rises waits until the pod may use most of the node.
func (s *suite) rises(t *testing.T, most time.Duration, pod *corev1.Pod) {
	t.Helper()
	s.reaches(t, most, pod, "may use most of the node", func(q cpu.Milli) bool { return s.mostOfNode(t, q) })
}

// falls waits until the pod may no longer use most of the node.
func (s *suite) falls(t *testing.T, most time.Duration, pod *corev1.Pod) {
	t.Helper()
	const what = "is lowered to about half of the node"
	s.reaches(t, most, pod, what, func(q cpu.Milli) bool { return !s.mostOfNode(t, q) })
}

// mostOfNode says whether a pod may have that only where the others leave it, and where its limit was
// raised.
func (s *suite) mostOfNode(t *testing.T, q cpu.Milli) bool {
	return q > max(declared, s.supply(t)*6/10)
}

// supply is that of the node's market: less than the allocatable CPU while processes that are not in pods use much.
// A Lease that cannot be read changes nothing.
func (s *suite) supply(t *testing.T) cpu.Milli {
	if m, err := s.market(t, s.node); err == nil && m.Supply > 0 {
		s.lastSupply = m.Supply
	}
	return s.lastSupply
}

// market is that of a node, as its agent last published it with its Lease.
func (s *suite) market(t *testing.T, node string) (allocation.NodeMarket, error) {
	ctx, cancel := context.WithTimeout(t.Context(), s.deadline(5*time.Second))
	defer cancel()
	var lease coordinationv1.Lease
	err := s.Get(ctx, client.ObjectKey{Namespace: system, Name: kube.AgentLease(node)}, &lease)
	m, bad := allocation.ParseNodeMarket(lease.Annotations[kube.MarketKey])
	return m, errors.Join(err, bad)
}

// allocation is the pod's PodAllocation.
func (s *suite) allocation(t *testing.T, pod *corev1.Pod) (*v1alpha1.PodAllocation, error) {
	var pa v1alpha1.PodAllocation
	err := s.Get(t.Context(), client.ObjectKey{Namespace: pod.Namespace, Name: string(pod.UID)}, &pa)
	return &pa, err
}

// waitAllocation waits until the pod's allocation is as it should be, and returns it.
func (s *suite) waitAllocation(
	t *testing.T, most time.Duration, pod *corev1.Pod, what string, is func(*v1alpha1.PodAllocation) bool,
) (found *v1alpha1.PodAllocation) {
	t.Helper()
	s.wait(t, most, "the allocation of "+pod.Name+": "+what, func() (bool, string) {
		pa, err := s.allocation(t, pod)
		found = pa
		return err == nil && is(pa), orError(err, "%s", summary(pa))
	})
	return found
}

// inPhase waits until the pod's allocation is in that phase.
func (s *suite) inPhase(t *testing.T, pod *corev1.Pod, phase v1alpha1.Phase) *v1alpha1.PodAllocation {
	t.Helper()
	return s.waitAllocation(t, time.Minute, pod, string(phase), func(pa *v1alpha1.PodAllocation) bool {
		return pa.Status.Phase == phase
	})
}

// allocations is a line about every allocation of the namespace.
func (s *suite) allocations(t *testing.T, namespace string) (text string) {
	var list v1alpha1.PodAllocationList
	if err := s.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
		return err.Error()
	}
	for _, pa := range list.Items {
		text += fmt.Sprintf("\n  %s: %s", pa.Spec.PodRef.Name, summary(&pa))
	}
	return text
}

func summary(pa *v1alpha1.PodAllocation) string {
	st := pa.Status
	text := fmt.Sprintf("phase %s %s (%s), applied %v", st.Phase, st.Reason, st.Message, st.AppliedLimits)
	if d := pa.Spec.Decision; d != nil {
		text += fmt.Sprintf(", desired %v of %v to %v, demand %v, price %s, %s",
			*pa.Spec.DesiredCPULimit, d.Floor, d.Ceiling, d.Demand, d.Price, d.BoundBy)
	}
	return text
}

// constraints are those that the agent is told for a pod; nil: none.
func (s *suite) constraints(t *testing.T, pod *corev1.Pod) *v1alpha1.Constraints {
	t.Helper()
	var n v1alpha1.NodeAllocation
	if err := s.Get(t.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, &n); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	for _, p := range n.Spec.Pods {
		if p.UID == pod.UID {
			return p.Constraints
		}
	}
	return nil
}

// waitConstraints waits until the constraints of a pod are as wanted, and returns them.
func (s *suite) waitConstraints(
	t *testing.T, most time.Duration, pod *corev1.Pod, what string, is func(*v1alpha1.Constraints) bool,
) (c *v1alpha1.Constraints) {
	t.Helper()
	s.wait(t, most, pod.Name+": "+what, func() (bool, string) {
		c = s.constraints(t, pod)
		return c != nil && is(c), fmt.Sprintf("%+v", c)
	})
	return c
}

// warmUp is how many rounds an agent, or a new container, is only watched.
const warmUp = 10

// rounds waits until the agents that run now have decided n more rounds: the one measure of time in
// which they could have done something.
func (s *suite) rounds(t *testing.T, n int) {
	t.Helper()
	first := -1
	most := time.Duration(n)*3*time.Second + 90*time.Second
	s.wait(t, most, fmt.Sprintf("%d more rounds", n), func() (bool, string) {
		played, err := s.played(t)
		if err != nil {
			first = -1 // an agent that starts anew counts from 0
			return false, err.Error()
		}
		if first < 0 || played < first {
			first = played
		}
		return played >= first+n, fmt.Sprintf("%d of %d", played-first, n)
	})
}

// agent is the agent's pod on the node of the test; nil where there is none.
func (s *suite) agent(t *testing.T) *corev1.Pod {
	for _, p := range s.list(t, system, client.MatchingLabels{"app.kubernetes.io/component": "agent"}) {
		if p.DeletionTimestamp == nil && p.Status.PodIP != "" && p.Spec.NodeName == s.node {
			return &p
		}
	}
	return nil
}

// played is how many rounds the node's agent has played since it started.
func (s *suite) played(t *testing.T) (int, error) {
	agent := s.agent(t)
	if agent == nil {
		return 0, fmt.Errorf("no agent on %s", s.node)
	}
	return roundsOf(t, agent)
}

// roundsOf is how many rounds an agent has played since it started.
func roundsOf(t *testing.T, agent *corev1.Pod) (int, error) {
	text, err := traffic.Get(t.Context(), http.DefaultClient, "http://"+agent.Status.PodIP+":9090/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		var n float64
		if _, err := fmt.Sscanf(line, `mbcas_agent_rounds_total{result="completed"} %g`, &n); err == nil {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("the agent on %s has played no round", agent.Spec.NodeName)
}
