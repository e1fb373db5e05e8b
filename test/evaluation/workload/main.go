//go:build linux

// Command mbcas-workload is the first process of the pods of the evaluation. It prepares a real
// program and starts it: a web server in Go, nginx, PostgreSQL, Redis, or a batch job. Its own port
// tells when that is ready, starts and ends a batch job at given times, and counts what it has done.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/mbcas/mbcas/test/evaluation/internal/client"
	"github.com/mbcas/mbcas/test/internal/program"
)

var errUsage = errors.New("usage: mbcas-workload web|nginx|postgres|redis|xz|matrix|gcc DATA-FOLDER")

func main() { program.Main("mbcas-workload", errUsage, run) }

func run(ctx context.Context, args []string, _ io.Writer) error {
	if len(args) != 2 {
		return errUsage
	}
	kind, data := args[0], args[1]
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	mux := http.NewServeMux()
	control := &http.Server{Addr: fmt.Sprintf(":%d", client.ControlPort), Handler: mux, ReadHeaderTimeout: time.Minute}
	ready := make(chan struct{})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-ready:
		default:
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(control.ListenAndServe()) }()
	isReady := func() { close(ready) }
	var err error
	if serve, ok := servers[kind]; ok {
		err = serve(ctx, data, isReady)
	} else if unit, ok := units[kind]; ok {
		var j *job
		if j, err = newJob(unit, data); err == nil {
			mux.HandleFunc("PUT /plan", j.put)
			mux.HandleFunc("GET /done", j.done)
			isReady()
			j.run(ctx)
		}
	} else {
		return errUsage
	}
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// put takes a plan.
func (j *job) put(w http.ResponseWriter, r *http.Request) {
	var p client.Plan
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil || p.Threads < 1 || p.Threads > 64 {
		http.Error(w, fmt.Sprintf("plan: want 1 to 64 threads, from and until: %v", err), http.StatusBadRequest)
		return
	}
	j.plans <- p
}

// done answers what was done of the last plan.
func (j *job) done(w http.ResponseWriter, _ *http.Request) {
	if err := json.NewEncoder(w).Encode(j.count()); err != nil {
		fmt.Fprintln(os.Stderr, "mbcas-workload: answer:", err)
	}
}
