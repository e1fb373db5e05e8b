package controller

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/objectcache"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/atlength"
	"github.com/mbcas/mbcas/internal/testing/fakekubelet"
	"github.com/mbcas/mbcas/internal/testing/memapi"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/internal/testing/schedule"
)

var (
	largeNodes  = flag.Int("nodes", atlength.Of(12, 20), "the nodes of TestLargeCluster")
	largePods   = flag.Int("pods", atlength.Of(360, 600), "the pods of TestLargeCluster")
	largeShards = flag.Int("shards", 3, "over how many replicas TestLargeCluster divides the nodes")
)

// large is a cluster in memory of which one replica of the controller owns a part of the nodes.
type large struct {
	testing.TB
	api     *memapi.Server
	now     time.Time
	cache   *memapi.Cache
	process *underTest
	due     map[string]time.Time // of its own nodes
	owns    func(node string) bool
	pods    []types.NamespacedName
	resized []*corev1.Pod // those that kubelets have not looked at
	renewed time.Time
	epochs  map[string]time.Time // of the last decision about a pod of a node

	stored map[string]int // bytes of pods as etcd has them
	writes map[string]int // of the controller, by kind
	events int
}

// TestLargeCluster: of a cluster of 150,000 pods, a replica needs at most 1 GiB and etcd 2 GiB, and what is written is at
// most 1.1 times what changes of limits need: each decision a record that its pod waits for its turn, and each
// resize itself and the records that it is in flight and what came of it. With its defaults it is a small cluster, which
// is held to the same for each pod.
//
//	go test ./internal/controller -run TestLargeCluster -v -timeout 60m -nodes 5000 -pods 150000 -shards 3
func TestLargeCluster(t *testing.T) {
	began, idle := time.Now(), heap()
	c := newLarge(t)
	c.join(func(string) bool { return true })
	c.settle(time.Minute)
	t.Logf("%d nodes, %d pods; the first replica owns all nodes: %s; live heap with the cluster %s; %v",
		*largeNodes, *largePods, c.said(), mib(heap()-idle), time.Since(began).Round(time.Second))
	perNode := map[string]bool{}
	c.join(func(node string) bool {
		if _, known := perNode[node]; !known {
			perNode[node] = len(perNode)%*largeShards == 0
		}
		return perNode[node]
	})
	c.settle(time.Minute)
	if n := c.total(); n > 0 {
		t.Errorf("a replica that joins writes %d times although nothing has changed: %s", n, c.said())
	}
	raised := c.decide(20, 2) // 5 % of its pods
	c.settle(3 * time.Minute)
	lowered := c.decide(20, 1)
	c.settle(10 * time.Minute)
	resizes, needed := c.writes["pods/resize"], 3*c.writes["pods/resize"]+raised+lowered
	t.Logf("%d increases and %d decreases are decided: %s; %.3f times what is needed", raised, lowered, c.said(), float64(c.total())/float64(needed))
	if c.total()*10 > needed*11 || resizes < raised+lowered || raised == 0 {
		t.Errorf("%d writes, want at most 1.1 times %d", c.total(), needed)
	}
	etcd, parts := c.etcd()
	memory := c.heapOfReplica()
	t.Logf("1 of %d replicas: live heap %s, %.0f bytes per pod of the cluster; etcd: %s, %.0f bytes per pod (%s)",
		*largeShards, mib(memory), float64(memory)/float64(*largePods), mib(etcd), float64(etcd)/float64(*largePods), parts)
	if most := (1 << 30) / 150_000 * *largePods; memory > most {
		t.Errorf("live heap %s, want at most %s", mib(memory), mib(most))
	}
	if left := heap() - idle; left > 20<<20 {
		t.Errorf("live heap %s without the replica: something outlives it", mib(left))
	}
	if most := (2 << 30) / 150_000 * *largePods; etcd > most {
		t.Errorf("etcd %s, want at most %s", mib(etcd), mib(most))
	}
}

// heapOfReplica is what lives of the replica and its cache once the cluster has gone: what is free
// without them.
func (c *large) heapOfReplica() int {
	process, cache := c.process, c.cache
	c.api, c.process, c.cache, c.resized, c.pods = nil, nil, nil, nil, nil
	cache.Detach()
	with := heap()
	runtime.KeepAlive(process)
	runtime.KeepAlive(cache)
	return with - heap()
}

func mib(bytes int) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// heap is what lives.
func heap() int {
	runtime.GC()
	runtime.GC() // what finalizers held on to is free after a second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// newLarge is a cluster of pods as large as those in production, of which the API server in memory keeps what matters here.
func newLarge(t testing.TB) *large {
	c := &large{
		TB: t, now: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC), stored: map[string]int{}, writes: map[string]int{},
		epochs: map[string]time.Time{},
	}
	c.api = memapi.New(func() time.Time { return c.now })
	c.api.Stored = c.count
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.SystemNamespace}})
	namespaces := max(2, *largePods/300)
	for i := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%03d", i)}}
		ns.Labels = map[string]string{kube.ModeLabel: string(kube.ModeEnforce)}
		c.create(ns)
	}
	trim, since := objectcache.NewTransform(), metav1.NewTime(c.now.Add(-time.Hour))
	for i := range *largeNodes {
		n := fakekubelet.NodeObject(fmt.Sprintf("node-%05d", i), 16, c.now)
		c.stored["nodes"] += n.Size()
		c.create(n)
	}
	for i := range *largePods {
		limit := []cpu.Milli{200, 300, 500, 1000}[i/10%4]
		pod := fakekubelet.PodObject(fakekubelet.Spec{
			Namespace: fmt.Sprintf("team-%03d", i/10%namespaces), Workload: fmt.Sprintf("service-%d", i/10), Index: i % 10,
			Node: fmt.Sprintf("node-%05d", i%*largeNodes), Request: limit / 3, Limit: limit, Sidecar: i%4 == 0,
		})
		pod.UID, pod.Generation = types.UID(fmt.Sprintf("6f2c0d7e-58a4-4f7e-9a51-%012d", i)), 1
		pod.Status = fakekubelet.Running(pod, since)
		fakekubelet.SetManagers(pod, since)
		c.stored["pods"] += pod.Size()
		if _, err := trim(pod); err != nil {
			t.Fatal(err)
		}
		c.create(pod)
		c.pods = append(c.pods, client.ObjectKeyFromObject(pod))
	}
	c.renew()
	return c
}

func (c *large) create(o client.Object) {
	must.Succeed(c, c.api.Create("cluster", o))
}

// count takes in a change.
func (c *large) count(e memapi.Event) {
	if e.Resource == "pods" && e.Sub == "resize" {
		c.resized = append(c.resized, e.After.(*corev1.Pod))
	}
	if strings.HasPrefix(e.Actor, "replica") {
		kind := e.Resource
		if e.Sub != "" {
			kind += "/" + e.Sub
		}
		c.writes[kind]++
	}
}

func (c *large) total() (n int) {
	for _, k := range c.writes {
		n += k
	}
	return n
}

func (c *large) said() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(c.writes)) {
		parts = append(parts, fmt.Sprintf("%d %s", c.writes[kind], kind))
	}
	return fmt.Sprintf("%s, %d events", strings.Join(parts, ", "), c.events)
}

// join starts a replica in place of the one before, with a cache of the whole cluster.
func (c *large) join(owns func(string) bool) {
	c.api.Compact(c.api.Length())
	c.writes, c.events, c.owns, c.due = map[string]int{}, 0, owns, map[string]time.Time{}
	c.process, c.cache = nil, c.api.NewCache(c.api.Length(), objectcache.NewTransform())
	connect := func(options client.Options) client.Client {
		options.Scheme, options.Mapper = memapi.Scheme, memapi.Mapper()
		cl, err := client.New(memapi.Config(wireTo{c}, "replica"), options)
		must.Succeed(c, err)
		return cl
	}
	c.process = system().New(schedule.Process{
		Client: connect(client.Options{Cache: &client.CacheOptions{Reader: c.cache}}), Live: connect(client.Options{}),
		Now:    func() time.Time { return c.now },
		Jitter: func(d time.Duration) time.Duration { return d }, Audit: slog.DiscardHandler,
	}).(*underTest)
	c.process.Events = counting{&c.events}
	for _, resource := range memapi.Resources() {
		for _, o := range c.cache.Items(resource) {
			c.process.Changed(c.Context(), o)
		}
	}
	for i := range *largeNodes {
		if name := fmt.Sprintf("node-%05d", i); owns(name) {
			c.due[name] = c.now
		}
	}
	c.process.resizes.SetShare(float64(len(c.due)) / float64(*largeNodes))
}

// counting counts events.
type counting struct{ n *int }

func (e counting) Eventf(k8sruntime.Object, k8sruntime.Object, string, string, string, string, ...any) {
	*e.n++
}

// wireTo leads to the API server for as long as there is one, so that what the replica holds can be told from it.
type wireTo struct{ *large }

// RoundTrip implements http.RoundTripper.
func (w wireTo) RoundTrip(q *http.Request) (*http.Response, error) { return w.api.RoundTrip(q) }

// renew renews the Leases of all agents, which stand by all decisions.
func (c *large) renew() {
	c.renewed = c.now
	at := metav1.NewMicroTime(c.now)
	for i := range *largeNodes {
		node := fmt.Sprintf("node-%05d", i)
		market := allocation.NodeMarket{Epoch: allocation.Epoch{Time: c.epochs[node]}, Supply: 15000}.Text()
		change := func(l *coordinationv1.Lease) {
			l.Spec.RenewTime, l.Annotations = &at, map[string]string{kube.MarketKey: market}
		}
		if !memapi.Change(c.api, "agent", kube.SystemNamespace, kube.AgentLease(node), change) {
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: kube.AgentLease(node)}}
			change(l)
			c.create(l)
		}
	}
}

// settle lets the cluster run for a time.
func (c *large) settle(d time.Duration) {
	for end := c.now.Add(d); c.now.Before(end); c.now = c.now.Add(time.Second) {
		if c.now.Sub(c.renewed) >= 20*time.Second {
			c.renew()
			c.api.Compact(c.api.Length() - *largeNodes)
		}
		for range 5 { // what follows from what, within the second
			c.look()
			if !c.work() {
				break
			}
		}
	}
}

// look has kubelets carry out resizes, and the cache show all that has changed.
func (c *large) look() {
	for _, pod := range c.resized {
		status := apiserver.Report(pod, apiserver.Obey, metav1.NewTime(c.now))
		memapi.Change(c.api, "kubelet", pod.Namespace, pod.Name, func(p *corev1.Pod) { p.Status = status })
	}
	c.resized = nil
	for _, resource := range memapi.Resources() {
		for _, o := range c.cache.Show(resource, c.api.Length()) {
			c.wake(c.process.Changed(c.Context(), o))
		}
	}
}

func (c *large) wake(requests []reconcile.Request) {
	for _, q := range requests {
		if at, ok := c.due[q.Name]; c.owns(q.Name) && (!ok || at.After(c.now)) {
			c.due[q.Name] = c.now
		}
	}
}

// work reconciles the nodes that are due, and says whether there were any.
func (c *large) work() (worked bool) {
	c.wake(c.process.Background(c.Context()))
	for _, node := range slices.Sorted(maps.Keys(c.due)) {
		if c.due[node].After(c.now) {
			continue
		}
		worked = true
		delete(c.due, node)
		result, err := c.process.Reconcile(c.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
		must.Succeed(c, err)
		if result.RequeueAfter > 0 {
			c.due[node] = c.now.Add(result.RequeueAfter)
		}
	}
	return worked
}

// decide has agents decide on so many times its declared limit for one pod of each n, on the replica's nodes.
func (c *large) decide(n int, times cpu.Milli) (decided int) {
	at := metav1.NewMicroTime(c.now)
	for i, key := range c.pods {
		pod := memapi.Get[*corev1.Pod](c.api, key.Namespace, key.Name)
		if (i + i / *largeNodes)%n != 0 || !c.owns(pod.Spec.NodeName) {
			continue
		}
		decided++
		c.epochs[pod.Spec.NodeName] = c.now
		memapi.Change(c.api, "agent", key.Namespace, string(pod.UID), func(pa *v1alpha1.PodAllocation) {
			declared := pa.Status.DeclaredLimits[0]
			declared.CPULimit *= times
			pa.Spec.DesiredCPULimit, pa.Spec.Containers = &declared.CPULimit, []v1alpha1.ContainerLimit{declared}
			pa.Spec.Decision = &v1alpha1.Decision{
				Budget: 100, Demand: declared.CPULimit, Floor: 10, Ceiling: 16000, BoundBy: v1alpha1.BoundByPrice, Price: 1, ObservedAt: at,
			}
		})
	}
	return decided
}

// etcd is about how many bytes etcd holds in keys and values, without their history: pods and nodes as they were
// created, in protobuf, and the rest in JSON, with managedFields.
func (c *large) etcd() (bytes int, parts string) {
	sizes := maps.Clone(c.stored)
	add := func(resource string, o client.Object) {
		raw, err := json.Marshal(o)
		must.Succeed(c, err)
		var whole any
		must.Succeed(c, json.Unmarshal(raw, &whole))
		fields, err := json.Marshal(fieldsOf(whole))
		must.Succeed(c, err)
		const entries, key = 3 * 150, 120 // the entries of managedFields beside their fields
		sizes[resource] += len(raw) + len(fields) + entries + key
	}
	for _, o := range memapi.All[*v1alpha1.PodAllocation](c.api) {
		add("PodAllocations", o)
	}
	for _, o := range memapi.All[*v1alpha1.NodeAllocation](c.api) {
		add("NodeAllocations", o)
	}
	for _, o := range memapi.All[*corev1.ConfigMap](c.api) {
		add("ledgers", o)
	}
	for _, o := range memapi.All[*coordinationv1.Lease](c.api) {
		add("Leases", o)
	}
	for _, kind := range slices.Sorted(maps.Keys(sizes)) {
		bytes += sizes[kind]
		parts += fmt.Sprintf("%s %s, ", kind, mib(sizes[kind]))
	}
	return bytes, strings.TrimSuffix(parts, ", ")
}

// fieldsOf is what managedFields say of an object.
func fieldsOf(o any) map[string]any {
	fields := map[string]any{}
	switch o := o.(type) {
	case map[string]any:
		for name, value := range o {
			fields["f:"+name] = fieldsOf(value)
		}
	case []any:
		for i, value := range o {
			fields[fmt.Sprintf(`k:{"name":"%d"}`, i)] = fieldsOf(value)
		}
	}
	return fields
}
