package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// world is a node whose API objects are real and whose cgroups are files.
type world struct {
	t    testing.TB
	api  *apiserver.Server
	node *apiserver.Kubelet
	ns   string
	tree *cgroups.Tree
	// debug is the URL of what names pods, of the agent that runs.
	debug string

	stalls  bool    // the agent reads memory and IO pressure
	stalled float64 // share of time in which every load waits for memory

	mu    sync.Mutex // guards tree and loads
	loads []load
}

// load is a container that uses cores and is throttled in a share of its periods.
type load struct {
	uid, id  string
	cores    float64
	throttle float64
}

func newWorld(t testing.TB) *world {
	api := apiserver.Start(t)
	w := &world{t: t, api: api, ns: api.Namespace(t)}
	w.node = api.Kubelet(t, "node-"+w.ns)
	var err error
	if w.tree, err = cgroups.New(t.TempDir(), cgroups.Shape{Version: kernel.V2}); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"../../config/base/namespace.yaml", "../../config/rbac/agent_role.yaml", "../../config/rbac/bindings.yaml"} {
		apply(t, api.Client, file)
	}
	t.Cleanup(w.live())
	return w
}

// apply creates the objects of a manifest that are not there yet.
func apply(t testing.TB, c client.Client, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var o unstructured.Unstructured
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil && len(o.Object) > 0 {
			if err = c.Create(t.Context(), &o); apierrors.IsAlreadyExists(err) {
				err = nil
			}
		}
		if err != nil {
			t.Fatalf("%s: %s %s: %v", file, o.GetKind(), o.GetName(), err)
		}
	}
}

// live adds to the counters of the loads as time passes, until the returned function is called.
func (w *world) live() (stop func()) {
	return start(func(ctx context.Context) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := time.Now()
			w.advance(now.Sub(last))
			last = now
		}
	})
}

func (w *world) advance(elapsed time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
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

// run starts a pod that uses cores; with a limit it gets a PodAllocation with its declared limits.
func (w *world) run(name, request, limit string, cores, throttle float64) (*corev1.Pod, *v1alpha1.PodAllocation) {
	w.t.Helper()
	return w.start(apiserver.Pod(w.ns, name, apiserver.Container("app", request, limit)), cores, throttle)
}

// start is the same for any pod, of which each container uses cores.
func (w *world) start(pod *corev1.Pod, cores, throttle float64) (*corev1.Pod, *v1alpha1.PodAllocation) {
	w.t.Helper()
	pod = w.node.Run(w.t, pod)
	limited := len(pod.Spec.Containers[0].Resources.Limits) > 0
	w.mu.Lock()
	err := w.tree.AddPod(cgroups.Burstable, string(pod.UID))
	for _, s := range pod.Status.ContainerStatuses {
		_, id, _ := strings.Cut(s.ContainerID, "://")
		err = errors.Join(err, w.tree.AddPod(cgroups.Burstable, string(pod.UID), id))
		if limited {
			err = errors.Join(err, w.tree.Update(string(pod.UID), id, enforced))
		}
		w.loads = append(w.loads, load{string(pod.UID), id, cores, throttle})
	}
	w.mu.Unlock()
	if err != nil {
		w.t.Fatal(err)
	}
	if !limited {
		return pod, nil
	}
	pa := allocation.New(pod)
	if err := w.api.Client.Create(w.t.Context(), pa); err != nil {
		w.t.Fatal(err)
	}
	w.tell(pa, kube.Limits(pod), nil)
	return pod, pa
}

// tell puts a pod into the NodeAllocation, as the controller does.
func (w *world) tell(pa *v1alpha1.PodAllocation, declared []v1alpha1.ContainerLimit, c *v1alpha1.Constraints) {
	w.t.Helper()
	n := allocation.NewNode(w.node.Node, "node")
	err := w.api.Client.Get(w.t.Context(), client.ObjectKeyFromObject(n), n)
	if apierrors.IsNotFound(err) {
		err = w.api.Client.Create(w.t.Context(), n)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	told := v1alpha1.NodePod{UID: pa.Spec.PodRef.UID, AllocationUID: pa.UID, DeclaredLimits: declared, Constraints: c}
	n.Spec.Pods = slices.DeleteFunc(n.Spec.Pods, func(p v1alpha1.NodePod) bool { return p.UID == told.UID })
	n.Spec.Pods = append(n.Spec.Pods, told)
	if err := w.api.Client.Update(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
}

// enforced gives a cgroup a quota, as the kubelet does for a limit.
func enforced(g *kernel.Group) {
	g.Quota = kernel.Quota{Limit: 50 * time.Millisecond, Period: 100 * time.Millisecond}
}

// access has the rights of the agent's pod: the role of its service account, and a token that names
// its node.
func (w *world) access() *rest.Config {
	c := rest.CopyConfig(w.api.Config)
	c.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:mbcas-system:mbcas-agent",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {w.node.Node}},
	}
	return c
}

// agent starts an agent and returns its URL and a function that stops it.
func (w *world) agent(access *rest.Config) (url string, stop func()) {
	w.t.Helper()
	cfg := DefaultConfig()
	cfg.Node, cfg.Holder, cfg.Interval, cfg.Kernel = w.node.Node, "agent-pod", 100*time.Millisecond, w.tree.Config()
	cfg.Kernel.MemoryIOPressure = w.stalls
	a, err := New(cfg, access, slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		w.t.Fatal(err)
	}
	var l Listeners
	for _, to := range []*net.Listener{&l.Cluster, &l.Debug} {
		if *to, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			w.t.Fatal(err)
		}
	}
	w.debug = "http://" + l.Debug.Addr().String()
	stop = start(func(ctx context.Context) {
		if err := a.Run(ctx, l); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return "http://" + l.Cluster.Addr().String(), stop
}

func (w *world) get(url string) (int, string) {
	w.t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
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
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// rounds waits until n more rounds have completed.
func (w *world) rounds(url string, n int) {
	w.t.Helper()
	const completed = `mbcas_agent_rounds_total{result="completed"}`
	goal := w.metric(url, completed) + float64(n)
	w.eventually(fmt.Sprint(n, " rounds"), func() bool { return w.metric(url, completed) >= goal })
}

// eventually polls ok until it is true, for at most a minute.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	apiserver.Eventually(w.t, what, func() (bool, any) { return ok(), nil })
}

// allocation is the PodAllocation as it is in the API server.
func (w *world) allocation(pa *v1alpha1.PodAllocation) *v1alpha1.PodAllocation {
	w.t.Helper()
	var got v1alpha1.PodAllocation
	if err := w.api.Client.Get(w.t.Context(), client.ObjectKeyFromObject(pa), &got); err != nil {
		w.t.Fatal(err)
	}
	return &got
}

// TestAgent: under the agent's own role a throttled pod on a node with idle CPU gets the node's
// size as its limit; probes, metrics and /debug/round agree; and nothing else is written.
func TestAgent(t *testing.T) {
	w := newWorld(t)
	pod, pa := w.run("throttled", "500m", "1", 1, 0.9)
	w.run("unlimited", "500m", "", 0.5, 0)
	url, _ := w.agent(w.access())
	w.eventually("a decision", func() bool { return w.allocation(pa).Spec.Decision != nil })

	got := w.allocation(pa)
	if l := *got.Spec.DesiredCPULimit; l < 3000 || l > 3200 {
		t.Errorf("desired %v, want about 3100m, what the other pod leaves of the supply of 3600m", l)
	}
	d := got.Spec.Decision
	if d.ThrottledPercent < 80 || d.Price != 0 || d.BoundBy != v1alpha1.BoundByNothing || d.Budget != 500 ||
		d.Floor != 510 ||
		d.Ceiling != 4000 {
		t.Errorf("decision %+v", d)
	}
	if len(got.Status.DeclaredLimits) != 0 || got.Spec.PodRef.UID != pod.UID {
		t.Errorf("more than the decision was written: %+v", got)
	}

	w.eventually("readiness", func() bool { code, _ := w.get(url + "/readyz"); return code == http.StatusOK })
	if code, body := w.get(url + "/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d %s", code, body)
	}
	w.eventually("a Lease", func() bool {
		var l coordinationv1.Lease
		err := w.api.Client.Get(t.Context(),
			types.NamespacedName{Namespace: kube.SystemNamespace, Name: kube.AgentLease(w.node.Node)}, &l)
		m, _ := allocation.ParseNodeMarket(l.Annotations[kube.MarketKey])
		return err == nil && l.Spec.RenewTime != nil && *l.Spec.HolderIdentity == "agent-pod" && len(l.OwnerReferences) == 1 &&
			m.Round > 0 && m.Supply >= 1800
	})
	for line, want := range map[string]float64{
		`mbcas_node_pods{part="bidding"}`: 1, `mbcas_node_pods{part="unmanaged"}`: 1, `mbcas_node_price`: 0,
		`mbcas_agent_publishes_total{result="written"}`: 1, `mbcas_agent_rounds_total{result="panicked"}`: 0,
	} {
		if v := w.metric(url, line); v != want {
			t.Errorf("%s is %v, want %v", line, v, want)
		}
	}
	_, text := w.get(url + "/metrics")
	if lines := series(text); len(lines) > maxSeries {
		t.Errorf("%d series, want at most %d:\n%s", len(lines), maxSeries, strings.Join(lines, ""))
	}
	for _, label := range regexp.MustCompile(`="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		if v := label[1]; v == pod.Name || strings.Contains(v, string(pod.UID)) || strings.Contains(v, w.ns) {
			t.Errorf("a label has the value %q, which is of a pod", v)
		}
	}
	// The usage of this machine is subtracted from the supply, at most half of it.
	if v := w.metric(url, "mbcas_node_supply_cores"); v < 1.8 || v > 3.6 {
		t.Errorf("mbcas_node_supply_cores is %v, want 1.8 to 3.6", v)
	}
	var r allocation.RoundReport
	if _, body := w.get(w.debug + "/debug/round"); json.Unmarshal([]byte(body), &r) != nil || len(r.Pods) != 1 ||
		r.Pods[0].Name != "throttled" || r.Pods[0].Limit != 1000 || r.Pods[0].Desired < 3000 || r.Pods[0].Throttled < 0.8 {
		t.Errorf("debug/round: %s", body)
	}
	if code, body := w.get(url + "/debug/round"); code != http.StatusNotFound || strings.Contains(body, pod.Name) {
		t.Errorf("the port of the metrics answers /debug/round: %d %s", code, body)
	}
}

// requests records what an agent sends, and breaks its connection where asked.
type requests struct {
	next http.RoundTripper

	mu   sync.Mutex
	seen []string
	lose func(*http.Request) bool // the answer does not arrive
}

func (d *requests) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.next.RoundTrip(r)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = append(d.seen, r.Method+" "+r.URL.RequestURI())
	if err == nil && d.lose != nil && d.lose(r) {
		resp.Body.Close()
		return nil, errors.New("the connection broke")
	}
	return resp, err
}

// count is how many requests have that method and each of the parts.
func (d *requests) count(method string, parts ...string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.seen {
		found := strings.HasPrefix(r, method+" ")
		for _, p := range parts {
			found = found && strings.Contains(r, p)
		}
		if found {
			n++
		}
	}
	return n
}

// recorded is access whose requests are recorded.
func (w *world) recorded() (*rest.Config, *requests) {
	d, access := &requests{}, w.access()
	access.Wrap(func(next http.RoundTripper) http.RoundTripper {
		d.next = next
		return d
	})
	return access, d
}

// TestNothingIsPublishedTwice: neither steady load nor a restart writes a decision again.
func TestNothingIsPublishedTwice(t *testing.T) {
	w := newWorld(t)
	_, pa := w.run("throttled", "500m", "1", 1, 0.9)
	access, d := w.recorded()
	url, stop := w.agent(access)
	w.eventually("a decision", func() bool { return w.allocation(pa).Spec.Decision != nil })
	w.rounds(url, 20)
	if n := d.count(http.MethodPatch); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
	stop()
	url, _ = w.agent(access)
	w.eventually("a bid after the restart", func() bool { return w.metric(url, `mbcas_node_pods{part="bidding"}`) == 1 })
	w.rounds(url, 20)
	if n := d.count(http.MethodPatch); n != 1 {
		t.Errorf("%d writes after a restart, want 1:\n%+v", n, w.allocation(pa).Spec.Decision)
	}
}

// TestWatchesByIndex: the agent watches its node, its pods and its NodeAllocation, each by an index of the
// API server, and no PodAllocations: it reads each of these once.
func TestWatchesByIndex(t *testing.T) {
	w := newWorld(t)
	_, one := w.run("one", "500m", "1", 1, 0.9)
	_, two := w.run("two", "500m", "1", 1, 0.9)
	access, d := w.recorded()
	url, _ := w.agent(access)
	w.eventually("decisions", func() bool {
		return w.allocation(one).Spec.Decision != nil && w.allocation(two).Spec.Decision != nil
	})
	w.rounds(url, 20)
	if n := d.count(http.MethodGet, "/podallocations?"); n != 0 {
		t.Errorf("%d lists or watches of PodAllocations, want none", n)
	}
	if n := d.count(http.MethodGet, "/podallocations/"); n != 2 {
		t.Errorf("%d PodAllocations were read, want each once", n)
	}
	for resource, field := range map[string]string{
		"/nodes": "metadata.name%3D" + w.node.Node, "/pods": "spec.nodeName%3D" + w.node.Node, "/nodeallocations": "metadata.name%3D" + w.node.Node,
	} {
		all, watches := d.count(http.MethodGet, resource+"?"), d.count(http.MethodGet, resource+"?", "watch=true", "fieldSelector="+field)
		if watches == 0 || all != d.count(http.MethodGet, resource+"?", "fieldSelector="+field) {
			t.Errorf("%s: %d requests, of which %d watch that node's alone", resource, all, watches)
		}
	}
}

// TestFollowsItsNodeAllocation: what the agent is told takes effect; a PodAllocation that was created again
// counts as never published, and a pod of which it is not told any more is left alone.
func TestFollowsItsNodeAllocation(t *testing.T) {
	w := newWorld(t)
	pod, pa := w.run("throttled", "500m", "1", 1, 0.9)
	access, d := w.recorded()
	url, _ := w.agent(access)
	desired := func(least, most cpu.Milli) {
		t.Helper()
		w.eventually(fmt.Sprintf("a limit of %v to %v", least, most), func() bool {
			got := w.allocation(pa).Spec.DesiredCPULimit
			return got != nil && *got >= least && *got <= most
		})
	}
	desired(3400, 3600)
	ceiling := cpu.Milli(1500)
	w.tell(pa, kube.Limits(pod), &v1alpha1.Constraints{Ceiling: &ceiling})
	desired(1500, 1500)
	again := allocation.New(pod)
	if err := errors.Join(w.api.Client.Delete(t.Context(), pa), w.api.Client.Create(t.Context(), again)); err != nil {
		t.Fatal(err)
	}
	w.tell(again, kube.Limits(pod), &v1alpha1.Constraints{Ceiling: &ceiling})
	desired(1500, 1500)
	if err := w.api.Client.Delete(t.Context(), allocation.NewNode(w.node.Node, "node")); err != nil {
		t.Fatal(err)
	}
	w.eventually("an unmanaged pod", func() bool { return w.metric(url, `mbcas_node_pods{part="bidding"}`) == 0 })
	w.rounds(url, 5)
	if n := d.count(http.MethodPatch); n != 3 {
		t.Errorf("%d writes, want 3", n)
	}
}

// TestALostAnswerIsWrittenAgain: a decision whose answer was lost may have been written, so the next one is
// published whatever it is.
func TestALostAnswerIsWrittenAgain(t *testing.T) {
	w := newWorld(t)
	_, pa := w.run("throttled", "500m", "1", 1, 0.9)
	access, d := w.recorded()
	lost := 0
	d.lose = func(r *http.Request) bool {
		if r.Method == http.MethodPatch {
			lost++
		}
		return r.Method == http.MethodPatch && lost == 1
	}
	url, _ := w.agent(access)
	w.eventually("a second write", func() bool { return d.count(http.MethodPatch) == 2 })
	w.rounds(url, 20)
	if n := d.count(http.MethodPatch); n != 2 || w.allocation(pa).Spec.Decision == nil {
		t.Errorf("%d writes, want 2", n)
	}
}
