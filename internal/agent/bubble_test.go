package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/fakekubelet"
	"github.com/mbcas/mbcas/internal/testing/memapi"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// newBubble is a node in an API server in memory, for tests in a bubble: a round takes no time, so
// each starts on its second.
func newBubble(t *testing.T) *world {
	api := memapi.New(time.Now).Shared()
	c, err := client.New(memapi.Config(api, "test"), client.Options{Scheme: memapi.Scheme, Mapper: memapi.Mapper()})
	must.Succeed(t, err)
	w := &world{t: t, client: c, ns: "shop", node: "node-1", interval: time.Second}
	w.sent.next = api
	w.access = memapi.Config(&w.sent, "agent")
	// No watch for new pods: a bubble's clock does not move while a file of the kernel is waited for.
	w.open = kernel.Open
	create := func(o client.Object) {
		t.Helper()
		must.Succeed(t, c.Create(t.Context(), o))
	}
	for _, name := range []string{w.ns, kube.SystemNamespace} {
		create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	create(fakekubelet.NodeObject(w.node, 4, time.Now()))
	w.run = func(pod *corev1.Pod) *corev1.Pod {
		t.Helper()
		pod.Spec.NodeName = w.node
		create(pod)
		pod.Status = fakekubelet.Running(pod, metav1.Now())
		must.Succeed(t, c.Status().Update(t.Context(), pod))
		return pod
	}
	w.eventually = func(what string, ok func() bool) {
		t.Helper()
		for range 60 {
			if synctest.Wait(); ok() {
				return
			}
			time.Sleep(w.interval)
		}
		t.Fatalf("after a minute it is not true that %s", what)
	}
	w.plant()
	return w
}

// rounds lets n more rounds complete, with all that they cause.
func (w *world) rounds(url string, n int) {
	w.t.Helper()
	synctest.Wait()
	before := w.completed(url)
	time.Sleep(time.Duration(n) * w.interval)
	synctest.Wait()
	if got := w.completed(url) - before; got != float64(n) {
		w.t.Errorf("%v rounds, want %d", got, n)
	}
}

// ports are listeners in memory, by name: a bubble's clock does not move while a socket is waited
// for.
type ports map[string]*port

func (p ports) listen() (net.Listener, string) {
	name := "port-" + string(rune('a'+len(p)))
	p[name] = &port{conns: make(chan net.Conn)}
	p[name].Context, p[name].close = context.WithCancel(context.Background())
	return p[name], "http://" + name
}

func (p ports) dial(ctx context.Context, _, address string) (net.Conn, error) {
	name, _, _ := strings.Cut(address, ":")
	client, server := net.Pipe()
	select {
	case p[name].conns <- server:
		return client, nil
	case <-p[name].Done():
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// port is a listener in memory, open until its context ends.
type port struct {
	context.Context
	close func()
	conns chan net.Conn
}

func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.Done():
		return nil, net.ErrClosed
	}
}

func (p *port) Close() error {
	p.close()
	return nil
}

func (*port) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// throttled starts a pod that is throttled at its limit of a core, and an agent, which decides about it.
func (w *world) throttled() (pod *corev1.Pod, pa *v1alpha1.PodAllocation, url string, stop func()) {
	w.t.Helper()
	pod, pa = w.start("throttled", "500m", "1", 1, 0.9)
	url, stop = w.agent()
	w.decided(pa)
	return pod, pa, url, stop
}

// checkWritten compares the stored limit and the number of writes so far.
func (w *world) checkWritten(pa *v1alpha1.PodAllocation, limit cpu.Milli, writes int) {
	w.t.Helper()
	got, n := w.allocation(pa).Spec.DesiredCPULimit, w.sent.count(http.MethodPatch)
	if got == nil || *got != limit || n != writes {
		w.t.Errorf("a limit of %v after %d writes, want %v after %d", got, n, limit, writes)
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
