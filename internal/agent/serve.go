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

// routes are what the agent answers:
//
//	/healthz      200 while the round loop comes round
//	/readyz       200 while rounds are played; otherwise why not
//	/metrics      Prometheus
//	/debug/round  the last round as JSON, see allocation.RoundReport
func routes(p *pulse, m *metrics, last *atomic.Pointer[played]) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(p.Healthy))
	mux.HandleFunc("GET /readyz", answer(p.Ready))
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true, MaxRequestsInFlight: 2}))
	mux.HandleFunc("GET /debug/round", func(w http.ResponseWriter, _ *http.Request) {
		r := last.Load()
		if r == nil {
			http.Error(w, "no round has been played yet; /readyz says why", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(report(r)) // the reader has gone
	})
	return mux
}

func answer(check func(time.Time) error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// serve answers on l until ctx ends.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
