// Package schedule plays histories of a small cluster against the production controller: a text of
// steps (a reconcile with a fault, a decision of an agent, an external change, a kubelet that errs, a
// crash) is carried out on an API server in memory under a clock of its own. What happens is recorded
// and checked. Steps are drawn from a seed, and a schedule that fails is made smaller until each step
// of it is needed.
package schedule

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/go-logr/logr"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/history"
	"github.com/mbcas/mbcas/internal/testing/memapi"
)

// Controller is a controller under test: a *controller.Reconciler with its watches.
type Controller interface {
	Reconcile(context.Context, reconcile.Request) (reconcile.Result, error)
	// Changed are the nodes to reconcile because an object has changed.
	Changed(context.Context, client.Object) []reconcile.Request
	// Background does what runs beside the reconciles, and returns the nodes to reconcile because of it.
	Background(context.Context) []reconcile.Request
}

// Process is what a controller gets of its surroundings.
type Process struct {
	Client client.Client // reads from a cache that may lag
	Live   client.Reader
	Now    func() time.Time
	Jitter func(time.Duration) time.Duration
	Audit  slog.Handler
}

// System is what a schedule is played against.
type System struct {
	Namespace string // of the installation
	Rules     history.Rules
	Trim      func(any) (any, error) // of caches
	New       func(Process) Controller
}

// Nodes, namespaces and processes of the world.
var (
	Nodes      = []string{"n1", "n2", "n3"}
	Namespaces = []string{"shop", "lab"}
	Processes  = []string{"A", "B"}
)

// podSpec is a pod of the world. Those of the deployment web are in reach of the HPA and the PDB.
type podSpec struct {
	name, namespace, node, deployment string
	containers                        []corev1.Container // one with a restart policy is a sidecar
}

// small are the pods of the world of a schedule. A container of p2 is a sidecar, and p5 is of a job.
var small = []podSpec{
	{"p1", "shop", "n1", "web", []corev1.Container{apiserver.Container("app", "100m", "500m")}},
	{"p2", "shop", "n1", "", []corev1.Container{apiserver.Container("app", "200m", "1"), sidecar}},
	{"p3", "lab", "n1", "", []corev1.Container{apiserver.Container("app", "100m", "400m")}},
	{"p4", "shop", "n2", "web", []corev1.Container{apiserver.Container("app", "100m", "500m")}},
	{"p5", "lab", "n2", job, []corev1.Container{apiserver.Container("app", "300m", "600m"), apiserver.Container("once", "100m", "200m")}},
	{"p6", "lab", "n3", "", []corev1.Container{apiserver.Container("app", "100m", "2")}},
}

var sidecar = func() corev1.Container {
	c := apiserver.Container("side", "50m", "200m")
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}()

// job as deployment of a pod has its containers run to completion.
const job = "job"

// podNames are the names of pods.
func podNames(list []podSpec) (names []string) {
	for _, p := range list {
		names = append(names, p.name)
	}
	return names
}

// start is when every history begins.
var start = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// world is the cluster of one schedule.
type world struct {
	System
	api       *memapi.Server
	now       time.Time
	elapse    func(time.Duration) // lets time pass
	nodes     []string
	pods      []podSpec
	processes map[string]*process
	agents    map[string]*agent
	kubelets  map[string]apiserver.Answer
	webhooks  map[string]string // of a namespace: down, deny, hang, mutate
	events    []history.Event
	counts    map[string]int // of faults and steps
	requests  []int          // of each reconcile that is a step
	steps     [][]string     // those to come: a paused request lets some of them pass
	held      []*http.Request
	settled   map[types.UID]string // the version of a pod about which its kubelet has nothing to do
	acting    *process             // whose requests are on their way
	cgroups   cgroups
}

// newWorld is a small cluster of these nodes and their pods in which everything works.
func newWorld(s System, nodes []string) *world {
	w := emptyWorld(s, start)
	w.nodes = nodes
	w.pods = slices.DeleteFunc(slices.Clone(small), func(p podSpec) bool { return !slices.Contains(nodes, p.node) })
	for _, n := range w.nodes {
		w.node(n)
		w.agents[n] = w.newAgent(n)
		w.agents[n].renew()
	}
	for _, p := range w.pods {
		w.run(p.name)
	}
	w.now = w.now.Add(2 * time.Minute) // grace periods are over
	for _, n := range w.nodes {
		w.agents[n].renew()
	}
	w.start("A", 0, false)
	return w
}

// emptyWorld is a cluster without nodes, pods and processes.
func emptyWorld(s System, now time.Time) *world {
	w := &world{
		System: s, now: now, processes: map[string]*process{}, agents: map[string]*agent{},
		kubelets: map[string]apiserver.Answer{}, webhooks: map[string]string{}, counts: map[string]int{},
		settled: map[types.UID]string{}, cgroups: newCgroups(),
	}
	w.elapse = func(d time.Duration) { w.now = w.now.Add(d) }
	w.api = memapi.New(func() time.Time { return w.now })
	w.api.Admit, w.api.Stored = w.admit, w.stored
	for _, name := range append([]string{s.Namespace}, Namespaces...) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name != s.Namespace {
			ns.Labels = map[string]string{kube.ModeLabel: string(kube.ModeEnforce)}
		}
		w.create("user", ns)
	}
	return w
}

func (w *world) create(actor string, o client.Object) {
	if err := w.api.Create(actor, o); err != nil {
		panic(fmt.Sprintf("create %T %s: %v", o, o.GetName(), err)) // the world itself is wrong
	}
}

// node makes a node that has been Ready for an hour.
func (w *world) node(name string) {
	resources := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	n.Status = corev1.NodeStatus{
		Capacity: resources, Allocatable: resources,
		NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", KubeletVersion: "v1.36.3"},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastTransitionTime: metav1.NewTime(w.now.Add(-time.Hour)),
		}},
	}
	w.create("kubelet "+name, n)
}

// run creates a pod, and its kubelet starts it or, where that is held, begins to.
func (w *world) run(name string, held ...string) {
	for _, p := range w.pods {
		if p.name != name || memapi.Get[*corev1.Pod](w.api, p.namespace, name) != nil ||
			memapi.Get[*corev1.Node](w.api, "", p.node) == nil {
			continue
		}
		pod := apiserver.Pod(p.namespace, name)
		for _, c := range p.containers {
			if c.RestartPolicy == nil {
				pod.Spec.Containers = append(pod.Spec.Containers, *c.DeepCopy())
			} else {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, *c.DeepCopy())
			}
		}
		if len(held) > 0 {
			pod.Annotations = map[string]string{apiserver.HoldKey: held[0]}
		}
		pod.Spec.NodeName, pod.Status.QOSClass = p.node, corev1.PodQOSBurstable
		switch p.deployment {
		case "":
		case job:
			pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		default:
			rs := w.replicaSet(p, pod)
			pod.Labels = map[string]string{"app": p.deployment, "pod-template-hash": "abc"}
			pod.OwnerReferences = []metav1.OwnerReference{
				*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")),
			}
		}
		w.create("owner", pod)
		w.kubelet(p.node, apiserver.Obey)
	}
}

// replicaSet is the one of a pod's deployment, whose template is the pod as it is created.
func (w *world) replicaSet(p podSpec, pod *corev1.Pod) *appsv1.ReplicaSet {
	name := p.deployment + "-abc"
	rs := memapi.Get[*appsv1.ReplicaSet](w.api, p.namespace, name)
	if rs == nil {
		rs = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name}}
		rs.Spec.Template.Spec.Containers = pod.DeepCopy().Spec.Containers
		w.create("owner", rs)
		rs = memapi.Get[*appsv1.ReplicaSet](w.api, p.namespace, name)
	}
	return rs
}

// exists says whether there is such a node.
func (w *world) exists(node string) bool { return memapi.Get[*corev1.Node](w.api, "", node) != nil }

// pod is a pod by its name; nil where there is none.
func (w *world) pod(name string) *corev1.Pod {
	i := slices.IndexFunc(w.pods, func(p podSpec) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return memapi.Get[*corev1.Pod](w.api, w.pods[i].namespace, name)
}

// kubelet has a kubelet look at its pods.
func (w *world) kubelet(node string, answer apiserver.Answer) {
	n := memapi.Get[*corev1.Node](w.api, "", node)
	if n == nil {
		return
	}
	for _, p := range memapi.All[*corev1.Pod](w.api) {
		if p.Spec.NodeName != node || w.settled[p.UID] == p.ResourceVersion && w.cgroups.dead[p.UID] == "" && !w.cgroups.retries(p, w.now) {
			continue
		}
		// It speaks to the API server in whole seconds, and sets its own time.
		at := metav1.NewTime(w.now.Truncate(time.Second))
		if with := p.DeepCopy(); answer == apiserver.Obey && w.reportEnded(with, at) {
			memapi.Change(w.api, "kubelet "+node, p.Namespace, p.Name, func(p *corev1.Pod) { p.Status = with.Status })
			p = memapi.Get[*corev1.Pod](w.api, p.Namespace, p.Name)
		}
		status := apiserver.Report(p, answer, at)
		if p.Status.Phase != corev1.PodRunning && status.Phase == corev1.PodRunning {
			w.cgroups.begin(p, &status, at)
		}
		memapi.Change(w.api, "kubelet "+node, p.Namespace, p.Name, func(p *corev1.Pod) { p.Status = status })
		if after := memapi.Get[*corev1.Pod](w.api, p.Namespace, p.Name); answer == apiserver.Obey && after != nil {
			w.cgroups.sync(p, after, w.now)
		}
		if now := memapi.Get[*corev1.Pod](w.api, p.Namespace, p.Name); now == p && answer == apiserver.Obey {
			w.settled[p.UID] = p.ResourceVersion
		}
	}
}

// The library complains once where it has no logger.
func init() { log.SetLogger(logr.Discard()) }

// newClient is a client through a transport, which reads from a cache if there is one.
func newClient(conn http.RoundTripper, actor string, cache client.Reader) client.Client {
	options := client.Options{Scheme: memapi.Scheme, Mapper: mapper}
	if cache != nil {
		options.Cache = &client.CacheOptions{Reader: cache}
	}
	c, err := client.New(memapi.Config(conn, actor), options)
	if err != nil {
		panic(err) // nothing is sent yet
	}
	return c
}

var mapper = memapi.Mapper()

// wait lets time pass while a request is on its way, until the client gives up.
func (w *world) wait(ctx context.Context, d time.Duration) error {
	if left := w.patience(); d >= left {
		w.elapse(left)
		return context.DeadlineExceeded
	}
	w.elapse(d)
	return ctx.Err()
}

// patience is how long a client waits for its answer.
func (w *world) patience() time.Duration {
	if w.acting == nil || w.acting.resizing {
		return 8 * time.Second
	}
	return 30 * time.Second
}

// random is the source of jitter of one life of a process: the same in every run.
func random(life string) *rand.Rand {
	seed := uint64(1)
	for _, c := range []byte(life) {
		seed = seed*31 + uint64(c)
	}
	return rand.New(rand.NewPCG(seed, 7))
}

// note adds an event.
func (w *world) note(e history.Event) {
	e.At = w.now
	w.events = append(w.events, e)
}

// lines are a schedule as a text.
func lines(steps [][]string) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString(strings.Join(s, " ") + "\n")
	}
	return b.String()
}
