package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/mbcas/mbcas/internal/agent"
	"github.com/mbcas/mbcas/internal/kube"
)

// agentsPerConnection is how many agents share connections to the API server. Each has three
// watches, and each is a stream of a connection.
const agentsPerConnection = 50

// agents are the agents of all nodes, in this process.
type agents struct {
	running  sync.WaitGroup
	requests atomic.Int64 // sent
	refused  atomic.Int64 // answered with 429
	failed   atomic.Int64 // with no answer, or 5xx
}

// startAgents starts an agent for every node, all within some seconds, with the agent's own rights
// and identity: its service account, on its node.
func (w *world) startAgents(ctx context.Context, within time.Duration) (*agents, error) {
	all := &agents{}
	var shared http.RoundTripper
	for i := range w.nodes {
		if i%agentsPerConnection == 0 {
			own := rest.CopyConfig(w.api.Config)
			own.Dial = (&net.Dialer{}).DialContext // a connection of its own
			base, err := rest.TransportFor(own)
			if err != nil {
				return nil, fmt.Errorf("connect the agents: %w", err)
			}
			shared = &counting{base, all}
		}
		cfg := agent.DefaultConfig()
		cfg.Node, cfg.Holder = nodeName(i), "mbcas-agent-"+nodeName(i)
		if !w.probed(cfg.Node) {
			cfg.Interval = w.interval
		}
		a, err := agent.New(cfg, &rest.Config{
			Host: w.api.Config.Host, Transport: shared, UserAgent: "mbcas-agent",
			Impersonate: rest.ImpersonationConfig{
				UserName: "system:serviceaccount:" + kube.SystemNamespace + ":mbcas-agent",
				Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {cfg.Node}},
			},
		}, w.log.With("node", cfg.Node))
		if err != nil {
			return nil, err
		}
		a.Open = w.loads.open(w.cores)
		all.running.Go(func() {
			listeners := agent.Listeners{Cluster: newUnusedListener(), Debug: newUnusedListener()}
			if err := a.Run(ctx, listeners); err != nil {
				w.log.Error("agent ended", "node", cfg.Node, "err", err)
			}
		})
		if !sleep(ctx, within/time.Duration(w.nodes)) {
			return nil, ctx.Err()
		}
	}
	return all, nil
}

// counting counts requests and their answers.
type counting struct {
	http.RoundTripper
	*agents
}

// RoundTrip implements http.RoundTripper.
func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	response, err := c.RoundTripper.RoundTrip(r)
	switch {
	case err != nil || response.StatusCode >= http.StatusInternalServerError:
		c.failed.Add(1)
	case response.StatusCode == http.StatusTooManyRequests:
		c.refused.Add(1)
	}
	return response, err
}

// unusedListener is for servers that nothing calls.
type unusedListener struct {
	closed chan struct{}
	once   sync.Once
}

func newUnusedListener() *unusedListener { return &unusedListener{closed: make(chan struct{})} }

// Accept implements net.Listener.
func (l *unusedListener) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *unusedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (*unusedListener) Addr() net.Addr { return &net.TCPAddr{} }

// sleep waits; false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
