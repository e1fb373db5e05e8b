package controller

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// waitRounds is how many increases of each node and kind are measured, on so few nodes that no budget of resizes
// is a bound; a kubelet reports a resize after a time between leastFlight and mostFlight.
const (
	waitNodes   = 5
	waitRounds  = 20
	leastFlight = time.Second
	mostFlight  = 2 * time.Second
)

// waitKind is one of the situations in which the increase of a throttled pod may wait for a decrease.
type waitKind struct {
	name    string
	kubelet string
	own     bool  // the decrease is one of the pod itself; else one of another pod of its node
	budget  int64 // above half of the demand the price does not cap the pod
}

var waitKinds = []waitKind{
	{"own-decrease", "v1.36.0", true, 1e6},
	{"own-decrease-kubelet-1.33", "v1.33.5", true, 1e6},
	{"beside-decrease", "v1.36.0", false, 1e6},
	{"capped-beside-decrease", "v1.36.0", false, 20},
}

// BenchmarkWaits runs the controller as it ships, on the real API server with five nodes of which CPU is scarce,
// and reports from its audit record how long increases of throttled pods take from the decision to the attempt,
// while a decrease is in flight: one of the pod itself, or of another pod of its node.
func BenchmarkWaits(b *testing.B) {
	for b.Loop() {
		c := startController(b)
		ns := c.server.Namespace(b)
		kubelets := make([]*apiserver.Kubelet, waitNodes)
		for i := range kubelets {
			kubelets[i] = c.server.Kubelet(b, fmt.Sprintf("waits-%d", i))
			c.nodes = append(c.nodes, kubelets[i].Node)
		}
		c.hear(b)
		for _, kind := range waitKinds {
			raised := c.run(b, ns, "raised-"+kind.name, waitNodes)
			lowered := raised
			if !kind.own {
				lowered = c.run(b, ns, "lowered-"+kind.name, waitNodes)
			}
			for i := range kubelets {
				kubelets[i].SetVersion(b, kind.kubelet)
			}
			c.raiseAll(b, slices.Concat(raised, lowered), waitStart)
			limit := cpu.Milli(waitStart)
			for range waitRounds {
				c.hear(b)
				c.lower(b, kubelets, lowered, kind.own, limit)
				limit = (limit * 23 / 20).RoundUp(cpu.Quantum)
				for _, pod := range raised {
					c.decideAt(b, pod, limit, kind.budget)
				}
				c.have(b, raised, limit)
				for _, pod := range slices.Concat(raised, lowered) {
					c.inForce(b, pod)
				}
			}
			ages := c.ages(b, "raised-"+kind.name)
			b.ReportMetric(1000*ages[len(ages)/2], "ms-p50/"+kind.name)
			b.ReportMetric(1000*ages[len(ages)*99/100], "ms-p99/"+kind.name)
		}
	}
}

// waitStart is the limit of each pod at first. Each round raises one by 15 %.
const waitStart = 200

// lower lowers a pod of each node, and returns when these decreases are in flight. Another pod than the one that is
// to be raised has its limit back first.
func (c *process) lower(b *testing.B, kubelets []*apiserver.Kubelet, pods []*corev1.Pod, own bool, limit cpu.Milli) {
	b.Helper()
	if !own {
		limit = waitStart
		c.raiseAll(b, pods, limit)
		for _, pod := range pods {
			c.inForce(b, pod)
		}
	}
	limit = (limit * 4 / 5).RoundUp(cpu.Quantum)
	for i, k := range kubelets {
		k.Answer(pods[i], apiserver.Stall)
		c.decideAt(b, pods[i], limit, 20)
		time.AfterFunc(leastFlight+rand.N(mostFlight-leastFlight), func() { k.Answer(pods[i], apiserver.Obey) })
	}
	c.have(b, pods, limit)
}

// inForce waits until the controller has seen that the kubelet carried the pod's last resize out.
func (c *process) inForce(b *testing.B, pod *corev1.Pod) {
	b.Helper()
	apiserver.Eventually(b, "in force", func() (bool, any) {
		pa := &v1alpha1.PodAllocation{}
		err := c.server.Client.Get(b.Context(), client.ObjectKey{Namespace: pod.Namespace, Name: string(pod.UID)}, pa)
		return err == nil && pa.Status.Phase != v1alpha1.PhasePending, err
	})
}

// decideAt decides about a pod that demands all it may have, where CPU is scarce.
func (c *process) decideAt(b *testing.B, pod *corev1.Pod, limit cpu.Milli, budget int64) {
	b.Helper()
	d := capped(v1alpha1.BoundByPrice)
	d.Demand, d.Budget = 2*limit, budget
	c.decide(b, pod, limit, d)
}

// ages are the ages of decisions when increases of throttled pods were made, in seconds and in order.
func (c *process) ages(b *testing.B, prefix string) (ages []float64) {
	b.Helper()
	lines := bufio.NewScanner(strings.NewReader(c.audit.String()))
	for lines.Scan() {
		var l struct {
			Pod, Priority, Outcome string
			From, To               map[string]cpu.Milli
			Age                    float64
		}
		must.Succeed(b, json.Unmarshal(lines.Bytes(), &l))
		if strings.HasPrefix(l.Pod, prefix) && l.Priority == flowcontrol.Needed.String() && l.Outcome == "Accepted" && l.To["app"] > waitStart {
			ages = append(ages, l.Age)
		}
	}
	slices.Sort(ages)
	if len(ages) != waitNodes*waitRounds {
		b.Fatalf("%d increases in the audit record, want %d", len(ages), waitNodes*waitRounds)
	}
	return ages
}
