package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// routes are the agent's handlers for the whole cluster. Nothing that they say names a pod:
//
//	/healthz      200 while the round loop ticks
//	/readyz       200 while rounds complete; otherwise why not
//	/metrics      Prometheus
func routes(h *health, m *metrics) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", checkHandler(h.Healthy))
	mux.HandleFunc("GET /readyz", checkHandler(h.Ready))
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		DisableCompression: true, MaxRequestsInFlight: 2,
	}))
	return mux
}

// debugRoutes are the handlers that name pods, for the loopback of the agent's pod. None of them writes:
// each process of the pod, and each user with the verb on pods/portforward, reaches them.
//
//	/debug/round  the last round as JSON, see allocation.RoundReport
func debugRoutes(last *atomic.Pointer[roundResult]) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/round", func(w http.ResponseWriter, _ *http.Request) {
		r := last.Load()
		if r == nil {
			http.Error(w, "no round has completed yet; /readyz says why", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(report(r)) // fails only when the client has gone
	})
	return mux
}

func checkHandler(check func(time.Time) error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// serve serves h on l until ctx ends.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{
		Handler: h, MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 30 * time.Second,
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// health is the state of the round loop, for the probes and the heartbeat.
type health struct {
	interval  time.Duration
	started   time.Time
	lastTick  atomic.Pointer[time.Time] // end of the last tick, with or without a round
	lastRound atomic.Pointer[time.Time] // end of the last completed round
	obstacle  atomic.Pointer[string]    // why no round can run; empty or nil: nothing prevents it
	standby   atomic.Pointer[string]    // why another agent publishes for this node; nil: this one may
	panics    atomic.Int32              // in a row
}

const (
	maxPanics = 5                // in a row, before the agent is unhealthy
	minWindow = 10 * time.Second // for a tick to end
)

func newHealth(interval time.Duration, now time.Time) *health {
	return &health{interval: interval, started: now}
}

// window is the time in which a working loop completes a tick.
func (h *health) window() time.Duration { return max(3*h.interval, minWindow) }

// Healthy is nil while the loop ticks. After an error only a new process helps.
func (h *health) Healthy(now time.Time) error {
	if n := h.panics.Load(); n >= maxPanics {
		return fmt.Errorf("the last %d rounds panicked", n)
	}
	last := h.started
	if t := h.lastTick.Load(); t != nil {
		last = *t
	}
	if age := now.Sub(last); age > h.window() {
		return fmt.Errorf("the round loop has been stuck for %v", age.Round(time.Second))
	}
	return nil
}

// Ready is nil while rounds complete; otherwise the error names what is missing.
func (h *health) Ready(now time.Time) error {
	if err := h.Healthy(now); err != nil {
		return err
	}
	if obstacle := h.obstacle.Load(); obstacle != nil && *obstacle != "" {
		return fmt.Errorf("no rounds: %s", *obstacle)
	}
	if !h.Live(now) {
		return fmt.Errorf("no round has completed in the last %v", h.window())
	}
	if standby := h.standby.Load(); standby != nil {
		return fmt.Errorf("nothing is published: %s", *standby)
	}
	return nil
}

// Live says whether a round completed within the window.
func (h *health) Live(now time.Time) bool {
	t := h.lastRound.Load()
	return t != nil && now.Sub(*t) <= h.window()
}
