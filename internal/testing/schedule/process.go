package schedule

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/faults"
	"github.com/mbcas/mbcas/internal/testing/history"
	"github.com/mbcas/mbcas/internal/testing/memapi"
)

// process is one life of a controller.
type process struct {
	world      *world
	name, life string // A and A2
	skew       time.Duration
	controller Controller
	cache      *memapi.Cache
	conn       *faults.Transport
	stopped    bool // SIGSTOP
	caughtUp   time.Time
	due        map[string]time.Time // when to reconcile a node
	requests   int                  // of the reconcile under way
	script     map[int]string       // what happens to the nth of them
	resizing   bool
	lives      int
	shown      map[string]time.Time // the last stamp of each agent and pod
}

// maxLag is how far the cache of a process that runs may fall behind: a broken watch is noticed and
// made again.
const maxLag = 45 * time.Second

// start begins a new life of a process. stale: its API server is behind, so that it lists what was.
func (w *world) start(name string, skew time.Duration, stale bool) {
	lives := 1
	if before := w.processes[name]; before != nil {
		lives = before.lives + 1
	}
	p := &process{
		world: w, name: name, life: name + strconv.Itoa(lives), skew: skew, lives: lives,
		due: map[string]time.Time{}, shown: map[string]time.Time{}, caughtUp: w.now,
	}
	at := w.api.Length()
	if stale {
		at -= min(at, 25)
	}
	p.cache = w.api.NewCache(at, w.Trim)
	p.conn = &faults.Transport{Next: roundTripper(p.send), Wait: w.wait}
	r := random(p.life)
	p.controller = w.New(Process{
		Client: newClient(p.conn, p.life, p.cache), Live: newClient(p.conn, p.life, nil),
		Now:    func() time.Time { return w.now.Add(p.skew) },
		Jitter: func(d time.Duration) time.Duration { return d/2 + time.Duration(r.Int64N(int64(d))) },
		Audit:  auditor{p},
	})
	p.conn.Play(p.fault)
	w.processes[name] = p
	w.note(history.Event{Kind: history.Started, By: p.life})
	for _, e := range w.api.Log(0)[:at] {
		p.seen(e)
	}
	for _, r := range memapi.Resources() {
		for _, o := range p.cache.Items(r) {
			p.controller.Changed(context.Background(), o)
		}
	}
	for _, n := range w.nodes {
		p.due[n] = w.now
	}
}

// crash ends a process.
func (p *process) crash() {
	p.world.note(history.Event{Kind: history.Crashed, By: p.life})
	p.controller = nil
}

// wakeUp has a process that was stopped go on.
func (p *process) wakeUp() {
	if p.stopped {
		p.stopped, p.caughtUp = false, p.world.now
		p.world.note(history.Event{Kind: history.Woken, By: p.life})
	}
}

// show takes changes of a kind into the process's cache; "all" of every kind.
func (p *process) show(resource string) {
	list := []string{resource}
	if resource == "all" {
		list, p.caughtUp = memapi.Resources(), p.world.now
	}
	to := p.world.api.Length()
	for _, r := range list {
		from := p.cache.Seen(r)
		for _, e := range p.world.api.Log(min(from, to)) {
			if e.Resource == r {
				p.seen(e)
			}
		}
		for _, o := range p.cache.Show(r, to) {
			for _, q := range p.controller.Changed(context.Background(), o) {
				p.wake(q.Name, p.world.now)
			}
		}
	}
}

// catchUp: a watch that is too late is noticed.
func (p *process) catchUp() {
	if !p.stopped && p.world.now.Sub(p.caughtUp) >= maxLag {
		p.show("all")
	}
}

// background lets what runs beside the reconciles of a process run.
func (p *process) background() {
	if p.controller == nil || p.stopped {
		return
	}
	w := p.world
	before := w.acting
	w.acting, p.requests, p.script = p, 0, nil
	for _, q := range p.controller.Background(context.Background()) {
		p.wake(q.Name, w.now)
	}
	w.acting = before
}

func (p *process) wake(node string, at time.Time) {
	if due, ok := p.due[node]; !ok || at.Before(due) {
		p.due[node] = at
	}
}

// reconcile has the process reconcile a node. The faults say what happens to its requests:
// lost-answer@2 is for the second.
func (p *process) reconcile(node string, script []string) {
	w := p.world
	if p.controller == nil || p.stopped {
		return
	}
	p.catchUp()
	p.requests, p.script = 0, map[int]string{}
	for _, s := range script {
		fault, n, _ := strings.Cut(s, "@")
		if i, err := strconv.Atoi(n); err == nil {
			p.script[i] = fault
		}
	}
	delete(p.due, node)
	w.note(history.Event{Kind: history.Looked, By: p.life, Node: node})
	before := w.acting
	w.acting = p
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var result reconcile.Result
	var err error
	go func() {
		defer close(done)
		result, err = p.controller.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
	}()
	<-done
	cancel()
	w.acting = before
	switch {
	case p.conn.Crashed():
		p.crash()
	case err != nil:
		p.wake(node, w.now.Add(time.Second))
	case result.RequeueAfter > 0:
		p.wake(node, w.now.Add(result.RequeueAfter))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// fault is the script of the process's connection.
func (p *process) fault(c faults.Call) faults.Fault {
	p.requests++
	p.resizing = c.Resource == "pods/resize"
	if p.resizing && c.Writes() {
		if pod := p.world.pod(c.Name); pod != nil {
			p.world.note(history.Event{Kind: history.Sent, By: p.life, Pod: string(pod.UID), Node: pod.Spec.NodeName, Saw: p.view(pod)})
		}
	}
	text := p.script[p.requests]
	if text == "" {
		return faults.Fault{}
	}
	name, argument, _ := strings.Cut(strings.TrimSuffix(text, ")"), "(")
	p.world.counts[name]++
	if name != "pause" && name != "late" {
		f, err := faults.Parse(text)
		if err != nil {
			return faults.Fault{}
		}
		return f
	}
	steps, err := strconv.Atoi(argument)
	if err != nil || name == "late" {
		return faults.Fault{}
	}
	began := p.world.now
	p.world.meanwhile(p, steps)
	if p.world.now.Sub(began) > maxLag { // it stood still
		p.world.note(history.Event{Kind: history.Woken, By: p.life})
	}
	if p.world.now.Sub(began) > p.world.patience() { // it gave up before it went on
		return faults.Fault{Kind: faults.Hang, For: time.Nanosecond}
	}
	return faults.Fault{}
}

// send is where requests arrive, or are delayed: the client gives up, and the request arrives when
// the schedule says so.
func (p *process) send(q *http.Request) (*http.Response, error) {
	w := p.world
	if text := p.script[p.requests]; strings.HasPrefix(text, "late") && q.Method != http.MethodGet {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return nil, err
		}
		late := q.Clone(context.Background())
		late.Body = io.NopCloser(strings.NewReader(string(body)))
		w.held = append(w.held, late)
		w.elapse(w.patience())
		return nil, context.DeadlineExceeded
	}
	if p.resizing && w.hangs(q) {
		w.elapse(w.patience())
		return nil, context.DeadlineExceeded
	}
	response, err := w.api.RoundTrip(q)
	switch p.script[p.requests] {
	case "lost-answer", "hang-after", "crash-after":
	default:
		p.answered(q)
	}
	return response, err
}

// arrive delivers the requests that were delayed.
func (w *world) arrive() {
	held := w.held
	w.held = nil
	for _, q := range held {
		if response, err := w.api.RoundTrip(q); err == nil {
			_ = response.Body.Close() // there is no client any more
		}
	}
}

// meanwhile plays steps that come next in the schedule while a request of a process is on its way: none
// that needs that process.
func (w *world) meanwhile(p *process, n int) {
	for range n {
		if len(w.steps) == 0 || slices.Contains(w.steps[0], p.name) || w.steps[0][0] == "reconcile" && w.acting != p {
			return
		}
		step := w.steps[0]
		w.steps = w.steps[1:]
		requests, script, resizing := p.requests, p.script, p.resizing
		w.play(step)
		p.requests, p.script, p.resizing = requests, script, resizing
	}
}

// auditor takes the audit records of a process.
type auditor struct{ p *process }

func (auditor) Enabled(context.Context, slog.Level) bool { return true }
func (a auditor) WithAttrs([]slog.Attr) slog.Handler     { return a }
func (a auditor) WithGroup(string) slog.Handler          { return a }

func (a auditor) Handle(_ context.Context, r slog.Record) error {
	e := history.Event{Kind: history.Audited, By: a.p.life}
	r.Attrs(func(at slog.Attr) bool {
		switch v := at.Value.Any(); at.Key {
		case "uid":
			e.Pod = fmt.Sprint(v)
		case "node":
			e.Node = fmt.Sprint(v)
		case "purpose":
			e.Purpose = fmt.Sprint(v)
		case "reason":
			e.Reason = fmt.Sprint(v)
		case "outcome":
			e.Outcome = fmt.Sprint(v)
		case "from":
			e.Before, _ = v.(map[string]cpu.Milli)
		case "to":
			e.Limits, _ = v.(map[string]cpu.Milli)
		}
		return true
	})
	a.p.world.note(e)
	return nil
}

func containerLimits(pod *corev1.Pod) history.Limits {
	limits := history.Limits{}
	for _, c := range kube.Containers(pod) {
		limits[c.Spec.Name] = milli(c.Spec.Resources.Limits)
	}
	return limits
}

// down are the containers of a pod of which its kubelet carries no resize out, in a simpler rule than production's.
func down(pod *corev1.Pod) (names []string) {
	run := map[string]bool{}
	for _, s := range pod.Status.ContainerStatuses {
		run[s.Name] = s.State.Running != nil
	}
	for _, s := range pod.Status.InitContainerStatuses {
		run[s.Name] = s.State.Running != nil && s.Started != nil && *s.Started
	}
	for name := range containerLimits(pod) {
		if !run[name] {
			names = append(names, name)
		}
	}
	return names
}

func milli(list corev1.ResourceList) cpu.Milli {
	q := list[corev1.ResourceCPU]
	return cpu.Milli(q.MilliValue())
}
