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

	"github.com/mbcas/mbcas/internal/agent/health"
	"github.com/mbcas/mbcas/internal/kernel"
)

// routes are the agent's handlers for the whole cluster. Nothing that they say names a pod:
//
//	/healthz      200 while the round loop ticks
//	/readyz       200 while rounds complete; otherwise why not
//	/metrics      Prometheus
func routes(h *health.State, m *metrics) http.Handler {
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
//	/debug/round   the last round as JSON, see allocation.RoundReport
//	/debug/rounds  the recording of the rounds, see package record; those after minute N with ?after=N
func debugRoutes(last *atomic.Pointer[roundResult], rounds http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /debug/rounds", rounds)
	mux.HandleFunc("GET /debug/round", func(w http.ResponseWriter, _ *http.Request) {
		r := last.Load()
		if r == nil {
			http.Error(w, "no round has completed yet; /readyz says why", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		out := report(r)
		out.Node.BPFScheduler = kernel.BPFScheduler("/sys")
		_ = json.NewEncoder(w).Encode(out) // fails only when the client has gone
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
