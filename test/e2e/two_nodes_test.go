package e2e

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/poll"
)

// Namespaces of TestTwoNodes. The competitors of each node have a namespace of their own, so that no
// budget moves between them.
const (
	replicated      = "e2e-replicated"
	fewCompetitors  = "e2e-few-competitors"
	manyCompetitors = "e2e-many-competitors"
)

// The nodes that the test adds. They share the CPUs of this machine, as nodes of kind do, and each counts all of them
// as its own. Each reserves what the other one's pods and the rest of the machine use.
var added = [2]string{"mbcas-node-2", "mbcas-node-3"}

// web is the workload with a replica on each of them. Each spins with two threads, so it needs two cores.
const (
	web     = "web"
	webNeed = 2000
)

// nodeSupply is the allocatable CPU of each, in millicores.
const nodeSupply = 700

// window is the time of one measurement. Within it the price of a node may vary.
const window = 15 * time.Second

// TestTwoNodes: of two equal replicas, one is on a node with more competitors and so gets less. The
// coordinator brings them at least twice as close, in grant over need.
func TestTwoNodes(t *testing.T) {
	s := start(t, func(s *suite) {
		for _, name := range added {
			s.addNode(t, name, fmt.Sprintf("--system-reserved-cpu=%dm", 1000*runtime.NumCPU()-nodeSupply))
		}
	})
	defer uninstall(t)
	// So that the compared nodes differ only in their competitors.
	kubectl(t, "-n", system, "patch", "deployment", "mbcas-controller", "--patch",
		fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:%q}}}}}`, corev1.LabelHostname, s.node))
	s.controllerFlag(t, "--coordination-interval=0s")
	for _, namespace := range []string{replicated, fewCompetitors, manyCompetitors} {
		s.namespace(t, namespace, "enforce")
	}
	r := resources{"25m", "100m", "32Mi"}
	s.deploy(t, fewCompetitors, "competitor", r, spinning(added[0]))
	for i := range 3 {
		s.deploy(t, manyCompetitors, fmt.Sprintf("competitor-%d", i), r, spinning(added[1]))
	}
	d := s.deployment(replicated, web, r, spinning(added[:]...))
	d.Spec.Replicas = new(int32(2)) // one on each node, where the scheduler puts it
	d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: d.Spec.Selector,
	}}
	s.create(t, d)

	coordinate := func(every string) { s.controllerFlag(t, "--coordination-interval="+every) }
	before := s.settle(t, "without the coordinator", untouchedBudgets)
	if before < 0.02 {
		t.Fatalf("without the coordinator they are %.3f apart: nothing to bring closer", before)
	}
	coordinate("30s")
	if with := s.settle(t, "with the coordinator", movedBudgets); with > before/2 {
		t.Errorf("with the coordinator they are %.3f apart, and %.3f without: want at most half", with, before)
	}
	coordinate("0s")
	if again := s.settle(t, "and without it again", untouchedBudgets); again < before*3/4 {
		t.Errorf("without the coordinator they were %.3f apart at first, and are %.3f apart now", before, again)
	}
}

// controllerFlag starts the controller anew with a flag more.
func (s *suite) controllerFlag(t *testing.T, flag string) {
	t.Helper()
	patch := fmt.Sprintf(`[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":%q}]`, flag)
	kubectl(t, "-n", system, "patch", "deployment", "mbcas-controller", "--type=json", "--patch", patch)
	s.rolledOut(t, "deployment/mbcas-controller")
}

// spinning makes a pod of some nodes that spins with two threads from its start.
func spinning(nodes ...string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.NodeSelector = nil
		on := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Values: nodes, Operator: "In"}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{on}}},
			},
		}}
		p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args, "--threads=2")
	}
}

// replica is the state of a pod of the workload.
type replica struct {
	node    string
	applied cpu.Milli
	capped  bool // by the price, at the desired limit
	factor  int32
}

// replicaStates reads both replicas, on the node with the low and with the high price; text describes them.
func (s *suite) replicaStates(t *testing.T) (low, high replica, text string) {
	for _, pod := range s.list(t, replicated, nil) {
		pa, err := s.allocation(t, &pod)
		if err != nil {
			return low, high, pod.Name + ": " + err.Error()
		}
		r := replica{node: pod.Spec.NodeName, factor: 100}
		if pa.Status.AppliedCPULimit != nil {
			r.applied = *pa.Status.AppliedCPULimit
		}
		// Not by the published decision: its price is published late where the limit stays.
		m, _ := s.market(t, r.node) // what cannot be read caps none
		desired := pa.Spec.DesiredCPULimit
		r.capped = desired != nil && m.Capped > 0 && m.Capped == m.Managed && near(r.applied, *desired)
		if c := s.constraints(t, &pod); c != nil && c.CoordinationPercent != nil {
			r.factor = *c.CoordinationPercent
		}
		text += fmt.Sprintf("%s: %s; ", r.node, summary(pa))
		if r.node == added[0] {
			low = r
		} else {
			high = r
		}
	}
	return low, high, text
}

// near says whether two limits differ by less than the controller's dead band.
func near(a, b cpu.Milli) bool { return max(a-b, b-a).Cores() <= 0.11*b.Cores() }

// distance is the state of both replicas during one window.
type distance struct {
	low, high replica // at its end
	capped    bool    // both, by the price, all the time
	// apart is the difference of the means of their limits, over what each wants.
	apart float64
}

func (d distance) String() string {
	return fmt.Sprintf("limits %v (budget %d %%) and %v (%d %%), %.3f of %dm apart",
		d.low.applied, d.low.factor, d.high.applied, d.high.factor, d.apart, webNeed)
}

// measure observes both replicas for one window.
func (s *suite) measure(t *testing.T) (d distance, why string) {
	d.capped = true
	var low, high, n float64
	for until := time.Now().Add(window); time.Now().Before(until) && poll.Sleep(t.Context(), time.Second); n++ {
		d.low, d.high, why = s.replicaStates(t)
		d.capped = d.capped && d.low.capped && d.high.capped
		low, high = low+float64(d.low.applied), high+float64(d.high.applied)
	}
	d.apart = max(low-high, high-low) / n / webNeed
	return d, why
}

// settle waits until both replicas are capped by the price, and their budgets match and have not
// changed for three windows. It returns their mean distance in these windows.
func (s *suite) settle(t *testing.T, what string, matches func(distance) bool) float64 {
	t.Helper()
	var last []distance
	s.wait(t, 8*time.Minute, what+", and their budgets stay", func() (bool, string) {
		d, why := s.measure(t)
		t.Log(d)
		switch {
		case !d.capped || !matches(d):
			last = nil
		case len(last) > 0 && (d.low.factor != last[0].low.factor || d.high.factor != last[0].high.factor):
			last = []distance{d}
		default:
			last = append(last, d)
		}
		return len(last) == 3, why
	})
	mean := (last[0].apart + last[1].apart + last[2].apart) / 3
	t.Logf("%s: %.3f apart", what, mean)
	return mean
}

func untouchedBudgets(d distance) bool { return d.low.factor == 100 && d.high.factor == 100 }

// movedBudgets: the replica that gets less has more budget than its own, and the other less.
func movedBudgets(d distance) bool { return d.high.factor > 100 && d.low.factor < 100 }
