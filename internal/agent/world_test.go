package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/internal/testing/must"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// world is a node with an agent. Its cgroups are files; its API objects are in the real API server,
// or in memory: see newWorld and newBubble.
type world struct {
	t      *testing.T
	client client.Client
	access *rest.Config // of the agent
	sent   requests     // of the agent, in a bubble
	node   string
	ns     string
	tree   *cgroups.Tree
	http   *http.Client // reaches ports
	ports  ports
	// debug is the URL of what names pods, of the agent that runs.
	debug string

	// interval is that of the rounds.
	interval time.Duration
	// run creates a pod on the node, and returns it when it runs.
	run func(*corev1.Pod) *corev1.Pod
	// open finds the counters; nil: as the agent does.
	open func(kernel.Config) (*kernel.Host, error)
	// eventually waits until ok, and fails the test after a minute.
	eventually func(what string, ok func() bool)

	stalls  bool    // the agent reads memory and IO pressure
	stalled float64 // share of time in which every load waits for memory

	mu    sync.Mutex // guards tree and what follows
	at    time.Time  // the loads have used CPU until then
	loads []load
}

// load is a container that uses cores and is throttled in a share of its periods.
type load struct {
	uid, id  string
	cores    float64
	throttle float64
}

// newWorld is a node in the real API server, with real time.
func newWorld(t *testing.T) *world {
	api := apiserver.Start(t)
	w := &world{t: t, client: api.Client, ns: api.Namespace(t), interval: 100 * time.Millisecond}
	w.node = "node-" + w.ns
	kubelet := api.Kubelet(t, w.node)
	w.run = func(pod *corev1.Pod) *corev1.Pod { return kubelet.Run(t, pod) }
	w.eventually = func(what string, ok func() bool) {
		t.Helper()
		apiserver.Eventually(t, what, func() (bool, any) { return ok(), nil })
	}
	api.Install(t, "", "base/namespace.yaml", "rbac/agent_role.yaml", "rbac/bindings.yaml")
	// The rights of the agent's pod: the role of its service account, and a token that names its node.
	w.access = rest.CopyConfig(api.Config)
	w.access.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:mbcas-system:mbcas-agent",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {w.node}},
	}
	w.plant()
	return w
}

// plant makes the cgroups of the node, and a network for the agent's ports.
func (w *world) plant() {
	w.ports = ports{}
	w.http = &http.Client{Transport: &http.Transport{DialContext: w.ports.dial, DisableKeepAlives: true}}
	var err error
	if w.tree, err = cgroups.New(w.t.TempDir(), cgroups.Shape{Version: kernel.V2}); err != nil {
		w.t.Fatal(err)
	}
	w.at = time.Now()
}

// advance adds to the counters what the loads have used until now.
func (w *world) advance() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	elapsed := now.Sub(w.at)
	w.at = now
	var all time.Duration
	for _, l := range w.loads {
		used := time.Duration(l.cores * float64(elapsed))
		all += used
		err := w.tree.Update(l.uid, l.id, func(g *kernel.Group) {
			g.Stat.Usage += used
			g.Stat.Periods += 1000
			g.Stat.Throttled += uint64(1000 * l.throttle)
			g.Stalls.Memory.Full += time.Duration(w.stalled * float64(elapsed))
		})
		if err != nil {
			w.t.Error(err)
		}
	}
	err := w.tree.UpdateNode(func(n *kernel.NodeSample) {
		n.Usage = kernel.KnownTotal(n.Usage.Time + all)
		n.Kubepods = kernel.KnownTotal(n.Kubepods.Time + all)
	})
	if err != nil {
		w.t.Error(err)
	}
}

// now is the time of the counters. With it as the clock of the samples, rates are exact however
// late a sample is.
func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

// loaded is a host whose loads use CPU up to each sample.
type loaded struct {
	Sampler
	world *world
}

func (l loaded) Read(targets []kernel.Target) kernel.Sample {
	l.world.advance()
	return l.Sampler.Read(targets)
}

func (l loaded) Look(targets []kernel.Target) kernel.Sample {
	l.world.advance()
	return l.Sampler.Look(targets)
}

func (l loaded) Find(targets []kernel.Target) kernel.Sample {
	l.world.advance()
	return l.Sampler.Find(targets)
}

// start runs a pod of one container that uses cores; with a limit it gets a PodAllocation with its
// declared limits.
func (w *world) start(name, request, limit string, cores, throttle float64) (*corev1.Pod, *v1alpha1.PodAllocation) {
	w.t.Helper()
	pod := w.run(apiserver.Pod(w.ns, name, apiserver.Container("app", request, limit)))
	uid, id := string(pod.UID), pod.Status.ContainerStatuses[0].ContainerID
	_, id, _ = strings.Cut(id, "://")
	w.advance()
	w.mu.Lock()
	err := w.tree.AddPod(cgroups.Burstable, uid, id)
	if limit != "" {
		quota := kernel.Quota{Limit: 50 * time.Millisecond, Period: 100 * time.Millisecond} // as the kubelet sets for a limit
		err = errors.Join(err, w.tree.Update(uid, id, func(g *kernel.Group) { g.Quota = quota }))
	}
	w.loads = append(w.loads, load{uid, id, cores, throttle})
	w.mu.Unlock()
	must.Succeed(w.t, err)
	if limit == "" {
		return pod, nil
	}
	pa := allocation.New(pod)
	must.Succeed(w.t, w.client.Create(w.t.Context(), pa))
	w.tell(pa, kube.Limits(pod), nil)
	return pod, pa
}

// tell puts a pod into the NodeAllocation, as the controller does.
func (w *world) tell(pa *v1alpha1.PodAllocation, declared []v1alpha1.ContainerLimit, c *v1alpha1.Constraints) {
	w.t.Helper()
	n := allocation.NewNode(w.node, "node")
	err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(n), n)
	if apierrors.IsNotFound(err) {
		err = w.client.Create(w.t.Context(), n)
	}
	must.Succeed(w.t, err)
	told := v1alpha1.NodePod{UID: pa.Spec.PodRef.UID, AllocationUID: pa.UID, DeclaredLimits: declared, Constraints: c}
	n.Spec.Pods = slices.DeleteFunc(n.Spec.Pods, func(p v1alpha1.NodePod) bool { return p.UID == told.UID })
	n.Spec.Pods = append(n.Spec.Pods, told)
	must.Succeed(w.t, w.client.Update(w.t.Context(), n))
}

// agent starts an agent and returns its URL and a function that stops it.
func (w *world) agent() (url string, stop func()) {
	w.t.Helper()
	cfg := DefaultConfig()
	cfg.Node, cfg.Holder, cfg.Interval, cfg.Kernel = w.node, "agent-pod", w.interval, w.tree.Config()
	cfg.Kernel.MemoryIOPressure, cfg.Kernel.Now = w.stalls, w.now
	a, err := New(cfg, w.access, slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
	must.Succeed(w.t, err)
	open := a.Open
	if w.open != nil {
		open = func(context.Context) (Sampler, error) { return w.open(cfg.Kernel) }
	}
	a.Open = func(ctx context.Context) (Sampler, error) {
		host, err := open(ctx)
		return loaded{host, w}, err
	}
	var l Listeners
	l.Cluster, url = w.ports.listen()
	l.Debug, w.debug = w.ports.listen()
	stop = start(func(ctx context.Context) {
		if err := a.Run(ctx, l); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return url, stop
}

func (w *world) get(url string) (int, string) {
	w.t.Helper()
	resp, err := w.http.Get(url)
	must.Succeed(w.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(w.t, err)
	return resp.StatusCode, string(body)
}

// metric is the value of a line of /metrics; 0 where there is none.
func (w *world) metric(url, line string) float64 {
	w.t.Helper()
	_, text := w.get(url + "/metrics")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(line) + ` (.*)$`).FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	v, err := strconv.ParseFloat(found[1], 64)
	must.Succeed(w.t, err)
	return v
}

// completed is how many rounds the agent has completed.
func (w *world) completed(url string) float64 {
	w.t.Helper()
	return w.metric(url, `mbcas_agent_rounds_total{result="completed"}`)
}

// allocation is the PodAllocation as it is in the API server.
func (w *world) allocation(pa *v1alpha1.PodAllocation) *v1alpha1.PodAllocation {
	w.t.Helper()
	var got v1alpha1.PodAllocation
	must.Succeed(w.t, w.client.Get(w.t.Context(), client.ObjectKeyFromObject(pa), &got))
	return &got
}

// decided waits for the first decision about each of these.
func (w *world) decided(pas ...*v1alpha1.PodAllocation) {
	w.t.Helper()
	w.eventually("each pod has a decision", func() bool {
		for _, pa := range pas {
			if w.allocation(pa).Spec.Decision == nil {
				return false
			}
		}
		return true
	})
}
