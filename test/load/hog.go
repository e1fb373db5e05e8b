//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mbcas/mbcas/test/load/work"
)

const (
	maxThreads = 64
	// chunk is some tens of microseconds of work: how late a spinning thread sees the time.
	chunk = 20_000
)

// plan is what a hog does: Threads spin from From until Until. The times are given in advance, so
// that a throttled or starved hog begins and ends on time. Zero means at once, and until the next
// plan. An unhealthy hog fails its probes.
type plan struct {
	Threads   int       `json:"threads"`
	From      time.Time `json:"from,omitzero"`
	Until     time.Time `json:"until,omitzero"`
	Unhealthy bool      `json:"unhealthy,omitzero"`
}

// hog spins according to one plan at a time.
type hog struct {
	mu        sync.Mutex
	end       chan struct{} // closed: the plan was replaced
	threads   sync.WaitGroup
	unhealthy atomic.Bool
}

func newHog() *hog { return &hog{end: make(chan struct{})} }

func (h *hog) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if h.unhealthy.Load() {
			http.Error(w, "unhealthy, as planned", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	// The limit that the kernel enforces, on a node with cgroup v2.
	mux.HandleFunc("GET /cpu.max", func(w http.ResponseWriter, _ *http.Request) {
		text, err := os.ReadFile("/sys/fs/cgroup/cpu.max")
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		_, _ = w.Write(text)
	})
	mux.HandleFunc("PUT /plan", func(w http.ResponseWriter, r *http.Request) {
		var p plan
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil || p.Threads < 0 || p.Threads > maxThreads {
			text := fmt.Sprintf("plan: want threads 0 to %d and times: %v", maxThreads, err)
			http.Error(w, text, http.StatusBadRequest)
			return
		}
		h.spin(p)
	})
	return mux
}

// spin replaces the plan by p.
func (h *hog) spin(p plan) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unhealthy.Store(p.Unhealthy)
	close(h.end)
	h.threads.Wait()
	h.end = make(chan struct{})
	// Threads beyond the cores must be real ones, with one left to answer requests.
	runtime.GOMAXPROCS(max(p.Threads+1, runtime.NumCPU()))
	end := h.end
	for range p.Threads {
		h.threads.Go(func() { spin(p, end) })
	}
}

func (h *hog) stop() { h.spin(plan{}) }

func spin(p plan, end <-chan struct{}) {
	select {
	case <-end:
		return
	case <-time.After(time.Until(p.From)):
	}
	runtime.LockOSThread()
	for p.Until.IsZero() || time.Now().Before(p.Until) {
		select {
		case <-end:
			return
		default:
			work.Burn(chunk)
		}
	}
}
