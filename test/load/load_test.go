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

func TestWorkIsBounded(t *testing.T) {
	srv := httptest.NewServer(newServer(1))
	defer srv.Close()
	for query, want := range map[string]int{
		"n=1000": http.StatusOK, "n=0": http.StatusOK,
		"": http.StatusBadRequest, "n=-1": http.StatusBadRequest, "n=x": http.StatusBadRequest,
		"n=10000000001": http.StatusBadRequest,
	} {
		resp, err := http.Get(srv.URL + "/work?" + query)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET /work?%s: %d, want %d", query, resp.StatusCode, want)
		}
	}
}

// The request of a client that has gone costs nothing, and takes no slot.
func TestRequestsOfGoneClientsAreDropped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rec := httptest.NewRecorder()
	routes := newServer(1)
	routes.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/work?n=10000000000", nil))
	if rec.Body.Len() != 0 {
		t.Errorf("answered %q to a client that has gone", rec.Body)
	}
}

func TestHogEndsByItself(*testing.T) {
	h := newHog()
	h.spin(plan{Threads: 2, Until: time.Now().Add(20 * time.Millisecond)})
	h.threads.Wait() // returns only if the threads end
}

func TestHogIsReplaced(t *testing.T) {
	h := newHog()
	rec := httptest.NewRecorder()
	put := func(body string) int {
		rec = httptest.NewRecorder()
		h.routes().ServeHTTP(rec, httptest.NewRequest(http.MethodPut, "/plan", strings.NewReader(body)))
		return rec.Code
	}
	if code := put(`{"threads":1}`); code != http.StatusOK {
		t.Fatalf("plan refused: %d %s", code, rec.Body)
	}
	if code := put(`{"threads":65}`); code != http.StatusBadRequest {
		t.Errorf("65 threads: %d", code)
	}
	h.stop() // returns only if the endless thread ends
}

func TestHogIsUnhealthyByPlan(t *testing.T) {
	h := newHog()
	defer h.stop()
	for _, step := range []struct {
		plan string
		want int
	}{{`{"unhealthy":true}`, http.StatusServiceUnavailable}, {`{}`, http.StatusOK}} {
		put := httptest.NewRequest(http.MethodPut, "/plan", strings.NewReader(step.plan))
		h.routes().ServeHTTP(httptest.NewRecorder(), put)
		rec := httptest.NewRecorder()
		h.routes().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		if rec.Code != step.want {
			t.Errorf("plan %s: health is %d, want %d", step.plan, rec.Code, step.want)
		}
	}
}

func TestOnceEnds(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"once", "--n=1000"}, &out); err != nil || out.Len() == 0 {
		t.Errorf("%v, said %q", err, out.String())
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		nil, {"unknown"}, {"serve", "--slots", "0"}, {"hog", "--threads", "-1"}, {"hog", "more"}, {"once", "more"},
	} {
		if err := run(t.Context(), args, &bytes.Buffer{}); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}
}
