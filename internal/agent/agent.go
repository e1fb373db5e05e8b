package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/mbcas/mbcas/internal/agent/health"
	"github.com/mbcas/mbcas/internal/agent/objects"
	"github.com/mbcas/mbcas/internal/agent/recording"
	"github.com/mbcas/mbcas/internal/agent/weighting"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/record"
)

// Agent is the daemon of one node.
type Agent struct {
	// Open finds the counters of the node. New sets it to the kernel's; a measurement without a
	// kernel replaces it.
	Open func(context.Context) (Sampler, error)

	cfg     Config
	log     *slog.Logger
	clients objects.Clients
}

// New validates the config and makes the clients. It sends no request.
func New(cfg Config, api *rest.Config, log *slog.Logger) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c, err := objects.NewClients(api)
	if err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, log: log, clients: c}
	a.Open = a.openHost
	return a, nil
}

// Listeners are where an agent serves HTTP.
type Listeners struct {
	// Cluster is for the probes and the metrics, which name no pod.
	Cluster net.Listener
	// Debug is for what names pods. It listens on a loopback address.
	Debug net.Listener
}

// Run works until ctx ends, and serves HTTP. It returns an error only when it cannot serve: it waits for
// everything else that is missing, and /readyz and the log name it.
func (a *Agent) Run(ctx context.Context, l Listeners) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m, state := newMetrics(), health.New(a.cfg.Interval, time.Now())
	objects := newInformers(a.clients, a.cfg.Node, a.log)
	recorder := a.recorder()
	queue, standing := newPublishQueue(a.cfg.samples(3)), &standing{}
	loop := &roundLoop{
		interval: a.cfg.Interval, cfg: a.cfg.round(), log: a.log, health: state, metrics: m,
		open:     a.Open,
		snapshot: objects.snapshot.Load,
		changed:  objects.taken,
		record:   recording.Feed{To: recorder, Log: a.log},
	}
	publisher := &publisher{
		queue: queue, client: a.clients.Allocations, published: objects.published, log: a.log, metrics: m,
	}
	lease := &leaseClient{
		client: a.clients.Leases, namespace: a.cfg.Namespace, holder: a.cfg.Holder,
		node: a.cfg.Node, snapshot: objects.snapshot.Load, market: standing.say,
	}
	loop.before = lease.priceBefore
	loop.publish = func(r *roundResult) {
		standing.update(r)
		if !lease.holds(time.Now()) {
			queue.replace(nil, r.At)
			return
		}
		queue.replace(publicationsOf(r), r.At)
	}
	loop.raise = func(r *roundResult) {
		if lease.holds(time.Now()) {
			queue.add(publicationsOf(r))
		}
	}
	heartbeat := &heartbeat{
		lease: a.cfg.Namespace + "/" + kube.AgentLease(a.cfg.Node), live: state.Live,
		settled: standing.isSettled, takeOver: lease.takeOver, renew: lease.renew, health: state, log: a.log, metrics: m,
	}
	m.registry.MustRegister(leaseGauge(lease.holds), buildGauge(a.cfg.Version))

	runs := []func(context.Context){objects.Run, loop.Run, publisher.Run, heartbeat.Run}
	if a.cfg.WeightsSocket != "" {
		client := weighting.NewClient(a.cfg.WeightsSocket)
		m.registry.MustRegister(client)
		loop.weighting, runs = weighting.New(client, a.log), append(runs, client.Run)
	}
	var running sync.WaitGroup
	for _, run := range runs {
		running.Go(func() { run(ctx) })
	}
	var debug error
	running.Go(func() {
		debug = serve(ctx, l.Debug, debugRoutes(&loop.last, recording.Handler(recorder, a.about())))
		stop()
	})
	err := serve(ctx, l.Cluster, routes(state, m))
	stop()
	running.Wait()
	return errors.Join(err, debug)
}

// recorder is nil where nothing is recorded.
func (a *Agent) recorder() *record.Recorder {
	if a.cfg.Record == 0 {
		return nil
	}
	return record.NewRecorder(record.Limits{Keep: a.cfg.Record, Bytes: record.DefaultLimits.Bytes})
}

// about says where the recording comes from.
func (a *Agent) about() record.About {
	return record.About{Node: a.cfg.Node, Version: a.cfg.Version, Arch: runtime.GOARCH}
}

// openHost finds the node's cgroups.
func (a *Agent) openHost(ctx context.Context) (Sampler, error) {
	cfg := a.cfg.Kernel
	cfg.Log, cfg.PressureFrom = a.log, a.cfg.round().PressureFrom(a.cfg.Interval)
	h, err := kernel.Open(cfg)
	if err != nil {
		return nil, fmt.Errorf("cgroups of the node: %w", err)
	}
	h.Watch(ctx) // the host lists pods as soon as one starts, not only at its interval
	return h, nil
}
