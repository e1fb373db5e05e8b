package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/agent/health"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/market"
)

// newHeartbeat is the heartbeat of an agent that may renew its Lease at once.
func newHeartbeat(renew func(context.Context, time.Time) error) *heartbeat {
	always := func() bool { return true }
	return &heartbeat{
		live: func(time.Time) bool { return true }, settled: always, renew: renew,
		health: health.New(time.Second, time.Now()), log: slog.New(slog.DiscardHandler), metrics: newMetrics(),
	}
}

// TestHeartbeatsSpread: agents that start together renew 20 to 30 s apart and never in step; while
// the API server fails, each makes fewer than 15 attempts a minute; and they come back apart.
func TestHeartbeatsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 500
		begin := time.Now()
		since := func() time.Duration { return time.Since(begin) }
		outage, recovered := 10*time.Minute, 11*time.Minute
		attempts := make([][]time.Duration, agents)
		var stops []func()
		for i := range agents {
			h := newHeartbeat(func(context.Context, time.Time) error {
				attempts[i] = append(attempts[i], since())
				if at := since(); at >= outage && at < recovered {
					return errors.New("no API server")
				}
				return nil
			})
			stops = append(stops, start(h.Run))
		}
		time.Sleep(12 * time.Minute)
		for _, stop := range stops {
			stop()
		}
		perSecond := map[int]int{}
		for i, all := range attempts {
			failed := 0
			for k, at := range all {
				perSecond[int(at.Seconds())]++
				if at >= outage && at < recovered {
					failed++
				}
				if at < outage && k > 0 && (at-all[k-1] < 20*time.Second || at-all[k-1] > 30*time.Second) {
					t.Fatalf("agent %d renewed %v after the time before, want 20 to 30 s", i, at-all[k-1])
				}
			}
			if failed == 0 || failed >= 15 {
				t.Errorf("agent %d made %d attempts in a minute of failures, want 1 to 14", i, failed)
			}
		}
		for second := 60; second < 12*60; second++ { // after a minute nothing is left of the common start
			if n := perSecond[second]; n > agents/4 {
				t.Errorf("second %d: %d of %d agents at once", second, n, agents)
			}
		}
	})
}

// TestStartConfirms: an agent that starts first renews its Lease when it has decided on each pod, and
// so says the price and confirms the decisions; or after 20 s. Before, it only takes the Lease over. An agent
// that ends renews it for the last time.
func TestStartConfirms(t *testing.T) {
	for name, warm := range map[string]time.Duration{"after the warm-up": 10 * time.Second, "no pod can be decided": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var s standing
				finds := 0
				var at []time.Duration
				var said []allocation.NodeMarket
				h := newHeartbeat(func(_ context.Context, now time.Time) error {
					m, err := allocation.ParseNodeMarket(s.say(now))
					at, said = append(at, now.Sub(begin)), append(said, m)
					return err
				})
				h.settled = s.isSettled
				h.takeOver = func(context.Context, time.Time) error {
					finds++
					return nil
				}
				stop := start(h.Run)
				for now := begin; now.Sub(begin) < 35*time.Second; now = now.Add(time.Second) {
					s.update(roundOf(now, now.Sub(begin) >= warm))
					time.Sleep(time.Second)
				}
				stop()
				if warm > settleWait {
					if at[0] < settleWait || at[0] > settleWait+4*time.Second || said[0].Unconfirmed == "" {
						t.Errorf("renewed at %v, said %+v; want nothing confirmed after %v", at, said[0], settleWait)
					}
					return
				}
				if at[0] < warm || at[0] > warm+2*time.Second || said[0].Unconfirmed != "" || said[0].Price != 0.5 || finds == 0 {
					t.Errorf("renewed at %v, found %d times, said %+v; want all confirmed right after %v", at, finds, said[0], warm)
				}
				if last := at[len(at)-1]; last != 35*time.Second {
					t.Errorf("renewed at %v, want the last time when the agent ends", at)
				}
			})
		})
	}
}

// roundOf is a round with a pod that has a published decision.
func roundOf(at time.Time, decided bool) *roundResult {
	r := &roundResult{At: at, Snapshot: &snapshot{Told: true, Refs: []podRef{{UID: "a-pod"}}, Pods: make([]round.PodInput, 1)}}
	r.Snapshot.Pods[0].Published = round.Published{At: at.Add(-time.Hour), Limits: map[string]cpu.Milli{"app": 500}}
	if decided {
		r.Output = round.Output{Node: round.NodeDecision{Price: 0.5}, Decisions: []round.Decision{{Pod: 0}}}
	}
	return r
}

// leaseServer stores one Lease, as the API server does.
type leaseServer struct {
	stored   *coordinationv1.Lease
	requests []string // methods, with the code of each answer
	fail     int      // the status code of the next answer; 0: none
	lose     bool     // the next write is done, and its answer lost
}

func (s *leaseServer) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(code int, body any) (*http.Response, error) {
		s.requests = append(s.requests, r.Method+" "+strconv.Itoa(code))
		text, err := json.Marshal(body)
		header := http.Header{"Content-Type": []string{"application/json"}}
		return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, err
	}
	refuse := func(code int, reason metav1.StatusReason) (*http.Response, error) {
		status := metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason}
		status.Kind, status.APIVersion = "Status", "v1"
		return answer(code, status)
	}
	if code := s.fail; code != 0 {
		s.fail = 0
		return refuse(code, metav1.StatusReasonServiceUnavailable)
	}
	if r.Method == http.MethodGet {
		if s.stored == nil {
			return refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
		}
		return answer(http.StatusOK, s.stored)
	}
	next := &coordinationv1.Lease{}
	if err := json.NewDecoder(r.Body).Decode(next); err != nil {
		return nil, err
	}
	version := 0
	if s.stored != nil {
		version, _ = strconv.Atoi(s.stored.ResourceVersion)
	}
	if next.ResourceVersion == "" && s.stored != nil { // "metadata.resourceVersion: must be specified for an update"
		return refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
	if next.ResourceVersion != "" && next.ResourceVersion != strconv.Itoa(version) {
		return refuse(http.StatusConflict, metav1.StatusReasonConflict)
	}
	next.ResourceVersion = strconv.Itoa(version + 1)
	s.stored = next
	if s.lose {
		s.lose = false
		s.requests = append(s.requests, "PUT lost")
		return nil, io.ErrUnexpectedEOF
	}
	return answer(http.StatusOK, next)
}

// agent is a client of the Lease for an agent whose pod has this name. It sees the pods in *pods.
func (s *leaseServer) agent(t *testing.T, name string, pods *[]podRef) *leaseClient {
	t.Helper()
	c, err := rest.RESTClientFor(&rest.Config{
		Host: "http://server", APIPath: "/apis", Transport: s, QPS: -1,
		ContentConfig: rest.ContentConfig{
			GroupVersion: &coordinationv1.SchemeGroupVersion, NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
		},
	})
	must.Succeed(t, err)
	return &leaseClient{
		client: c, namespace: "mbcas-system", holder: name, node: "n1",
		market:   func(time.Time) string { return "" },
		snapshot: func() *snapshot { return &snapshot{NodeUID: "node-uid", Refs: *pods} },
	}
}

// TestLeaseIsKept: a Lease is read once. After an error it is written again as last known; only
// where it has changed meanwhile, or is gone, it is read again, at once.
func TestLeaseIsKept(t *testing.T) {
	s, pods := &leaseServer{}, []podRef{}
	l := s.agent(t, "a", &pods)
	now := time.Now()
	for _, step := range []struct {
		what   string
		before func()
		failed bool
		want   string
	}{
		{"the first", func() {}, false, "GET 404, PUT 200"},
		{"the next", func() {}, false, "PUT 200"},
		{"the server is unavailable", func() { s.fail = http.StatusServiceUnavailable }, true, "PUT 503"},
		{"it is available again", func() {}, false, "PUT 200"},
		{"an answer is lost", func() { s.lose = true }, true, "PUT lost"},
		{"after a lost answer", func() {}, false, "PUT 409, GET 200, PUT 200"},
		{"the Lease was deleted", func() { s.stored = nil }, false, "PUT 409, GET 404, PUT 200"},
		{"the one made again", func() {}, false, "PUT 200"},
		{"it was deleted, and the answer is lost", func() { s.stored, s.lose = nil, true }, true, "PUT 409, GET 404, PUT lost"},
		{"after the lost answer to a creation", func() {}, false, "GET 200, PUT 200"},
	} {
		step.before()
		s.requests = nil
		now = now.Add(25 * time.Second)
		if err := l.renew(t.Context(), now); (err != nil) != step.failed {
			t.Errorf("%s: %v", step.what, err)
		}
		if got := strings.Join(s.requests, ", "); got != step.want {
			t.Errorf("%s: sent %s, want %s", step.what, got, step.want)
		}
	}
	if o := s.stored.OwnerReferences; len(o) != 1 || o[0].UID != "node-uid" {
		t.Errorf("owners are %v, want the node", o)
	}
}

// TestPriceIsTakenUp: an agent that starts goes on at the price in the Lease of the one before it, if
// that was renewed lately, and not at what it writes there itself.
func TestPriceIsTakenUp(t *testing.T) {
	now := time.Now()
	for age, want := range map[time.Duration]market.Price{20 * time.Second: 0.25, time.Hour: 0} {
		s, pods := &leaseServer{}, []podRef{}
		before := s.agent(t, "before", &pods)
		before.market = func(time.Time) string { return allocation.NodeMarket{Round: 7, Price: 0.25}.Text() }
		must.Succeed(t, before.renew(t.Context(), now.Add(-age)))
		l := s.agent(t, "after", &pods)
		if p, known := l.priceBefore(); p != 0 || known {
			t.Errorf("price %v before the Lease was read", p)
		}
		l.market = func(time.Time) string { return allocation.NodeMarket{Round: 1, Price: 0.5}.Text() }
		for range 2 {
			l.last = nil
			must.Succeed(t, l.renew(t.Context(), now))
			if p, known := l.priceBefore(); p != want || known != (want > 0) {
				t.Errorf("price %v (known: %v) from a Lease renewed %v ago, want %v", p, known, age, want)
			}
		}
	}
}

// TestOneAgentPublishes: of two agents on a node the one of the newer pod holds the Lease and
// publishes, once the older one cannot any more; the older one says why it does not, and takes over
// when the newer pod is gone or does not renew. However long both run, the Lease changes hands once.
func TestOneAgentPublishes(t *testing.T) {
	begin := time.Now()
	pod := func(name string, age time.Duration) podRef {
		return podRef{Namespace: "mbcas-system", Name: name, UID: types.UID(name), Created: begin.Add(-age)}
	}
	older, newer := pod("older", time.Hour), pod("newer", time.Minute)
	s, pods := &leaseServer{}, []podRef{older}
	a, b := s.agent(t, "older", &pods), s.agent(t, "newer", &pods)
	now := begin
	beat := func(l *leaseClient, gets bool, when string) {
		t.Helper()
		err := l.renew(t.Context(), now)
		var other *otherHolder
		if err != nil && !errors.As(err, &other) {
			t.Fatal(err)
		}
		if got := err == nil; got != gets {
			t.Errorf("%s: the %s agent gets the Lease: %v, want %v", when, l.holder, got, gets)
		}
	}
	check := func(what string, wantA, wantB bool) {
		t.Helper()
		if a.holds(now) != wantA || b.holds(now) != wantB {
			t.Errorf("%s: older publishes %v, newer %v; want %v, %v", what, a.holds(now), b.holds(now), wantA, wantB)
		}
	}
	check("before anything", false, false)
	beat(a, true, "alone")
	check("alone", true, false)
	pods = []podRef{older} // the newer pod runs, and is not seen to yet
	beat(b, false, "before its own pod is seen to run")
	pods = []podRef{older, newer}
	beat(b, true, "it is seen")
	check("just taken over", true, false)
	now = now.Add(25 * time.Second)
	beat(a, false, "taken over")
	check("both know", false, false)
	changes, holder := 0, *s.stored.Spec.HolderIdentity
	for range 100 {
		now = now.Add(25 * time.Second)
		for _, l := range []*leaseClient{a, b} {
			beat(l, l == b, "both run")
			if got := *s.stored.Spec.HolderIdentity; got != holder {
				changes, holder = changes+1, got
			}
		}
		if a.holds(now) {
			t.Fatal("the older agent publishes beside the newer one")
		}
	}
	if changes != 0 || !b.holds(now) {
		t.Errorf("the Lease changed hands %d times more, and the newer agent publishes: %v", changes, b.holds(now))
	}
	now = now.Add(leaseDuration + time.Second) // the newer agent hangs
	check("the Lease has expired", false, false)
	beat(a, true, "expired")
	check("after an expired Lease", true, false)
	beat(b, true, "back")
	pods = []podRef{older} // deleted
	beat(a, true, "the newer pod is gone")
	check("alone again", true, false)
}

// TestStandbyIsTold: /readyz, the metric and one line of the log say that another agent publishes.
func TestStandbyIsTold(t *testing.T) {
	var log bytes.Buffer
	now := time.Now()
	var err error = &otherHolder{"mbcas-agent-x"}
	h := newHeartbeat(func(context.Context, time.Time) error { return err })
	h.log = slog.New(slog.NewTextHandler(&log, nil))
	h.health.Ticked(now)
	h.health.Completed(now)
	for range 3 {
		h.beat(t.Context(), now)
	}
	if ready := h.health.Ready(now); ready == nil || !strings.Contains(ready.Error(), "mbcas-agent-x") {
		t.Errorf("ready: %v, want the other agent's name", ready)
	}
	if h.health.Healthy(now) != nil || testutil.ToFloat64(h.metrics.heartbeats.standby) != 3 || strings.Count(log.String(), "two agents") != 1 {
		t.Errorf("healthy %v, counted %v, logged:\n%s", h.health.Healthy(now), testutil.ToFloat64(h.metrics.heartbeats.standby), log.String())
	}
	err = errors.New("no API server") // nothing is known about the other agent
	h.beat(t.Context(), now)
	if h.health.Ready(now) == nil {
		t.Error("ready while the other agent may publish")
	}
	err = nil
	h.beat(t.Context(), now)
	if ready := h.health.Ready(now); ready != nil {
		t.Errorf("ready: %v after the Lease was renewed", ready)
	}
	if !slices.Contains(strings.Fields(log.String()), "level=INFO") {
		t.Errorf("the end is not logged:\n%s", log.String())
	}
}

// TestStartTakesOver: an agent that starts may publish as soon as it has taken over the Lease of one that runs
// no more. It neither renews the Lease nor changes what that one has confirmed, and takes over none that has
// expired or that another agent may hold.
func TestStartTakesOver(t *testing.T) {
	begin := time.Now()
	for name, c := range map[string]struct {
		holder string
		runs   bool // the holder's pod
		age    time.Duration
		holds  bool
		writes int
	}{
		"the pod before it has gone":     {"before", false, 20 * time.Second, true, 1},
		"its own container restarted":    {"after", false, 20 * time.Second, true, 0},
		"the Lease has expired":          {"before", false, 2 * time.Minute, false, 0},
		"a second agent runs, and newer": {"before", true, 20 * time.Second, false, 0},
	} {
		pods := []podRef{{Namespace: "mbcas-system", Name: "after", UID: "1", Created: begin.Add(-time.Hour)}}
		if c.runs {
			pods = append(pods, podRef{Namespace: "mbcas-system", Name: "before", UID: "2", Created: begin})
		}
		s, none := &leaseServer{}, []podRef{}
		before := s.agent(t, c.holder, &none)
		before.market = func(time.Time) string { return allocation.NodeMarket{Round: 7, Price: 0.25}.Text() }
		must.Succeed(t, before.renew(t.Context(), begin.Add(-c.age)))
		s.requests = nil
		was := s.stored.DeepCopy()
		l := s.agent(t, "after", &pods)
		l.market = func(time.Time) string { return allocation.NodeMarket{Round: 1}.Text() }
		for range 2 {
			if err := l.takeOver(t.Context(), begin); err != nil && !c.runs {
				t.Fatal(err)
			}
		}
		if writes := strings.Count(strings.Join(s.requests, ","), http.MethodPut); l.holds(begin) != c.holds || writes != c.writes {
			t.Errorf("%s: holds %v after %d writes, want %v after %d", name, l.holds(begin), writes, c.holds, c.writes)
		}
		if l.holds(begin.Add(leaseDuration - c.age)) {
			t.Errorf("%s: holds the Lease when it has expired", name)
		}
		if !s.stored.Spec.RenewTime.Equal(was.Spec.RenewTime) || s.stored.Annotations[kube.MarketKey] != was.Annotations[kube.MarketKey] {
			t.Errorf("%s: the Lease is %+v, was %+v", name, s.stored, was)
		}
		if c.holds && (*s.stored.Spec.HolderIdentity != "after" || l.renew(t.Context(), begin) != nil || !l.holds(begin.Add(50*time.Second))) {
			t.Errorf("%s: not renewed", name)
		}
	}
}
