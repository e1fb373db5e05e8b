package schedule

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/cpu"
	production "github.com/mbcas/mbcas/internal/agent"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/faults"
	"github.com/mbcas/mbcas/internal/testing/loads"
	"github.com/mbcas/mbcas/internal/testing/memapi"
)

// agentActor is how the names begin under which agents make their requests.
const agentActor = "agent "

// member is a node of a soak: its counters, and its agent as it ships.
type member struct {
	soak     *soak
	node     string
	conn     *faults.Transport
	clock    *clock
	counters *loads.Node
	stop     func() // the agent, and waits for it
	runs     bool
}

func (s *soak) newMember(node string) *member {
	c := &clock{next: &s.inbox}
	return &member{
		soak: s, node: node, conn: &faults.Transport{Next: c}, clock: c, counters: &loads.Node{Cores: 4, System: 0.2}, stop: func() {},
	}
}

// start starts the agent, unless it runs.
func (m *member) start() {
	if m.runs {
		return
	}
	m.runs = true
	cfg := production.DefaultConfig()
	cfg.Node, cfg.Holder = m.node, "agent-"+m.node
	a, err := production.New(cfg, memapi.Config(m.conn, agentActor+m.node), slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err) // nothing is sent yet
	}
	a.Open = func(context.Context) (production.Sampler, error) { return m.counters, nil }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.Run(ctx, production.Listeners{Cluster: newUnused(), Debug: newUnused()}) // it ends with ctx alone
	}()
	m.stop = func() {
		m.runs, m.stop = false, func() {}
		cancel()
		for ended := false; !ended; { // its last request is answered
			m.soak.serve()
			select {
			case <-done:
				ended = true
			default:
				m.soak.elapse(1)
			}
		}
	}
}

// follow has the node run the containers of its pods, with the quotas that its kubelet reports.
func (m *member) follow() {
	ids := map[string]bool{}
	for _, p := range memapi.All[*corev1.Pod](m.soak.api) {
		if p.Spec.NodeName != m.node {
			continue
		}
		for i, status := range p.Status.ContainerStatuses {
			id := strings.TrimPrefix(status.ContainerID, "containerd://")
			if ids[id] = true; status.Resources == nil {
				continue
			}
			request := kube.Milli(p.Spec.Containers[i].Resources.Requests[corev1.ResourceCPU])
			m.counters.Set(id, kube.Milli(status.Resources.Limits[corev1.ResourceCPU]), func() *loads.Container {
				return &loads.Container{Load: m.soak.load(p.Name, i, request), Request: request}
			})
		}
	}
	m.counters.Keep(ids)
}

// load is that of a container: of every twentieth pod more than the node has, of others 30 to 180 % of
// what they request. A pod that is replaced has the same.
func (s *soak) load(pod string, container int, request cpu.Milli) *loads.Load {
	h := fnv.New64a()
	fmt.Fprint(h, pod, container, s.Seed)
	seed := h.Sum64()
	if s.Load != nil {
		return s.Load(request, seed)
	}
	if seed%20 == 0 {
		return loads.Constant(8)
	}
	var trace *loads.Trace
	if n := uint64(len(s.Traces)); n > 0 {
		trace = s.Traces[seed/20%n]
	}
	return loads.New(request.Cores()*(0.3+1.5*float64(seed/1000%100)/100), trace, seed)
}

// inbox are the requests of agents that wait for their answers.
type inbox struct {
	answers map[string]int
	mu      sync.Mutex
	list    []*letter
}

type letter struct {
	*http.Request
	replied chan reply
	inbox   *inbox
}

type reply struct {
	response *http.Response
	err      error
}

// RoundTrip waits until the request is answered.
func (b *inbox) RoundTrip(q *http.Request) (*http.Response, error) {
	l := &letter{q, make(chan reply, 1), b}
	b.mu.Lock()
	b.list = append(b.list, l)
	b.mu.Unlock()
	select {
	case r := <-l.replied:
		return r.response, r.err
	case <-q.Context().Done():
		return nil, q.Context().Err()
	}
}

func (b *inbox) take() []*letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.list
	b.list = nil
	return list
}

func (l *letter) answer(api http.RoundTripper) {
	response, err := api.RoundTrip(l.Request) //nolint:bodyclose // the agent does
	what := "no answer"
	if err == nil {
		what = http.StatusText(response.StatusCode)
	}
	l.inbox.answers[what]++
	l.replied <- reply{response, err}
}

// unused is a listener that nothing calls.
type unused struct {
	closed chan struct{}
	once   sync.Once
}

func newUnused() *unused { return &unused{closed: make(chan struct{})} }

// Accept waits until it is closed.
func (u *unused) Accept() (net.Conn, error) {
	<-u.closed
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (u *unused) Close() error {
	u.once.Do(func() { close(u.closed) })
	return nil
}

// Addr implements net.Listener.
func (*unused) Addr() net.Addr { return &net.TCPAddr{} }
