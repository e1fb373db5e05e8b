package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/agent/objects"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/market"
)

// apiServer answers every write with answer, and returns the requests.
func apiServer(t *testing.T, answer http.HandlerFunc) (*publisher, chan string) {
	t.Helper()
	got := make(chan string, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- fmt.Sprintf("%s %s %s\n%s", r.Method, r.URL.Path, r.Header.Get("Content-Type"), body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	return newPublisher(t, &rest.Config{Host: srv.URL}), got
}

func newPublisher(t *testing.T, access *rest.Config) *publisher {
	t.Helper()
	c, err := objects.NewClients(access)
	must.Succeed(t, err)
	return &publisher{
		queue: newPublishQueue(3 * time.Second), client: c.Allocations,
		published: newPublishedDecisions(c.Allocations, func() {}, slog.New(slog.DiscardHandler)),
		log:       slog.New(slog.DiscardHandler), metrics: newMetrics(),
	}
}

// accept is the answer to a valid patch.
func accept(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(r.URL.Path, "/")
	fmt.Fprintf(w, `{"apiVersion":"allocation.mbcas.io/v1alpha1","kind":"PodAllocation",`+
		`"metadata":{"name":%q,"uid":"pa","generation":7},"spec":{"nodeName":"n1","podRef":{"name":"a","uid":"u"}}}`,
		parts[len(parts)-1])
}

// TestPatch: the whole request, with null for the fields that must be cleared.
func TestPatch(t *testing.T) {
	p, got := apiServer(t, accept)
	r := decided(t0, 600)
	d := &r.Output.Decisions[0]
	d.Demand, d.Usage, d.ThrottleRatio, d.Budget, d.Price, d.Floor, d.Ceiling, d.Bound = 900, 480, 0.61, 200, 0.3333, 110, 2000, market.ByPrice
	if out, err := p.write(t.Context(), publicationsOf(r)[0]); out != written || err != nil {
		t.Fatalf("%v: %v", out, err)
	}
	head, body, _ := strings.Cut(<-got, "\n")
	if want := "PATCH /apis/allocation.mbcas.io/v1alpha1/namespaces/shop/podallocations/pod0 application/merge-patch+json"; head != want {
		t.Errorf("request %s\nwant    %s", head, want)
	}
	var sent any
	must.Succeed(t, json.Unmarshal([]byte(body), &sent))
	want := map[string]any{
		"metadata": map[string]any{"uid": "pa-pod0"},
		"spec": map[string]any{
			"desiredCPULimit": "600m",
			"containers":      []any{map[string]any{"name": "app", "cpuLimit": "600m"}},
			"decision": map[string]any{
				"demand": "900m", "usage": "480m", "throttledPercent": 61.0, "coordinationPercent": nil, "cpuPressurePercent": nil, "memoryPressurePercent": nil, "ioPressurePercent": nil, "revokedForSeconds": 0.0, "budget": 200.0, "price": "0.333",
				"floor": "110m", "ceiling": "2000m", "boundBy": "Price", "floorsExceedSupply": false, "observedAt": "2026-01-02T03:04:05.000000Z",
			},
		},
	}
	if d := cmp.Diff(want, sent); d != "" {
		t.Errorf("patch (-want +got):\n%s", d)
	}
	d.Pressure = sense.Ratio{Known: true, Value: 0.2}
	d.Stalls = &sense.Stalls{Memory: sense.Ratio{Known: true}, IO: sense.Ratio{Known: true, Value: 0.876}}
	if _, err := p.write(t.Context(), publicationsOf(r)[0]); err != nil {
		t.Fatal(err)
	}
	_, body, _ = strings.Cut(<-got, "\n")
	for _, field := range []string{`"cpuPressurePercent":20`, `"memoryPressurePercent":0`, `"ioPressurePercent":88`} {
		if !strings.Contains(body, field+",") {
			t.Errorf("no %s in %s", field, body)
		}
	}
	if _, known := p.published.current(t0)["pa"]; !known {
		t.Error("what was written is not known")
	}
}

// TestPublishedDecisions: what is published is known from the own writes, and what is not known is read;
// after a lost answer the next decision is published, whatever it is.
func TestPublishedDecisions(t *testing.T) {
	ref := podRef{Namespace: "shop", Name: "a", UID: "uid-a", Allocation: "pa-a"}
	stored, status := newAllocation(newPod("a")), http.StatusOK
	var reads int
	p, _ := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		reads++
		stored.TypeMeta = metav1.TypeMeta{Kind: "PodAllocation", APIVersion: v1alpha1.GroupVersion.String()}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(stored)
	})
	d := p.published
	look := func() (round.Published, bool) {
		s := &snapshot{}
		got, known := d.current(t0)[ref.Allocation]
		if known {
			s.Refs = []podRef{ref}
			d.follow(s, nil)
		} else {
			d.follow(s, []podRef{ref})
		}
		return got, known
	}
	if _, known := look(); known {
		t.Fatal("known before it was read")
	}
	status = http.StatusServiceUnavailable
	if d.readAll(t.Context()) {
		t.Error("an API server that does not answer was read")
	}
	if _, known := look(); known || reads != 1 {
		t.Errorf("known %v after %d failed reads, want one", known, reads)
	}
	status = http.StatusOK
	if !d.readAll(t.Context()) {
		t.Error("not read")
	}
	if got, known := look(); !known || !got.At.Equal(t0) || got.Limits["app"] != 400 {
		t.Errorf("read %+v (%v)", got, known)
	}
	d.doubt(ref.Allocation)
	if got, _ := look(); !got.At.IsZero() || got.Limits["app"] != 400 {
		t.Errorf("after a lost answer %+v, want that it has to be published again", got)
	}
	d.record(ref.Allocation, round.Published{At: t0.Add(time.Hour)})
	if got, _ := look(); !got.At.Equal(time.Unix(0, 0)) {
		t.Errorf("a decision from the future, before the clock was set back, is of %v", got.At)
	}
	ref.Allocation = "created-again"
	look()
	if len(d.current(t0)) != 0 || !d.readAll(t.Context()) {
		t.Error("what is known of an object that is gone is kept")
	}
	if got, known := look(); !known || got.Limits != nil || !got.At.IsZero() {
		t.Errorf("of another object of that name %+v (%v), want that nothing is published", got, known)
	}
	for range 2 {
		d.doubt(ref.Allocation)
		if got, _ := look(); got.Limits == nil {
			t.Error("a first decision that may have been written counts as none")
		}
	}
}

func TestPublishResults(t *testing.T) {
	status := func(err *apierrors.StatusError) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
				w.Header().Set("Retry-After", strconv.Itoa(seconds))
			}
			err.ErrStatus.Kind, err.ErrStatus.APIVersion = "Status", "v1"
			w.WriteHeader(int(err.ErrStatus.Code))
			_ = json.NewEncoder(w).Encode(err.ErrStatus)
		}
	}
	of := v1alpha1.GroupVersion.WithResource("podallocations").GroupResource()
	cases := map[string]struct {
		answer http.HandlerFunc
		want   publishResult
	}{
		"accepted":      {accept, written},
		"not found":     {status(apierrors.NewNotFound(of, "pod0")), notFound},
		"another uid":   {status(apierrors.NewConflict(of, "pod0", errors.New("UID in precondition: a, UID in object meta: b"))), conflict},
		"invalid":       {status(apierrors.NewInvalid(schema.GroupKind{}, "pod0", nil)), invalid},
		"bad request":   {status(apierrors.NewBadRequest("no")), invalid},
		"too large":     {status(apierrors.NewRequestEntityTooLargeError("no")), invalid},
		"no permission": {status(apierrors.NewForbidden(of, "pod0", errors.New("cannot patch"))), forbidden},
		"token expired": {status(apierrors.NewUnauthorized("no")), unavailable},
		"overloaded":    {status(apierrors.NewTooManyRequests("later", 1)), unavailable},
		"broken":        {status(apierrors.NewInternalError(errors.New("etcd"))), unavailable},
		"gateway, no JSON": {
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad gateway", http.StatusBadGateway) },
			unavailable,
		},
		"connection closed":    {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, unavailable},
		"good code, no object": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, unavailable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p, got := apiServer(t, c.answer)
			out, err := p.write(t.Context(), publicationsOf(decided(t0, 600))[0])
			if out != c.want || (err == nil) != (c.want == written) {
				t.Errorf("%v, %v; want %v", out, err, c.want)
			}
			if len(got) != 1 {
				t.Errorf("%d requests, want 1: a repeated one may be older than the next round's", len(got))
			}
			if err != nil && !strings.Contains(err.Error(), "shop/pod0") {
				t.Errorf("the error does not name the object: %v", err)
			}
		})
	}
}

// answers is an API server in memory that takes 100 ms for each answer.
type answers http.HandlerFunc

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(100 * time.Millisecond)
	w := httptest.NewRecorder()
	a(w, r)
	return w.Result(), nil
}

// TestPublisherDrainsTheQueue: every decision of a round is written once and counted, four at a
// time.
func TestPublisherDrainsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits []cpu.Milli
		for i := range 40 {
			limits = append(limits, cpu.Milli(300+10*i)) // what was published is 500m
		}
		got := make(chan string, 100)
		api := answers(func(w http.ResponseWriter, r *http.Request) {
			got <- r.Method + " " + r.URL.Path
			accept(w, r)
		})
		p := newPublisher(t, &rest.Config{Host: "http://memory", Transport: api})
		r := decided(time.Now(), limits...)
		p.queue.replace(publicationsOf(r), r.At)
		stop := start(p.Run)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := testutil.ToFloat64(p.metrics.publishes[written]); n != float64(len(limits)) {
			t.Errorf("counted %v writes, want %d", n, len(limits))
		}
		stop()
		close(got)
		seen := map[string]bool{}
		for request := range got {
			if seen[request] {
				t.Errorf("%s twice", request)
			}
			seen[request] = true
		}
		if len(seen) != len(limits) {
			t.Errorf("%d pods written, want %d", len(seen), len(limits))
		}
	})
}
