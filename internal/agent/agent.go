package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/mbcas/mbcas/internal/kernel"
)

// Agent is the daemon of one node.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	clients clients
}

// New checks the config and makes the clients; nothing is asked of the API server yet.
func New(cfg Config, api *rest.Config, log *slog.Logger) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c, err := newClients(api)
	if err != nil {
		return nil, err
	}
	return &Agent{cfg: cfg, log: log, clients: c}, nil
}

// Run works until ctx ends, and answers on l. It returns an error only when it can't serve: whatever else is
// missing is waited for, and /readyz and the log say what it is.
func (a *Agent) Run(ctx context.Context, l net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m, beat := newMetrics(), newPulse(a.cfg.Interval, time.Now())
	feed := newFeed(a.clients, a.cfg.Node, a.log)
	queue := newQueue(a.cfg.samples(3))
	player := &player{
		interval: a.cfg.Interval, cfg: a.cfg.round(), log: a.log, pulse: beat, metrics: m,
		open:  a.openHost,
		view:  feed.view.Load,
		offer: func(r *played) { queue.replace(offersOf(r), r.At) },
	}
	publisher := &publisher{queue: queue, client: a.clients.allocations, wrote: feed.wrote, log: a.log, metrics: m}
	lease := &lease{
		client: a.clients.leases, namespace: a.cfg.Namespace, holder: a.cfg.Holder,
		node: a.cfg.Node, nodeUID: func() types.UID { return feed.view.Load().NodeUID },
	}
	heart := &heart{lease: a.cfg.Namespace + "/" + LeaseName(a.cfg.Node), playing: beat.Playing, renew: lease.renew, log: a.log, metrics: m}
	m.registry.MustRegister(board{&player.last})

	var running sync.WaitGroup
	for _, run := range []func(context.Context){feed.Run, player.Run, publisher.Run, heart.Run} {
		running.Go(func() { run(ctx) })
	}
	err := serve(ctx, l, routes(beat, m, &player.last))
	stop()
	running.Wait()
	return err
}

// openHost finds the node's cgroups.
func (a *Agent) openHost(ctx context.Context) (sampler, error) {
	cfg := a.cfg.Kernel
	cfg.Log = a.log
	h, err := kernel.Open(cfg)
	if err != nil {
		return nil, fmt.Errorf("cgroups of the node: %w", err)
	}
	h.Watch(ctx) // only has the host list again sooner
	return h, nil
}
