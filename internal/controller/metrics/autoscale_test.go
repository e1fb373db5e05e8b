package metrics

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

var start = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// simPod is a pod with its load. What is published for it is in force at once.
type simPod struct {
	pod    *corev1.Pod
	pa     *v1alpha1.PodAllocation
	born   time.Time
	demand cpu.Milli
	stat   kernel.Stat
}

func newSimPod(name string, labels map[string]string, owner string, request, declared cpu.Milli, now time.Time) *simPod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID(name), Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, Controller: new(true)}},
	}}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(request)},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(declared)},
	}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://" + name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	p := &simPod{pod: pod, pa: allocation.New(pod), born: now}
	p.pa.Status.DeclaredLimits = kube.Limits(pod)
	return p
}

func (p *simPod) limit() cpu.Milli   { return kube.Total(kube.Limits(p.pod)) }
func (p *simPod) request() cpu.Milli { return kube.Containers(p.pod)[0].Request() }

// simNode is a node with its agent.
type simNode struct {
	name  string
	size  cpu.Milli
	pods  []*simPod
	state round.State
	all   time.Duration
}

// second lets a second pass, in which CPU is divided by requests, up to demands and limits, and runs a round.
func (n *simNode) second(now time.Time) {
	problem := market.Problem{Supply: n.size}
	for _, p := range n.pods {
		most := min(p.demand, p.limit())
		problem.Bids = append(problem.Bids, market.Bid{Budget: market.Budget(max(2, p.request())), Demand: most, Ceiling: n.size})
	}
	price := new(market.Solver).Clear(problem).Price
	in := round.Input{Now: now, Node: round.Node{Capacity: n.size, Allocatable: n.size}}
	for i, p := range n.pods {
		use := min(problem.Bids[i].Demand, problem.Bids[i].Limit(price))
		spent := time.Duration(use) * time.Second / time.Duration(cpu.Core)
		p.stat.Usage, n.all = p.stat.Usage+spent, n.all+spent
		if p.stat.Periods += 10; p.demand > p.limit() && use == p.limit() {
			p.stat.Throttled += 10
		}
		told := allocation.NodePod(p.pa, allocation.LimitsOf(p.pa.Status.DeclaredLimits), v1alpha1.Constraints{})
		in.Pods = append(in.Pods, round.PodInput{Pod: allocation.DemandPod(p.pod, &told, n.size), Published: allocation.Published(p.pa)})
		in.Sample.Pods = append(in.Sample.Pods, kernel.PodSample{
			Pod: p.pod.Name, Own: kernel.Group{Found: true, At: now},
			Containers: []kernel.Group{{ID: p.pod.Name, Found: true, At: now, Stat: p.stat, Pressure: kernel.Pressure{Known: true}}},
		})
	}
	used := kernel.KnownTotal(n.all)
	in.Sample.Node = kernel.NodeSample{At: now, Usage: used, Kubepods: used,
		Idle: kernel.KnownTotal(time.Duration(n.size)*now.Sub(start)/time.Duration(cpu.Core) - n.all)}
	var out round.Output
	n.state, out = round.Run(round.DefaultConfig(), n.state, in)
	for _, d := range out.Decisions {
		if p := n.pods[d.Pod]; d.Publish {
			p.pa.Spec = allocation.DecisionSpec(d, in.Pods[d.Pod].Weights, out.Node, now)
			p.pod = kube.WithLimits(p.pod, kube.ByName(p.pa.Spec.Containers))
		}
	}
}

// report tells the controller's metrics of the node.
func (n *simNode) report(m *Metrics, now time.Time) {
	var pods []Pod
	for _, p := range n.pods {
		facts := allocation.Facts(p.pod, p.pa.Status.DeclaredLimits, n.size, nil)
		facts.Mode, facts.Decision = lifecycle.ModeEnforce, allocation.DecisionOf(p.pa, 0, 0)
		pods = append(pods, Count(p.pod, p.pa, &facts, allocation.StatusOf(&p.pa.Status), time.Minute))
	}
	m.Allocations(n.name, pods)
}

// reading is what Prometheus scrapes of the workload.
type reading struct{ demand, deficit, certain float64 }

func scrape(t *testing.T, reg *prometheus.Registry) (r reading, ok bool) {
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		into := map[string]*float64{"mbcas_workload_demand_cores": &r.demand, "mbcas_workload_deficit_cores": &r.deficit,
			"mbcas_workload_certain_cores": &r.certain}[f.GetName()]
		for _, s := range f.GetMetric() {
			if into == nil {
				continue
			}
			labels := map[string]string{}
			for _, l := range s.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["namespace"] == "shop" && labels["kind"] == "Deployment" && labels["workload"] == "web" {
				*into, ok = s.GetGauge().GetValue(), true
			}
		}
	}
	return r, ok
}

// pressure is the recording rule mbcas:workload_share_pressure:ratio of ../../../monitoring/rules.yaml.
func pressure(r reading) float64 {
	if r.deficit > 0 {
		return r.demand / (r.demand - r.deficit)
	}
	return min(1, r.demand/r.certain)
}

// scaler is the rule of the HorizontalPodAutoscaler for an external metric with a Value: Kubernetes 1.36,
// pkg/controller/podautoscaler, GetExternalMetricReplicas of replica_calculator.go and stabilizeRecommendation and
// calculateScaleUpLimitWithScalingRules of horizontal.go. It has the defaults but for the scale-up of docs/autoscalers.md.
type scaler struct {
	min, max  int
	target    float64
	scaleUp   time.Duration // the number may grow by half in this time
	told      []recommendation
	increases []recommendation // by so many
}

type recommendation struct {
	at       time.Time
	replicas int
}

func (h *scaler) replicas(now time.Time, current, ready int, metric float64) int {
	want := current
	if ratio := metric / h.target; math.Abs(ratio-1) > 0.1 {
		want = int(math.Ceil(ratio * float64(ready)))
	}
	want = max(h.min, min(h.max, want))
	h.told = slices.DeleteFunc(h.told, func(r recommendation) bool { return now.Sub(r.at) > 300*time.Second })
	h.told = append(h.told, recommendation{now, want})
	if want < current {
		for _, r := range h.told {
			want = max(want, r.replicas)
		}
		return min(want, current)
	}
	h.increases = slices.DeleteFunc(h.increases, func(r recommendation) bool { return now.Sub(r.at) >= h.scaleUp })
	before := current
	for _, r := range h.increases {
		before -= r.replicas
	}
	if want = max(current, min(want, (3*before+1)/2)); want > current {
		h.increases = append(h.increases, recommendation{now, want - current})
	}
	return want
}

// loop is a workload on nodes where other pods take all that they get, an autoscaler, and what came of both.
type loop struct {
	nodes    []*simNode
	now      time.Time
	replicas int
	request  cpu.Milli
	made     int
	web      []*simPod
	scaler   scaler
	metric   func(reading) float64
	registry *prometheus.Registry
	metrics  *Metrics
	scraped  []reading
	history  []int // replicas, every 15 s
	ratio    float64
}

// late is how old the figures are that the autoscaler sees: a scrape, and the interval of the recording rule.
const late = 30 * time.Second

// starts is the time from the autoscaler's decision until a new replica serves.
const starts = 10 * time.Second

func newLoop(nodes int, size, hog, request cpu.Milli, replicas int, metric func(reading) float64) *loop {
	l := &loop{now: start, request: request, metric: metric, registry: prometheus.NewRegistry()}
	l.metrics = New(l.registry)
	l.scaler = scaler{min: replicas, max: 40, target: 1, scaleUp: time.Minute}
	for i := range nodes {
		n := &simNode{name: fmt.Sprintf("node-%d", i), size: size}
		batch := newSimPod(fmt.Sprintf("batch-%d", i), nil, "batch-abc", hog, size, start)
		batch.demand = size
		n.pods = append(n.pods, batch)
		l.nodes = append(l.nodes, n)
	}
	l.scale(replicas)
	return l
}

// scale adds replicas on the nodes with the most requests left, or removes the youngest.
func (l *loop) scale(replicas int) {
	for ; l.replicas < replicas; l.replicas++ {
		free := func(n *simNode) (left cpu.Milli) {
			left = n.size
			for _, p := range n.pods {
				left -= p.request()
			}
			return left
		}
		n := slices.MaxFunc(l.nodes, func(a, b *simNode) int { return int(free(a) - free(b)) })
		if free(n) < l.request {
			return // it stays pending
		}
		labels := map[string]string{kube.ShareSignalKey: "true", "pod-template-hash": "abc"}
		p := newSimPod(fmt.Sprintf("web-%d", l.made), labels, "web-abc", l.request, 2*l.request, l.now)
		n.pods, l.web, l.made = append(n.pods, p), append(l.web, p), l.made+1
	}
	for ; l.replicas > replicas; l.replicas-- {
		gone := l.web[len(l.web)-1]
		l.web = l.web[:len(l.web)-1]
		for _, n := range l.nodes {
			n.pods = slices.DeleteFunc(n.pods, func(p *simPod) bool { return p == gone })
		}
	}
}

// run serves a demand for a while, divided evenly over the replicas that serve.
func (l *loop) run(t *testing.T, demand cpu.Milli, lasts time.Duration) {
	for end := l.now.Add(lasts); l.now.Before(end); {
		l.now = l.now.Add(time.Second)
		var ready []*simPod
		for _, p := range l.web {
			if p.demand = 0; l.now.Sub(p.born) >= starts || p.born.Equal(start) {
				ready = append(ready, p)
			}
		}
		for _, p := range ready {
			p.demand = demand / cpu.Milli(len(ready))
		}
		for _, n := range l.nodes {
			n.second(l.now)
		}
		if l.now.Sub(start)%(15*time.Second) != 0 {
			continue
		}
		for _, n := range l.nodes {
			n.report(l.metrics, l.now)
		}
		r, ok := scrape(t, l.registry)
		if l.history = append(l.history, l.replicas); !ok {
			continue // an autoscaler without a metric changes nothing
		}
		l.scraped = append(l.scraped, r)
		l.ratio = l.metric(l.scraped[max(0, len(l.scraped)-1-int(late/(15*time.Second)))])
		l.scale(l.scaler.replicas(l.now, l.replicas, len(ready), l.ratio))
	}
}

// turns is how often the number of replicas goes the other way.
func turns(history []int) (n int) {
	way := 0
	for i := 1; i < len(history); i++ {
		if d := history[i] - history[i-1]; d != 0 {
			if way*d < 0 {
				n++
			}
			way = d
		}
	}
	return n
}

// TestScalesOutUnderScarcityAndInAgain: an autoscaler on the share signal adds replicas until their budgets buy what
// they demand, half too many at most, keeps them while it is so, and removes them when the demand is gone. What a
// throttled pod demands is an estimate, and the autoscaler sees it late, so that it may turn once on the way out.
func TestScalesOutUnderScarcityAndInAgain(t *testing.T) {
	l := newLoop(3, 4000, 1500, 500, 2, pressure)
	l.run(t, 800, 10*time.Minute)
	if l.replicas != 2 || turns(l.history) > 0 {
		t.Errorf("without scarcity: %v", l.history)
	}
	l.history = nil
	l.run(t, 6000, time.Hour)
	busy := l.replicas
	if busy < 9 || busy > 14 || turns(l.history) > 1 || 2*slices.Max(l.history) > 3*busy || l.ratio > 1.1 {
		t.Errorf("under scarcity: %d replicas, signal %v, history %v", busy, l.ratio, l.history)
	}
	if last := l.history[len(l.history)-120:]; slices.Min(last) != slices.Max(last) {
		t.Errorf("the number of replicas does not come to rest: %v", last)
	}
	l.history = nil
	l.run(t, 800, time.Hour)
	if l.replicas != 2 || turns(l.history) > 0 {
		t.Errorf("when it is over: %d replicas, signal %v, history %v", l.replicas, l.ratio, l.history)
	}
	if l.history[18] != busy {
		t.Errorf("replicas are removed within five minutes: %v", l.history)
	}
}

// TestADeficitAloneOscillates is why the signal is no plain deficit: that is 0 as soon as there are enough replicas, and
// an autoscaler takes 0 for none needed.
func TestADeficitAloneOscillates(t *testing.T) {
	l := newLoop(3, 4000, 1500, 500, 2, func(r reading) float64 { return 10 * r.deficit / r.demand })
	l.run(t, 6000, 2*time.Hour)
	if n := turns(l.history); n < 6 {
		t.Errorf("%d turns in two hours: %v", n, l.history)
	}
}

// TestScalingComesToRest: whatever nodes, neighbours, requests and demands there are, the number of replicas comes to
// rest while the demand is constant, and the autoscaler goes one way and back once at most after each step of it.
func TestScalingComesToRest(t *testing.T) {
	for seed := range uint64(16) {
		r := rand.New(rand.NewPCG(seed, 0))
		between := func(low, high int) cpu.Milli { return cpu.Milli(low+r.IntN(high-low+1)) * 100 }
		l := newLoop(1+r.IntN(4), 4000, between(1, 25), between(2, 8), 1+r.IntN(3), pressure)
		for range 3 {
			l.history = nil
			demand := between(1, 80)
			l.run(t, demand, 40*time.Minute)
			if n := turns(l.history); n > 1 {
				t.Errorf("seed %d: %d turns at a demand of %v: %v", seed, n, demand, l.history)
			}
			if last := l.history[len(l.history)-60:]; slices.Min(last) != slices.Max(last) {
				t.Errorf("seed %d: no rest at a demand of %v: %v", seed, demand, l.history)
			}
		}
	}
}
