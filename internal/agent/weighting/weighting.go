// Package weighting has the classes and weights of a node's pods written by mbcas-weights, which runs beside the agent.
// The loop of the rounds decides them and never waits; Client says them over the socket.
//
// What it promises, each a test of the same name:
//   - SettingsAreSaid: what a round decides is said at once, and pods count as weighted while it is answered.
//   - LimitsTakeOver: 3 s after the last answer no pod counts as weighted, so limits cap those that saturate.
//   - RefusedPodsAreLimited: the same holds for a pod whose setting is refused, and it is not named again for a while.
//   - StartingPodsYield: a pod has a small weight before its containers run, where the kubelet has made its cgroup.
//   - ClassesAreTold: the class of each pod whose namespace allows weights, and why it is no better one, is in the next
//     round's input, for the recording, and in the metrics.
//   - ResizesPass: an idle pod has the least weight from the round that publishes another limit until it is applied.
//     With each resize the kubelet writes the pod's weight, too (doPodResizeAction in pkg/kubelet/kuberuntime), and
//     the kernel refuses any for an idle group.
//   - PanicCostsWeights: a panic in the decision costs class and weight for a minute, and not the round.
//   - NothingIsSaidWithoutRounds: while no rounds run nothing is said, and mbcas-weights restores every pod.
package weighting

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/idleclass"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/weights/wire"
	"github.com/mbcas/mbcas/market"
)

const (
	// answerWithin is how long an answer may take.
	answerWithin = time.Second
	// worksFor is how long an answer counts.
	worksFor = 3 * time.Second
	// resizeWithin is how long after a limit is published the kubelet may be about to get the resize. A longer one keeps
	// a pod whose resize waits out of the idle class; with a shorter one the kubelet's first try fails more often.
	resizeWithin = 5 * time.Second
	// panicBackOff is how long no class and no weight is decided after a panic in the decision.
	panicBackOff = time.Minute
)

// MaxInterval is the longest time from one round to the next with which answers still count.
const MaxInterval = 2 * time.Second

// OptIns are the managed pods whose namespaces allow weights, by UID, each with the reason for which the controller
// keeps its class and weight as they are; "": they may change.
type OptIns map[string]string

// Class is the class of a pod, and the reason why it is no better one; "": there is none.
type Class struct {
	Class  idleclass.Class
	Reason string
}

// Weighting decides after each round, and keeps what it needs for the next. One goroutine uses it. A nil one decides
// nothing.
type Weighting struct {
	client *Client
	cfg    idleclass.Config
	state  idleclass.State
	log    *slog.Logger
	works  bool // as logged
	// published is when a pod's limit was last published, by UID, as long as its resize may be on its way.
	published map[string]time.Time
	settings  map[string]idleclass.Class // as decided last, by UID
	// runsSince is when a container of a pod was first seen that is still Pending, by UID.
	runsSince map[string]time.Time
}

// Starting is a pod that is still Pending.
type Starting struct {
	demand.Pod
	Runs bool // a container of it runs or has run
}

// New decides for a client.
func New(c *Client, log *slog.Logger) *Weighting {
	return &Weighting{client: c, cfg: idleclass.DefaultConfig(), log: log, published: map[string]time.Time{}}
}

// Before is the input of a round with the pods marked that class and weight hold down.
func (w *Weighting) Before(in round.Input, told OptIns) round.Input {
	if w == nil || len(told) == 0 {
		return in
	}
	optedIn := w.optedIn(in.Now, told)
	in.Pods = slices.Clone(in.Pods)
	for i := range in.Pods {
		p := &in.Pods[i]
		p.Weighted = optedIn(p.UID) && w.state.Weighted(p.UID)
		if _, allows := told[p.UID]; allows {
			p.CPUClass = uint8(w.classOf(in.Now, p.UID, told, w.settings[p.UID]).Class)
		}
	}
	return in
}

// After decides on a round, has the settings said, and returns the class of each pod whose namespace allows weights.
// starting are pods whose class and weight may change and that are still Pending, and resizing those whose limits the
// kubelet has yet to apply.
func (w *Weighting) After(
	in round.Input, out round.Output, told OptIns, starting []Starting, resizing func(uid string) bool,
) map[string]Class {
	if w == nil {
		return nil
	}
	if works := w.client.works(in.Now); works != w.works {
		w.works = works
		if works {
			w.log.Info("mbcas-weights answers, so it writes class and weight of the pods whose namespaces allow it")
		} else {
			w.log.Warn("mbcas-weights does not answer, so limits alone cap pods", "why", w.client.obstacle())
		}
	}
	settings := w.decide(in, out, w.optedIn(in.Now, told))
	soon := w.settingsOfStarting(in.Now, out.Node.Price, starting)
	req := request{starting: make(map[string]bool, len(soon))}
	for _, s := range soon {
		req.starting[s.UID] = true
	}
	all := slices.Concat(settings, soon)
	for _, s := range all[:min(len(all), wire.MaxSettings)] {
		said := wire.Setting{UID: s.UID, Idle: s.Idle, Weight: s.Weight, Resizing: w.isResizing(s.UID, resizing)}
		if said.Idle && said.Resizing {
			said.Idle, said.Weight = false, wire.MinWeight
		}
		req.Settings = append(req.Settings, said)
	}
	w.client.say(req)
	return w.noteClasses(in, told, settings)
}

// settingsOfStarting are those of pods that are still Pending: until a container runs, and a while longer, as an init
// container may take long. None while nothing counts as written.
func (w *Weighting) settingsOfStarting(now time.Time, price market.Price, pods []Starting) (s []idleclass.Setting) {
	before := w.runsSince
	w.runsSince = map[string]time.Time{}
	for _, p := range pods {
		if p.Runs {
			since, known := before[p.UID]
			if !known {
				since = now
			}
			w.runsSince[p.UID] = since
			if now.Sub(since) >= w.cfg.NewFor {
				continue
			}
		}
		if w.client.works(now) && !w.client.backsOff(now) {
			s = append(s, idleclass.SettingOfStarting(p.Pod, price))
		}
	}
	return s
}

// noteClasses notes the class of each pod of the round, for the metrics, the next round and /debug/round.
func (w *Weighting) noteClasses(in round.Input, told OptIns, settings []idleclass.Setting) map[string]Class {
	w.settings = make(map[string]idleclass.Class, len(settings))
	for _, s := range settings {
		w.settings[s.UID] = s.Class
	}
	classes := make(map[string]Class, len(told))
	for _, p := range in.Pods {
		if _, allows := told[p.UID]; !allows {
			continue
		}
		decided, ok := w.settings[p.UID]
		if !ok { // the round or the decision failed about it
			decided = idleclass.Unavailable
		}
		classes[p.UID] = w.classOf(in.Now, p.UID, told, decided)
	}
	w.client.classes.Store(&classes)
	return classes
}

// classOf is the class of a pod of a namespace that allows weights. decided is what was decided about it last; NoClass:
// nothing yet.
func (w *Weighting) classOf(now time.Time, uid string, told OptIns, decided idleclass.Class) Class {
	last := w.client.last.Load()
	switch refused := last.refusal(uid, now); {
	case told[uid] != "":
		return Class{idleclass.KeptOut, told[uid]}
	case !last.counts(now) || w.client.backsOff(now):
		return Class{idleclass.Unavailable, string(idleclass.Unavailable.Reason())}
	case refused != "":
		return Class{idleclass.Refused, refused}
	}
	return Class{decided, string(decided.Reason())}
}

// notePublished notes the pods for which a round publishes a limit other than the one they have. They are to have left
// the idle class when the kubelet gets the resize, and that it comes is seen too late.
func (w *Weighting) notePublished(in round.Input, out round.Output) {
	maps.DeleteFunc(w.published, func(_ string, at time.Time) bool { return in.Now.Sub(at) > resizeWithin })
	for _, d := range out.Decisions {
		var limit cpu.Milli
		for _, c := range in.Pods[d.Pod].Containers {
			if c.Limited() {
				limit += c.Limit
			}
		}
		if d.Publish && d.Limit != limit {
			w.published[d.UID] = in.Now
		}
	}
}

func (w *Weighting) isResizing(uid string, resizing func(uid string) bool) bool {
	_, published := w.published[uid]
	return published || resizing(uid)
}

// decide decides on a round. After a panic it returns no settings, so mbcas-weights restores every pod, and no pod
// counts as weighted until the back-off has passed.
func (w *Weighting) decide(
	in round.Input, out round.Output, optedIn func(uid string) bool,
) (settings []idleclass.Setting) {
	defer func() {
		if r := recover(); r != nil {
			settings = nil
			w.Forget()
			until := in.Now.Add(panicBackOff)
			w.client.backOffUntil.Store(&until)
			w.log.Error("decision of class and weight panicked, so limits alone cap pods for a while; report this bug",
				"panic", r, "backOff", panicBackOff, "stack", string(debug.Stack()))
		}
	}()
	w.notePublished(in, out)
	w.state, settings = idleclass.Decide(w.cfg, w.state, in, out, optedIn)
	return settings
}

// Forget drops what was learned, after a panic.
func (w *Weighting) Forget() {
	if w != nil {
		w.state, w.settings = idleclass.State{}, nil
	}
}

func (w *Weighting) optedIn(now time.Time, told OptIns) func(string) bool {
	last := w.client.last.Load()
	if !last.counts(now) || w.client.backsOff(now) {
		return func(string) bool { return false }
	}
	return func(uid string) bool {
		kept, allows := told[uid]
		return allows && kept == "" && last.refusal(uid, now) == ""
	}
}

// answer is the last one.
type answer struct {
	at    time.Time
	reply wire.Reply
	// refused are pods that this answer or an earlier one has refused, by UID, until they are tried again.
	refused map[string]refusal
}

type refusal struct {
	why   wire.Refusal
	until time.Time
}

// refusal is why a pod is refused and not tried again yet; "": it is not.
func (a *answer) refusal(uid string, now time.Time) string {
	if a == nil || !now.Before(a.refused[uid].until) {
		return ""
	}
	return string(a.refused[uid].why)
}

// counts says whether pods have what the answer says. A nil answer is none.
func (a *answer) counts(now time.Time) bool { return a != nil && now.Sub(a.at) <= worksFor }

// takeRefusals takes in what was refused, and what earlier answers refused that is not tried again yet. A pod that is
// tried again at once would have its limit capped in one round and raised in the next. A pod that is still Pending is
// named again with the next round: the kubelet may have made its cgroup by then.
func (a *answer) takeRefusals(before *answer, starting map[string]bool) {
	a.refused = map[string]refusal{}
	if before != nil {
		for uid, r := range before.refused {
			if a.at.Before(r.until) {
				a.refused[uid] = r
			}
		}
	}
	for _, r := range a.reply.Refused {
		if starting[r.UID] {
			continue
		}
		a.refused[r.UID] = refusal{r.Why, a.at.Add(retryAfter(r.Why))}
	}
}

// retryAfter is how long a refused pod is left to limits. Shorter writes it sooner; longer changes its limit less often.
func retryAfter(why wire.Refusal) time.Duration {
	switch why {
	case wire.NotFound: // a new pod, whose cgroup the kubelet has yet to make
		return 5 * time.Second
	case wire.Contested: // as long as mbcas-weights counts what other writers do
		return 10 * time.Minute
	}
	return time.Minute
}

// request is what is said, with the pods of it that are still Pending.
type request struct {
	wire.Request
	starting map[string]bool
}

// Client says settings to mbcas-weights.
type Client struct {
	path    string
	within  time.Duration // answerWithin; a test has a longer one
	next    chan request  // the newest that was not said
	last    atomic.Pointer[answer]
	failure atomic.Pointer[error] // of the last attempt
	// backOffUntil is when class and weight are decided again after a panic. Weighting sets it.
	backOffUntil atomic.Pointer[time.Time]
	// classes are those of the last round, by UID. Weighting sets them.
	classes atomic.Pointer[map[string]Class]
}

// NewClient is a client for the socket at path.
func NewClient(path string) *Client {
	return &Client{path: path, within: answerWithin, next: make(chan request, 1)}
}

// say replaces what waits to be said. One goroutine calls it.
func (c *Client) say(req request) {
	select {
	case <-c.next:
	default:
	}
	c.next <- req
}

func (c *Client) works(now time.Time) bool {
	return c.last.Load().counts(now)
}

// backsOff says whether nothing is decided, after a panic.
func (c *Client) backsOff(now time.Time) bool {
	until := c.backOffUntil.Load()
	return until != nil && now.Before(*until)
}

// obstacle is why the last attempt failed.
func (c *Client) obstacle() string {
	if err := c.failure.Load(); err != nil {
		return (*err).Error()
	}
	return "no answer yet"
}

// Run says what is decided until ctx ends. It connects again with the next round.
func (c *Client) Run(ctx context.Context) {
	var conn net.Conn
	var in *bufio.Reader
	defer func() {
		if conn != nil {
			_ = conn.Close() // nothing is left to say
		}
	}()
	for {
		var req request
		select {
		case <-ctx.Done():
			return
		case req = <-c.next:
		}
		var err error
		if conn == nil {
			if conn, err = (&net.Dialer{Timeout: c.within}).DialContext(ctx, "unix", c.path); err == nil {
				in = wire.NewReader(conn)
			}
		}
		if err == nil {
			err = c.ask(conn, in, req)
		}
		if err != nil {
			err = fmt.Errorf("mbcas-weights at %s: %w; see the log of the container weights", c.path, err)
			c.failure.Store(&err)
			if conn != nil {
				_ = conn.Close() // a new one is made
				conn = nil
			}
		}
	}
}

func (c *Client) ask(conn net.Conn, in *bufio.Reader, req request) error {
	if err := conn.SetDeadline(time.Now().Add(c.within)); err != nil {
		return err
	}
	if err := wire.Write(conn, req.Request); err != nil {
		return err
	}
	var a answer
	if err := wire.Read(in, &a.reply); err != nil {
		return err
	}
	a.at = time.Now()
	a.takeRefusals(c.last.Load(), req.starting)
	c.last.Store(&a)
	return nil
}
