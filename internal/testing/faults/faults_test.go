package faults_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mbcas/mbcas/internal/testing/faults"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// next counts what arrives, and answers.
type next struct {
	arrived int
	body    string
}

func (n *next) RoundTrip(q *http.Request) (*http.Response, error) {
	n.arrived++
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(n.body)), Request: q}, nil
}

// TestFaults plays every kind of fault: whether the request arrives, and what the client sees.
func TestFaults(t *testing.T) {
	for text, want := range map[string]struct {
		arrives bool
		after   time.Duration
		err     error
		code    int
	}{
		"lost-request": {false, 0, faults.ErrLost, 0},
		"lost-answer":  {true, 0, faults.ErrLost, 0},
		"hang":         {false, 8 * time.Second, context.DeadlineExceeded, 0},
		"hang-after":   {true, 8 * time.Second, context.DeadlineExceeded, 0},
		"delay(5s)":    {true, 5 * time.Second, nil, 200},
		"delay(9s)":    {false, 8 * time.Second, context.DeadlineExceeded, 0},
		"401":          {false, 0, nil, 401},
		"429":          {false, 0, nil, 429},
		"503":          {false, 0, nil, 503},
		"crash-before": {false, 0, faults.ErrLost, 0},
		"crash-after":  {true, 0, faults.ErrLost, 0},
	} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, err := faults.Parse(text)
				if err != nil || f.String() != text {
					t.Fatalf("parsed as %v: %v", f, err)
				}
				n := &next{}
				tr := &faults.Transport{Next: n, Crash: func() {}}
				tr.Play(faults.Rules(faults.Rule{Verb: "PATCH", Resource: "pods/resize", Nth: 2, Times: 1, Fault: f}))
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
				defer cancel()
				send := func(method, path string) (code int, err error) {
					response, err := tr.RoundTrip(httptest.NewRequest(method, path, nil).WithContext(ctx))
					if err != nil {
						return 0, err
					}
					return response.StatusCode, response.Body.Close()
				}
				const resize = "/api/v1/namespaces/shop/pods/web/resize"
				for _, other := range []func() (int, error){
					func() (int, error) { return send(http.MethodGet, "/api/v1/namespaces/shop/pods/web") },
					func() (int, error) { return send("PATCH", resize) },
				} {
					if code, err := other(); err != nil || code != http.StatusOK {
						t.Fatalf("a request that no rule names: %v", err)
					}
				}
				start := time.Now()
				code, err := send("PATCH", resize)
				if !errors.Is(err, want.err) || code != want.code || (n.arrived == 3) != want.arrives || time.Since(start) != want.after {
					t.Errorf("%v, code %d, %d arrived, after %v; want %+v", err, code, n.arrived, time.Since(start), want)
				}
				crash := strings.HasPrefix(text, "crash")
				if _, err := send("PATCH", resize); tr.Crashed() != crash || crash && err == nil || !crash && want.after < 8*time.Second && err != nil {
					t.Errorf("the next request: %v, crashed %v", err, tr.Crashed())
				}
			})
		})
	}
	if f, err := faults.Parse("flood"); err == nil {
		t.Errorf("flood is parsed as %v", f)
	}
}

// TestCrash: without a function that says otherwise the goroutine of the request ends, and nothing after it runs.
func TestCrash(t *testing.T) {
	tr := &faults.Transport{Next: &next{}}
	tr.Play(faults.Rules(faults.Rule{Fault: faults.Fault{Kind: faults.CrashBefore}}))
	done, survived := make(chan struct{}), false
	go func() {
		defer close(done)
		if r, err := tr.RoundTrip(httptest.NewRequest(http.MethodGet, "/api/v1/nodes/n1", nil)); err == nil {
			r.Body.Close()
		}
		survived = true
	}()
	<-done
	if survived || !tr.Crashed() {
		t.Error("the process survived its crash")
	}
}

// TestWatches: a watch is cut after some events, or its events come late.
func TestWatches(t *testing.T) {
	for text, want := range map[string]struct {
		events int
		after  time.Duration
		err    error
	}{
		"cut-watch(2)":     {2, 0, io.ErrUnexpectedEOF},
		"stale-watch(10s)": {3, 30 * time.Second, nil},
	} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, err := faults.Parse(text)
				must.Succeed(t, err)
				tr := &faults.Transport{Next: &next{body: "a\nb\nc\n"}}
				tr.Play(func(c faults.Call) faults.Fault {
					if !c.Watch || c.Resource != "pods" {
						t.Errorf("%+v is no watch of pods", c)
					}
					return f
				})
				start := time.Now()
				response, err := tr.RoundTrip(httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=true", nil))
				must.Succeed(t, err)
				defer response.Body.Close()
				lines, n := bufio.NewScanner(response.Body), 0
				for lines.Scan() {
					n++
				}
				if n != want.events || time.Since(start) != want.after || !errors.Is(lines.Err(), want.err) {
					t.Errorf("%d events in %v, then %v; want %+v", n, time.Since(start), lines.Err(), want)
				}
			})
		})
	}
}

// TestRandom: the same seed draws the same faults, and in time every one.
func TestRandom(t *testing.T) {
	draw := func() (drawn []string, kinds map[faults.Kind]bool) {
		s, kinds := faults.Random(rand.New(rand.NewPCG(1, 2)), 0.5), map[faults.Kind]bool{}
		for range 400 {
			f := s(faults.Call{})
			drawn, kinds[f.Kind] = append(drawn, f.String()), true
		}
		return drawn, kinds
	}
	one, kinds := draw()
	two, _ := draw()
	if strings.Join(one, " ") != strings.Join(two, " ") || len(kinds) != len(faults.Kinds)+1 {
		t.Errorf("%d kinds, want all %d and none", len(kinds), len(faults.Kinds))
	}
}
