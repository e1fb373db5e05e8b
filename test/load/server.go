//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mbcas/mbcas/test/load/work"
)

const (
	maxThreads = 64
	// chunk is some tens of microseconds of work: how late a spinning thread sees the time.
	chunk = 20_000
	// maxIterations bounds the work of one request to about ten seconds.
	maxIterations = 10_000_000_000
	// atOnce is how many requests are worked on at a time; more wait in a queue.
	atOnce = 4
)

// plan is what the server does besides requests: Threads spin from From until Until. The times are given
// in advance, so that a throttled or starved one begins and ends on time. Zero means at once, and until
// the next plan. An unhealthy server fails its probes.
type plan struct {
	Threads   int       `json:"threads"`
	From      time.Time `json:"from,omitzero"`
	Until     time.Time `json:"until,omitzero"`
	Unhealthy bool      `json:"unhealthy,omitzero"`
}

// server works on requests, and spins according to one plan at a time.
type server struct {
	slots     chan struct{}
	mu        sync.Mutex
	end       chan struct{} // closed: the plan was replaced
	threads   sync.WaitGroup
	unhealthy atomic.Bool
}

func newServer() *server {
	return &server{slots: make(chan struct{}, atOnce), end: make(chan struct{})}
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if s.unhealthy.Load() {
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
		s.follow(p)
	})
	// Ends as if it were killed, where a test cannot reach its processes.
	mux.HandleFunc("PUT /exit", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "0")
		_ = http.NewResponseController(w).Flush()
		os.Exit(137)
	})
	mux.HandleFunc("GET /work", s.work)
	return mux
}

// work answers /work?n=ITERATIONS after so much work. A request whose client has gone is dropped.
func (s *server) work(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("n")
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxIterations {
		http.Error(w, fmt.Sprintf("n=%q: want 0 to %d iterations", text, maxIterations), http.StatusBadRequest)
		return
	}
	select {
	case s.slots <- struct{}{}:
	case <-r.Context().Done():
		return
	}
	defer func() { <-s.slots }()
	if r.Context().Err() == nil {
		fmt.Fprintln(w, work.Burn(n))
	}
}

// follow replaces the plan by p.
func (s *server) follow(p plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unhealthy.Store(p.Unhealthy)
	close(s.end)
	s.threads.Wait()
	s.end = make(chan struct{})
	// The default would follow the CPU limit, in which compared runs differ. Threads beyond the cores must
	// be real ones, with one left to answer requests.
	runtime.GOMAXPROCS(max(p.Threads+1, runtime.NumCPU()))
	end := s.end
	for range p.Threads {
		s.threads.Go(func() { spin(p, end) })
	}
}

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
