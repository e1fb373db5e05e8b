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

// Namespaces of TestTwoNodes. The rivals of each node are a tenant of their own, so that none pays for one on the other.
const (
	replicated = "e2e-replicated"
	few        = "e2e-few-rivals"
	many       = "e2e-many-rivals"
)

// The nodes that the test adds. They share the CPUs of this machine, as nodes of kind do, and each counts all of them as its own.
// Each keeps back what the other one's pods and the rest of the machine use.
var added = [2]string{"mbcas-node-2", "mbcas-node-3"}

// web is the workload with a replica on each of them. Each spins with two threads, so it needs two cores.
const (
	web     = "web"
	webNeed = 2000
)

// nodeSupply is the allocatable CPU of each, in millicores.
const nodeSupply = 700

// window is for how long limits are looked at. Within it the price of a node may move about.
const window = 15 * time.Second

// TestTwoNodes: of two equal replicas, one is on a node with more rivals and so gets less. The coordinator brings them at least
// twice as close, in grant over need.
func TestTwoNodes(t *testing.T) {
	s := start(t)
	s.addNodes(t)
	s.install(t)
	defer uninstall(t)
	// So that the nodes that are compared carry the same all the time, but for their rivals.
	kubectl(t, "-n", system, "patch", "deployment", "mbcas-controller",
		"--patch", fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:%q}}}}}`, corev1.LabelHostname, s.node))
	controllerFlag(t, "--coordination-interval=0s")
	for _, namespace := range []string{replicated, few, many} {
		s.namespace(t, namespace, "enforce")
	}
	s.deploy(t, few, "rival", resources{"25m", "100m", "32Mi"}, spinning(added[0]))
	for i := range 3 {
		s.deploy(t, many, fmt.Sprintf("rival-%d", i), resources{"25m", "100m", "32Mi"}, spinning(added[1]))
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
			if err := poll.Until(context.Background(), 2*time.Minute, func() string { return s.on(name) }); err != nil {
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

// on says which pod is on a node. One whose node goes counts as evicted.
func (s *suite) on(node string) string {
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

// replica is how a pod of the workload stands.
type replica struct {
	node    string
	applied cpu.Milli
	held    bool // by the price, where that wants it
	factor  int32
}

// look reads how both replicas stand; it says why not where it cannot.
func (s *suite) look(ctx context.Context) (cheap, dear replica, why string) {
	var pods corev1.PodList
	if err := s.List(ctx, &pods, client.InNamespace(replicated)); err != nil {
		return cheap, dear, err.Error()
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		pa, err := s.allocation(ctx, pod)
		if err != nil {
			return cheap, dear, pod.Name + ": " + err.Error()
		}
		r := replica{node: pod.Spec.NodeName, factor: 100}
		if pa.Status.AppliedCPULimit != nil {
			r.applied = *pa.Status.AppliedCPULimit
		}
		if d := pa.Spec.Decision; d != nil {
			r.held = d.BoundBy == v1alpha1.BoundByPrice && near(r.applied, *pa.Spec.DesiredCPULimit)
		}
		if terms := pa.Status.Constraints; terms != nil && terms.CoordinationPercent != nil {
			r.factor = *terms.CoordinationPercent
		}
		why += fmt.Sprintf("%s: %s; ", r.node, summary(pa))
		if r.node == added[0] {
			cheap = r
		} else {
			dear = r
		}
	}
	return cheap, dear, why
}

// near says whether a limit has arrived where it is to be: a difference of less than the controller's dead band stays.
func near(a, b cpu.Milli) bool { return max(a-b, b-a).Cores() <= 0.11*b.Cores() }

// distance is how both replicas stood for a while.
type distance struct {
	cheap, dear replica // at its end
	held        bool    // both, by the price, all the time
	// apart is the difference of the means of their limits, over what each wants.
	apart float64
}

func (d distance) String() string {
	return fmt.Sprintf("limits %v (budget %d %%) and %v (%d %%), %.3f of %dm apart", d.cheap.applied, d.cheap.factor, d.dear.applied, d.dear.factor, d.apart, webNeed)
}

// measure looks at both replicas for one window.
func (s *suite) measure(ctx context.Context) (d distance, why string) {
	d.held = true
	var cheap, dear, n float64
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for until := time.Now().Add(window); time.Now().Before(until); n++ {
		d.cheap, d.dear, why = s.look(ctx)
		d.held = d.held && d.cheap.held && d.dear.held
		cheap, dear = cheap+float64(d.cheap.applied), dear+float64(d.dear.applied)
		select {
		case <-ctx.Done():
			d.held = false // not for the whole window
			return d, why
		case <-tick.C:
		}
	}
	d.apart = max(cheap-dear, dear-cheap) / n / webNeed
	return d, why
}

// settle waits until both replicas are held by the price, and their budgets, which are as suits, have not changed for three windows. It
// returns how far they were apart on average meanwhile: the first time that this is so, whatever that distance is.
func (s *suite) settle(t *testing.T, what string, suits func(distance) bool) float64 {
	t.Helper()
	var last []distance
	wait(t, 8*time.Minute, what+", and their budgets stay", func(ctx context.Context) (bool, string) {
		d, why := s.measure(ctx)
		t.Log(d)
		switch {
		case !d.held || !suits(d):
			last = nil
		case len(last) > 0 && (d.cheap.factor != last[0].cheap.factor || d.dear.factor != last[0].dear.factor):
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

func untouchedBudgets(d distance) bool { return d.cheap.factor == 100 && d.dear.factor == 100 }

// movedBudgets: the replica that gets less has more budget than its own, and the other less.
func movedBudgets(d distance) bool { return d.dear.factor > 100 && d.cheap.factor < 100 }
