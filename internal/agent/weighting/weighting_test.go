package weighting

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/idleclass"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/internal/weights/wire"
	"github.com/mbcas/mbcas/market"
)

// writer stands for mbcas-weights.
type writer struct {
	t    *testing.T
	path string

	mu      sync.Mutex
	heard   []wire.Request
	refused map[string]wire.Refusal // by UID
	mute    bool
}

func newWriter(t *testing.T) *writer {
	t.Helper()
	dir, err := os.MkdirTemp("", "w") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{t: t, path: filepath.Join(dir, "s")}
	l, err := net.Listen("unix", w.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); os.RemoveAll(dir) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.serve(c)
		}
	}()
	return w
}

func (w *writer) serve(c net.Conn) {
	defer c.Close()
	for in := wire.NewReader(c); ; {
		req, err := wire.ReadRequest(in)
		if err != nil {
			return
		}
		w.mu.Lock()
		w.heard = append(w.heard, req)
		reply := wire.Reply{Rewrites: 3}
		for _, s := range req.Settings { // what is not named is not refused
			if why, refused := w.refused[s.UID]; refused {
				reply.Refused = append(reply.Refused, wire.Refused{UID: s.UID, Why: why})
			} else {
				reply.Weighted++
			}
		}
		mute := w.mute
		w.mu.Unlock()
		if mute || wire.Write(c, reply) != nil {
			return
		}
	}
}

func (w *writer) requests() []wire.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard
}

func client(t *testing.T, path string) *Client {
	t.Helper()
	c := NewClient(path)
	c.within = time.Minute // on a busy machine an answer may take long
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return c
}

// allowed are the opt-ins of the rounds: a takes part, and c is kept out by the controller.
var allowed = OptIns{"a": "", "c": "NoDisruptionAllowed"}

func none(string) bool { return false }

// node is a round of two pods.
func node(now time.Time) (round.Input, round.Output) {
	in := round.Input{Now: now, Node: round.Node{Capacity: 2000, Allocatable: 2000}}
	out := round.Output{Node: round.NodeDecision{Supply: 1800, UsageKnown: true, SystemKnown: true}}
	for i, uid := range []string{"a", "b"} {
		in.Pods = append(in.Pods, round.PodInput{Pod: demand.Pod{UID: uid, Budget: market.Budget(500), Containers: []demand.Container{
			{ID: uid, Request: cpu.Milli(500), Declared: 1000, Limit: 2000},
		}}})
		out.Decisions = append(out.Decisions, round.Decision{UID: uid, Pod: i, Usage: 100, Demand: 100, Budget: 500})
	}
	return in, out
}

func weighted(w *Weighting, now time.Time) (uids string) {
	in, _ := node(now)
	for _, p := range w.Before(in, allowed).Pods {
		if p.Weighted {
			uids += p.UID
		}
	}
	return uids
}

// exchange runs a round and waits for the answer to what it says, so nothing is on its way afterwards.
func exchange(t *testing.T, c *Client, run func()) {
	t.Helper()
	before := c.last.Load()
	run()
	cgroups.Eventually(t, "an answer", func() bool { return c.last.Load() != before })
}

// lately is a time at which the last answer counts, also where a busy machine got it long ago.
func lately(c *Client) time.Time {
	if a := c.last.Load(); a != nil {
		return a.at
	}
	return time.Now()
}

// round1 runs rounds until mbcas-weights has answered a setting.
func (w *writer) round1(d *Weighting, c *Client) time.Time {
	w.t.Helper()
	for range 2 { // only after an answer is anything said
		exchange(w.t, c, func() {
			in, out := node(lately(c))
			d.After(in, out, allowed, nil, none)
		})
	}
	if heard := w.requests(); len(heard[1].Settings) == 0 {
		w.t.Fatalf("requests %+v, want a setting in the second", heard)
	}
	return c.last.Load().at
}

func TestSettingsAreSaid(t *testing.T) {
	w := newWriter(t)
	c := client(t, w.path)
	d := New(c, slog.New(slog.DiscardHandler))
	if got := weighted(d, time.Now()); got != "" {
		t.Errorf("%q are weighted before any answer, want none", got)
	}
	at := w.round1(d, c)
	heard := w.requests()
	if s := heard[len(heard)-1].Settings; len(s) != 1 || s[0].UID != "a" || s[0].Weight < 1 {
		t.Errorf("settings %+v, want one of a, which is allowed", s)
	}
	if got := weighted(d, at); got != "a" {
		t.Errorf("%q are weighted, want a", got)
	}
}

// TestClassesAreTold: the class is in the next round's input, and its reason in the metrics.
func TestClassesAreTold(t *testing.T) {
	w := newWriter(t)
	c := client(t, w.path)
	d := New(c, slog.New(slog.DiscardHandler))
	after := func(now time.Time) map[string]Class {
		in, out := node(now)
		in.Pods = append(in.Pods, round.PodInput{Pod: demand.Pod{UID: "c"}})
		return d.After(in, out, allowed, nil, none)
	}
	recorded := func(now time.Time) (got []idleclass.Class) {
		in, _ := node(now)
		in.Pods = append(in.Pods, round.PodInput{Pod: demand.Pod{UID: "c"}})
		for _, p := range d.Before(in, allowed).Pods {
			got = append(got, idleclass.Class(p.CPUClass))
		}
		return got
	}
	kept := Class{idleclass.KeptOut, "NoDisruptionAllowed"}
	var got map[string]Class
	exchange(t, c, func() { got = after(time.Now()) })
	if len(got) != 2 || got["c"] != kept || got["a"] != (Class{idleclass.Unavailable, "WeightsUnavailable"}) {
		t.Errorf("classes %v before an answer", got)
	}
	at := w.round1(d, c)
	if got := after(at); len(got) != 2 || got["c"] != kept || got["a"] != (Class{idleclass.Weighted, ""}) {
		t.Errorf("classes %v after an answer: want a weighted and c kept out", got)
	}
	if got, want := recorded(at), []idleclass.Class{idleclass.Weighted, idleclass.NoClass, idleclass.KeptOut}; !slices.Equal(got, want) {
		t.Errorf("the round is given classes %v, want %v", got, want)
	}
	delete(d.settings, "a") // as of a pod that has just come
	if got := recorded(at); got[0] != idleclass.NoClass {
		t.Errorf("the first round of a pod is given class %v, want none while mbcas-weights answers", got[0])
	}
	if got := recorded(at.Add(time.Minute)); got[0] != idleclass.Unavailable {
		t.Errorf("a round a minute after the last answer is given class %v, want %v", got[0], idleclass.Unavailable)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP mbcas_agent_weights_limited_pods Pods of namespaces that allow weights whose limits may cap them, by the reason for that.
# TYPE mbcas_agent_weights_limited_pods gauge
mbcas_agent_weights_limited_pods{reason="NoDisruptionAllowed"} 1
`), "mbcas_agent_weights_limited_pods"); err != nil {
		t.Error(err)
	}
	refused := answer{at: at, refused: map[string]refusal{"a": {wire.Contested, at.Add(time.Minute)}}}
	c.last.Store(&refused)
	if got := after(at.Add(time.Second)); got["a"] != (Class{idleclass.Refused, "Contested"}) {
		t.Errorf("classes %v after a refusal", got)
	}
	if got := recorded(at.Add(time.Second)); got[0] != idleclass.Refused {
		t.Errorf("the round is given class %v after a refusal", got[0])
	}
}

func TestLimitsTakeOver(t *testing.T) {
	w := newWriter(t)
	c := client(t, w.path)
	d := New(c, slog.New(slog.DiscardHandler))
	at := w.round1(d, c)
	w.mu.Lock()
	w.mute = true // it ends each connection
	w.mu.Unlock()
	in, out := node(at)
	d.After(in, out, allowed, nil, none)
	cgroups.Eventually(t, "a failure", func() bool { return c.failure.Load() != nil })
	if why := c.obstacle(); !strings.Contains(why, w.path) {
		t.Errorf("obstacle %q, want one that names the socket", why)
	}
	last := c.last.Load().at
	if got := weighted(d, last.Add(2*time.Second)); got != "a" {
		t.Errorf("%q are weighted 2 s after the last answer, want a", got)
	}
	if got := weighted(d, last.Add(3*time.Second+1)); got != "" {
		t.Errorf("%q are weighted more than 3 s after the last answer, want none", got)
	}
}

func TestResizesPass(t *testing.T) {
	w := newWriter(t)
	c := client(t, w.path)
	d := New(c, slog.New(slog.DiscardHandler))
	now := w.round1(d, c)
	// a takes four times its request, and b waits for the whole time, until a is in the idle class.
	idle := func(resizing, publish bool) (all []wire.Setting) {
		for range 60 {
			now = now.Add(time.Second)
			answered := *c.last.Load()
			answered.at = now
			c.last.Store(&answered)
			in, out := node(now)
			out.Node.Usage, out.Node.Price = 2000, 1
			for i, usage := range []cpu.Milli{1700, 300} {
				p := &out.Decisions[i]
				p.Usage, p.Demand, p.Pressure.Known, p.Pressure.Value = usage, 1800, true, 1
				p.Limit, p.Publish = 2000, publish
				if publish && i == 0 {
					p.Limit = 1000
				}
			}
			heard := len(w.requests())
			exchange(t, c, func() { d.After(in, out, allowed, nil, func(string) bool { return resizing }) })
			if all = w.requests()[heard].Settings; len(all) == 1 && (all[0].Idle || all[0].Weight == wire.MinWeight) {
				break
			}
		}
		return all
	}
	if s := idle(false, false); len(s) != 1 || !s[0].Idle {
		t.Fatalf("settings %+v, want a in the idle class", s)
	}
	if s := idle(true, false); len(s) != 1 || s[0].Idle || s[0].Weight != wire.MinWeight || !s[0].Resizing {
		t.Errorf("settings %+v while a is resized, want the least weight", s)
	}
	if s := idle(false, false); len(s) != 1 || !s[0].Idle || s[0].Resizing {
		t.Errorf("settings %+v once a is resized, want it in the idle class", s)
	}
	if s := idle(false, true); len(s) != 1 || s[0].Idle || s[0].Weight != wire.MinWeight || !s[0].Resizing {
		t.Errorf("settings %+v in the round that publishes another limit of a, want the least weight", s)
	}
	for i := range 6 {
		if s := idle(false, false); len(s) != 1 || s[0].Idle != (i == 5) {
			t.Errorf("settings %+v %d s after another limit was published, want a in the idle class after 5 s", s, i+1)
		}
	}
}

func TestRefusedPodsAreLimited(t *testing.T) {
	w := newWriter(t)
	w.refused = map[string]wire.Refusal{"a": wire.Contested}
	c := client(t, w.path)
	d := New(c, slog.New(slog.DiscardHandler))
	next := func() {
		exchange(t, c, func() {
			in, out := node(lately(c))
			d.After(in, out, allowed, nil, none)
		})
	}
	next()
	next()
	if len(c.last.Load().refused) == 0 {
		t.Fatalf("nothing is refused after requests %+v", w.requests())
	}
	first := len(w.requests())
	for range 5 { // answers that refuse nothing, as the pod is not named
		next()
		if got := weighted(d, c.last.Load().at); got != "" {
			t.Errorf("%q are weighted though refused, want none", got)
		}
	}
	for _, r := range w.requests()[first:] {
		if slices.ContainsFunc(r.Settings, func(s wire.Setting) bool { return s.UID == "a" }) {
			t.Errorf("the pod is named again at once: %+v", r)
		}
	}
	later := c.last.Load().at.Add(retryAfter(wire.Contested))
	again := answer{at: later}
	if again.takeRefusals(c.last.Load(), nil); len(again.refused) > 0 {
		t.Errorf("%v are refused for ever", again.refused)
	}
}

// TestStartingPodsYield: a pod that is Pending is named with each round until a container runs, and for a while longer,
// whether or not its cgroup is there. It is not refused when it runs.
func TestStartingPodsYield(t *testing.T) {
	w := newWriter(t)
	w.refused = map[string]wire.Refusal{"soon": wire.NotFound}
	c := client(t, w.path)
	d := New(c, slog.New(slog.DiscardHandler))
	pod := demand.Pod{UID: "soon", Budget: 800, Containers: []demand.Container{{Request: 800}}}
	soon := []Starting{{Pod: pod}}
	said := func() *wire.Setting {
		exchange(t, c, func() {
			in, out := node(lately(c))
			d.After(in, out, allowed, soon, none)
		})
		heard := w.requests()
		for _, s := range heard[len(heard)-1].Settings {
			if s.UID == "soon" {
				return &s
			}
		}
		return nil
	}
	yields := func(when string) {
		t.Helper()
		if s := said(); s == nil || s.Idle || s.Weight != idleclass.WeightOf(800)/8 {
			t.Errorf("%s %+v is said of it, want an eighth of its weight", when, s)
		}
	}
	if s := said(); s != nil {
		t.Errorf("%+v is said before any answer", s)
	}
	yields("before its containers run")
	yields("before its containers run, again,")
	if why := c.last.Load().refusal("soon", lately(c)); why != "" {
		t.Errorf("it counts as refused (%s)", why)
	}
	soon[0].Runs = true
	yields("as a container runs")
	d.runsSince["soon"] = d.runsSince["soon"].Add(-d.cfg.NewFor)
	if s := said(); s != nil {
		t.Errorf("%+v is said of it though a container has run for long", s)
	}
	if soon = nil; said() != nil || len(d.runsSince) > 0 {
		t.Errorf("%v are remembered though none is Pending", d.runsSince)
	}
}

// TestPanicCostsWeights: after a panic in the decision no setting is said and no pod counts as weighted for a minute.
func TestPanicCostsWeights(t *testing.T) {
	c := NewClient("unused") // nothing runs it: the test takes the requests
	var logged strings.Builder
	d := New(c, slog.New(slog.NewTextHandler(&logged, nil)))
	now := time.Now()
	run := func(pod int) []wire.Setting {
		c.last.Store(&answer{at: now})
		in, out := node(now)
		out.Decisions[1].Pod = pod
		d.After(in, out, allowed, nil, none)
		return (<-c.next).Settings
	}
	if got := run(1); len(got) != 1 || weighted(d, now) != "a" {
		t.Fatalf("settings %+v, weighted %q: want one of a, and a", got, weighted(d, now))
	}
	if got := run(7); len(got) != 0 || weighted(d, now) != "" { // of a pod that does not exist
		t.Errorf("after a panic settings %+v, weighted %q: want none", got, weighted(d, now))
	}
	if !strings.Contains(logged.String(), "panicked") {
		t.Errorf("log %q, want the panic", &logged)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	if n, err := testutil.GatherAndCount(registry); n != 2 || err != nil {
		t.Errorf("%d series after a panic (%v), want mbcas_agent_weights_up, and the pods left to limits", n, err)
	}
	now = now.Add(panicBackOff - time.Second)
	if got := run(1); len(got) != 0 {
		t.Errorf("settings %+v before the back-off has passed, want none", got)
	}
	now = now.Add(time.Second)
	if got := run(1); len(got) != 1 || weighted(d, now) != "a" {
		t.Errorf("settings %+v, weighted %q after the back-off: want one of a, and a", got, weighted(d, now))
	}
}

// TestNothingIsSaidWithoutRounds: one round is said once.
func TestNothingIsSaidWithoutRounds(t *testing.T) {
	w := newWriter(t)
	c := client(t, w.path)
	for n := range 3 {
		exchange(t, c, func() { c.say(request{}) })
		if heard := len(w.requests()); heard != n+1 {
			t.Errorf("%d requests after %d rounds", heard, n+1)
		}
	}
}

func TestMetrics(t *testing.T) {
	w := newWriter(t)
	w.refused = map[string]wire.Refusal{"a": wire.Contested}
	c := client(t, w.path)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	count := func() int {
		n, err := testutil.GatherAndCount(registry)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != 1 {
		t.Errorf("%d series before an answer, want mbcas_agent_weights_up alone", n)
	}
	exchange(t, c, func() { c.say(request{Request: wire.Request{Settings: []wire.Setting{{UID: "a", Weight: 1}}}}) })
	exchange(t, c, func() { c.say(request{}) }) // the pod counts as refused until it is tried again
	err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP mbcas_agent_weights_refused_pods Pods whose CPU class and weight mbcas-weights does not write, by reason.
# TYPE mbcas_agent_weights_refused_pods gauge
mbcas_agent_weights_refused_pods{reason="Contested"} 1
mbcas_agent_weights_refused_pods{reason="Invalid"} 0
mbcas_agent_weights_refused_pods{reason="NotFound"} 0
mbcas_agent_weights_refused_pods{reason="NotRecorded"} 0
mbcas_agent_weights_refused_pods{reason="WriteFailed"} 0
# HELP mbcas_agent_weights_rewrites_total Values that another program had changed and that were set again, since mbcas-weights started.
# TYPE mbcas_agent_weights_rewrites_total counter
mbcas_agent_weights_rewrites_total 3
# HELP mbcas_agent_weights_up 1 while class and weight are decided and mbcas-weights answers; otherwise limits alone cap pods.
# TYPE mbcas_agent_weights_up gauge
mbcas_agent_weights_up 1
`), "mbcas_agent_weights_refused_pods", "mbcas_agent_weights_rewrites_total", "mbcas_agent_weights_up")
	if err != nil {
		t.Error(err)
	}
}
