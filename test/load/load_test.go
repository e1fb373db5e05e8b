//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// answer is the answer to a request without a network.
func answer(ctx context.Context, s *server, method, path, body string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	s.routes().ServeHTTP(rec, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	return rec
}

// TestAnswers: work and plans are bounded, and a plan makes the probe fail.
func TestAnswers(t *testing.T) {
	s := newServer()
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "/work?n=1000", "", http.StatusOK}, {"GET", "/work?n=0", "", http.StatusOK},
		{"GET", "/work", "", http.StatusBadRequest}, {"GET", "/work?n=-1", "", http.StatusBadRequest},
		{"GET", "/work?n=10000000001", "", http.StatusBadRequest},
		{"PUT", "/plan", `{"threads":65}`, http.StatusBadRequest},
		{"PUT", "/plan", `{"threads":1}`, http.StatusOK}, {"GET", "/healthz", "", http.StatusOK},
		{"PUT", "/plan", `{"unhealthy":true}`, http.StatusOK}, {"GET", "/healthz", "", http.StatusServiceUnavailable},
		{"PUT", "/plan", `{}`, http.StatusOK}, {"GET", "/healthz", "", http.StatusOK},
	} {
		if got := answer(t.Context(), s, c.method, c.path, c.body); got.Code != c.want {
			t.Errorf("%s %s %s: %d %s, want %d", c.method, c.path, c.body, got.Code, got.Body, c.want)
		}
	}
	s.threads.Wait() // returns only if the endless thread was ended
}

// The request of a client that has gone costs nothing, and takes no slot.
func TestRequestsOfGoneClientsAreDropped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := answer(ctx, newServer(), "GET", "/work?n=10000000000", ""); got.Body.Len() != 0 {
		t.Errorf("answered %q to a client that has gone", got.Body)
	}
}

func TestPlanEndsByItself(*testing.T) {
	s := newServer()
	s.follow(plan{Threads: 2, Until: time.Now().Add(20 * time.Millisecond)})
	s.threads.Wait() // returns only if the threads end
}

func TestCommandLine(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--once=1000"}, &out); err != nil || out.Len() == 0 {
		t.Errorf("%v, said %q", err, &out)
	}
	for _, args := range [][]string{{"serve"}, {"--threads=-1"}, {"--threads=65"}, {"--what"}} {
		if err := run(t.Context(), args, &out); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, []string{"--listen=127.0.0.1:0", "--threads=1"}, &out); err != nil {
		t.Errorf("a server that is stopped: %v", err)
	}
}
