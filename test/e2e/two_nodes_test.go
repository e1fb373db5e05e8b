package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/poll"
)

// Namespaces of TestTwoNodes. The competitors of each node have a namespace of their own, so that no budget moves between them.
const (
	replicated      = "e2e-replicated"
	fewCompetitors  = "e2e-few-competitors"
	manyCompetitors = "e2e-many-competitors"
)

// The nodes that the test adds. They share the CPUs of this machine, as nodes of kind do, and each counts all of them as its own.
// Each reserves what the other one's pods and the rest of the machine use.
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

// TestTwoNodes: of two equal replicas, one is on a node with more competitors and so gets less. The coordinator brings them at least
// twice as close, in grant over need.
func TestTwoNodes(t *testing.T) {
	s := start(t)
	s.addNodes(t)
	s.install(t)
	defer uninstall(t)
	// So that the compared nodes differ only in their competitors.
	kubectl(t, "-n", system, "patch", "deployment", "mbcas-controller",
		"--patch", fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:%q}}}}}`, corev1.LabelHostname, s.node))
	controllerFlag(t, "--coordination-interval=0s")
	for _, namespace := range []string{replicated, fewCompetitors, manyCompetitors} {
		s.namespace(t, namespace, "enforce")
	}
	s.deploy(t, fewCompetitors, "competitor", resources{"25m", "100m", "32Mi"}, spinning(added[0]))
	for i := range 3 {
		s.deploy(t, manyCompetitors, fmt.Sprintf("competitor-%d", i), resources{"25m", "100m", "32Mi"}, spinning(added[1]))
	}
	s.replicas(t)

	coordinate := func(every string) { controllerFlag(t, "--coordination-interval="+every) }
	before := s.settle(t, "without the coordinator", untouchedBudgets)
	if before < 0.02 {
		t.Fatalf("without the coordinator they are %.3f apart: nothing to bring closer", before)
	}
	coordinate("30s")
	if with := s.settle(t, "with the coordinator", movedBudgets); with > before/2 {
		t.Errorf("with the coordinator they are %.3f apart, and %.3f without: want at most half", with, before)
	}
	coordinate("0s")
	// So it was not the machine that changed meanwhile.
	if again := s.settle(t, "and without it again", untouchedBudgets); again < before*3/4 {
		t.Errorf("without the coordinator they were %.3f apart at first, and are %.3f apart now", before, again)
	}
}

// addNodes adds the nodes, and takes them away after the test.
func (s *suite) addNodes(t *testing.T) {
	t.Helper()
	reserve := fmt.Sprintf("--system-reserved-cpu=%dm", 1000*runtime.NumCPU()-nodeSupply)
	program := cluster(t).Path
	for _, name := range added {
		if err := s.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Node{}); !apierrors.IsNotFound(err) {
			t.Fatalf("node %s is there already, or cannot be looked for (%v): remove it with bin/mbcas-cluster node remove %s", name, err, name)
		}
		t.Cleanup(func() {
			if err := poll.Until(context.Background(), 2*time.Minute, func() string { return s.podOn(name) }); err != nil {
				t.Errorf("pods of node %s, which is to go: %v", name, err)
			}
			if out, err := exec.Command(program, "node", "remove", name).CombinedOutput(); err != nil {
				t.Errorf("remove the node: %v\n%s", err, out)
			}
		})
		if out, err := cluster(t, "node", "add", reserve, name).CombinedOutput(); err != nil {
			t.Fatalf("add a node: %v\n%s", err, out)
		}
	}
}

// podOn names a pod on a node; "" for none. A pod whose node is removed counts as evicted.
func (s *suite) podOn(node string) string {
	var pods corev1.PodList
	if err := s.List(context.Background(), &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return err.Error()
	}
	for _, pod := range pods.Items {
		return pod.Namespace + "/" + pod.Name + " is still there"
	}
	return ""
}

// controllerFlag starts the controller anew with a flag more.
func controllerFlag(t *testing.T, flag string) {
	t.Helper()
	kubectl(t, "-n", system, "patch", "deployment", "mbcas-controller", "--type=json",
		"--patch", fmt.Sprintf(`[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":%q}]`, flag))
	kubectl(t, "-n", system, "rollout", "status", "deployment/mbcas-controller", "--timeout=120s")
}

// spinning makes a pod of some nodes that spins with two threads from its start.
func spinning(nodes ...string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.NodeSelector = nil
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes}},
			}}},
		}}
		p.Spec.Containers[0].Args = []string{"hog", "--threads=2"}
	}
}

// replicas starts the workload with a replica on each node, which the scheduler puts there.
func (s *suite) replicas(t *testing.T) {
	t.Helper()
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: replicated, Name: web},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": web}},
			Template: s.template(web, resources{"25m", "100m", "32Mi"}),
		},
	}
	spinning(added[:]...)(&d.Spec.Template)
	d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: d.Spec.Selector,
	}}
	if err := s.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// replica is the state of a pod of the workload.
type replica struct {
	node    string
	applied cpu.Milli
	capped  bool // by the price, at the desired limit
	factor  int32
}

// replicaStates reads the state of both replicas, on the node with the low and with the high price; text describes them.
func (s *suite) replicaStates(ctx context.Context) (low, high replica, text string) {
	var pods corev1.PodList
	if err := s.List(ctx, &pods, client.InNamespace(replicated)); err != nil {
		return low, high, err.Error()
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		pa, err := s.allocation(ctx, pod)
		if err != nil {
			return low, high, pod.Name + ": " + err.Error()
		}
		r := replica{node: pod.Spec.NodeName, factor: 100}
		if pa.Status.AppliedCPULimit != nil {
			r.applied = *pa.Status.AppliedCPULimit
		}
		if d := pa.Spec.Decision; d != nil {
			r.capped = d.BoundBy == v1alpha1.BoundByPrice && near(r.applied, *pa.Spec.DesiredCPULimit)
		}
		if c := pa.Status.Constraints; c != nil && c.CoordinationPercent != nil {
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

// near says whether a limit has arrived where it is to be: a difference of less than the controller's dead band stays.
func near(a, b cpu.Milli) bool { return max(a-b, b-a).Cores() <= 0.11*b.Cores() }

// distance is the state of both replicas during one window.
type distance struct {
	low, high replica // at its end
	capped    bool    // both, by the price, all the time
	// apart is the difference of the means of their limits, over what each wants.
	apart float64
}

func (d distance) String() string {
	return fmt.Sprintf("limits %v (budget %d %%) and %v (%d %%), %.3f of %dm apart", d.low.applied, d.low.factor, d.high.applied, d.high.factor, d.apart, webNeed)
}

// measure observes both replicas for one window.
func (s *suite) measure(ctx context.Context) (d distance, why string) {
	d.capped = true
	var low, high, n float64
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for until := time.Now().Add(window); time.Now().Before(until); n++ {
		d.low, d.high, why = s.replicaStates(ctx)
		d.capped = d.capped && d.low.capped && d.high.capped
		low, high = low+float64(d.low.applied), high+float64(d.high.applied)
		select {
		case <-ctx.Done():
			d.capped = false // not for the whole window
			return d, why
		case <-tick.C:
		}
	}
	d.apart = max(low-high, high-low) / n / webNeed
	return d, why
}

// settle waits until both replicas are capped by the price, and their budgets match and have not changed for three windows. It
// returns their mean distance in these windows.
func (s *suite) settle(t *testing.T, what string, matches func(distance) bool) float64 {
	t.Helper()
	var last []distance
	wait(t, 8*time.Minute, what+", and their budgets stay", func(ctx context.Context) (bool, string) {
		d, why := s.measure(ctx)
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
