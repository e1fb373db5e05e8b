//go:build linux

package main

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"

	"github.com/mbcas/mbcas/test/load/work"
)

// maxIterations bounds the work of one request to about ten seconds.
const maxIterations = 10_000_000_000

// newServer answers GET /work?n=ITERATIONS after so much work. At most slots requests are in
// progress; the others wait in a queue. A request whose client has gone is dropped.
func newServer(slots int) http.Handler {
	// The default would follow the CPU limit; the threads of a service must not
	// differ between runs that differ in their limits.
	runtime.GOMAXPROCS(runtime.NumCPU())
	slot := make(chan struct{}, slots)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /work", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil || n < 0 || n > maxIterations {
			text := fmt.Sprintf("n=%q: want 0 to %d iterations", r.URL.Query().Get("n"), maxIterations)
			http.Error(w, text, http.StatusBadRequest)
			return
		}
		select {
		case slot <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		defer func() { <-slot }()
		if r.Context().Err() == nil {
			fmt.Fprintln(w, work.Burn(n))
		}
	})
	return mux
}
