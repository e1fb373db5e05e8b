package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/internal/agent/health"
	"github.com/mbcas/mbcas/internal/agent/nodemetrics"
	"github.com/mbcas/mbcas/internal/agent/recording"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// Sampler reads the counters of the machine: a kernel.Host.
type Sampler interface {
	Read([]kernel.Target) kernel.Sample
	Look([]kernel.Target) kernel.Sample // counters alone, of pods of the last Read
	Find([]kernel.Target) kernel.Sample // of pods that no Read has read yet
	Descriptors() int                   // files held open
	Close() error
}

// roundResult is one round with its inputs. It is never changed.
type roundResult struct {
	At       time.Time // start of the round
	Duration time.Duration
	Files    int // of cgroups that are held open
	Blocked  int // pods of which a file's read does not end
	Quotas   quotaReport
	Snapshot *snapshot
	Output   round.Output
}

// roundLoop runs the rounds, in one goroutine that never uses the network.
type roundLoop struct {
	interval time.Duration
	cfg      round.Config
	log      *slog.Logger
	open     func(context.Context) (Sampler, error)
	snapshot func() *snapshot                    // the newest; nil before the first
	publish  func(*roundResult)                  // queues the decisions; returns at once
	raise    func(*roundResult)                  // queues those of a look beside them
	before   func() (p market.Price, known bool) // in force before the state was lost
	changed  <-chan struct{}                     // the snapshot is newer than at the last receive; nil: not told
	health   *health.State
	metrics  *metrics
	last     atomic.Pointer[roundResult]
	record   recording.Feed

	host             Sampler   // nil until the cgroups are found
	openedAt         time.Time // last attempt to find them
	state            round.State
	watched          *snapshot       // of the last round, with the pods taken in since; nil: none
	watch            []kernel.Target // the pods that the next look reads; empty: none
	arrived          bool            // the snapshot may have pods that were not in the last round
	joinedAt         time.Time
	lookedAt         time.Time // start of the last look, or end of the last round
	lastObstacle     string    // as logged
	systemUnknown    bool      // the system's usage was not readable in the last round with rates
	limitsUnenforced bool      // some pod's limit was not enforced in the last round with rates
	blocked          map[podRef]bool
	quotas           quotaComparison
	faulty           map[types.UID]time.Time // pods about which a round panicked, and until when they are set aside
}

// openInterval is how often the agent looks for the cgroups while it does not find them.
const openInterval = 5 * time.Second

// Run runs a round in each interval until ctx ends. The ticks that a long round overruns are
// skipped, and the grid stays.
func (l *roundLoop) Run(ctx context.Context) {
	defer l.close()
	next := time.Now()
	wake, timer := next, time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
			l.arrived = true
			if wait := l.untilNext(next); time.Now().Add(wait).Before(wake) {
				wake = time.Now().Add(wait)
				timer.Reset(wait)
			}
			continue
		case <-timer.C:
		}
		switch now := time.Now(); {
		case now.Before(next) && l.untilJoin() <= 0:
			l.join(now)
		case now.Before(next):
			l.look(now)
		default:
			l.tick(ctx, now)
			var late int
			next, late = nextTick(next, time.Now(), l.interval)
			l.metrics.late.Add(float64(late))
			l.lookedAt = time.Now()
		}
		wait := l.untilNext(next)
		wake = time.Now().Add(wait)
		timer.Reset(wait)
	}
}

// nextTick is the first point of the grid through last that lies after now, and how many points lie
// between.
func nextTick(last, now time.Time, interval time.Duration) (next time.Time, late int) {
	if passed := now.Sub(last) / interval; passed > 0 {
		late = int(passed)
	}
	return last.Add(time.Duration(late+1) * interval), late
}

// tick runs a round, or records why none can run. A panic costs the round and all estimates, since
// a half-updated state must decide nothing.
func (l *roundLoop) tick(ctx context.Context, now time.Time) {
	l.watch, l.watched, l.arrived = l.watch[:0], nil, false // a round that does not run has no looks
	defer func() {
		if r := recover(); r != nil {
			l.state = round.State{}
			l.record.Panicked(now)
			if r := l.last.Load(); r != nil {
				l.before = func() (market.Price, bool) { return r.Output.Node.Price, true }
			}
			l.health.Panicked()
			l.metrics.rounds.panicked.Inc()
			l.log.Error("round panicked", "panic", r, "stack", string(debug.Stack()))
		}
		l.health.Ticked(time.Now())
	}()
	s := l.snapshot()
	obstacle := l.obstacle(ctx, s, now)
	l.logObstacle(obstacle)
	if obstacle != "" {
		l.metrics.rounds.skipped.Inc()
		l.record.Gap(now, obstacle)
		return
	}
	l.runRound(s, now)
}

// obstacle is why no round can run; empty where one can.
func (l *roundLoop) obstacle(ctx context.Context, s *snapshot, now time.Time) string {
	if l.host == nil && (l.openedAt.IsZero() || now.Sub(l.openedAt) >= openInterval) {
		l.openedAt = now
		h, err := l.open(ctx)
		if err != nil {
			return err.Error()
		}
		l.host = h
	}
	switch {
	case l.host == nil:
		return l.lastObstacle
	case s == nil:
		return "waiting for the API server"
	}
	return s.NotReady
}

// logObstacle logs the obstacle when it changes.
func (l *roundLoop) logObstacle(obstacle string) {
	l.lastObstacle = obstacle
	if !l.health.Prevented(obstacle) {
		return
	}
	switch {
	case obstacle == "":
		l.log.Info("rounds begin")
	case l.host == nil:
		l.log.Error("no rounds", "why", obstacle)
	default: // most of the time this passes within a second
		l.log.Info("no rounds", "why", obstacle)
	}
}

func (l *roundLoop) runRound(s *snapshot, now time.Time) {
	sample := l.host.Read(s.Targets)
	in := round.Input{Now: now, Node: s.Node, Pods: s.Pods, Sample: sample}
	in.PriceBefore, in.PriceBeforeKnown = l.before()
	r := &roundResult{At: now, Snapshot: s, Files: l.host.Descriptors(), Blocked: l.logBlocked(s, sample)}
	r.Quotas = l.quotas.compare(l.log, s, sample, now)
	l.record.Begin(now, l.cfg, &l.state)
	l.state, r.Output = l.decide(s, in)
	l.record.Round(l.setAside(s, in), s.Names, &r.Output)
	l.record.Harmed(now, s.Harmed)
	l.logChanges(r.Output)
	end := time.Now()
	r.Duration = end.Sub(now)
	l.watchPods(s, r.Output.Watch)
	l.publish(r)
	l.last.Store(r)
	l.metrics.node.Observe(nodemetrics.Round{
		At: now, Pods: s.Pods, Sample: sample, Output: r.Output,
		Files: r.Files, Blocked: r.Blocked, QuotaMismatches: r.Quotas.Mismatches,
	})
	l.health.Completed(end)
	l.metrics.rounds.completed.Inc()
	l.metrics.duration.Observe(r.Duration.Seconds())
}

// faultyFor is how long a pod is set aside about which a round panicked: nothing is decided for it.
const faultyFor = 5 * time.Minute

// decide runs the round. After a panic the pod that it is about is found by a round of each pod alone,
// and set aside; the round is run again without it. A round only replaces what its state holds, so the
// state of before the panic is whole.
func (l *roundLoop) decide(s *snapshot, in round.Input) (round.State, round.Output) {
	in = l.setAside(s, in)
	state, out, panicked := l.try(in)
	if panicked == "" {
		return state, out
	}
	found := false
	for i, ref := range s.Refs {
		alone := in
		alone.Pods, alone.Sample.Pods = in.Pods[i:i+1], in.Sample.Pods[i:i+1]
		_, _, why := l.try(alone)
		if why == "" {
			continue
		}
		if found = true; l.faulty == nil {
			l.faulty = map[types.UID]time.Time{}
		}
		l.faulty[ref.UID] = in.Now.Add(faultyFor)
		l.metrics.podPanics.Inc()
		l.log.Error("the decision about a pod panicked, so it gets none for a while", "namespace", ref.Namespace,
			"pod", ref.Name, "for", faultyFor, "panic", why)
	}
	if !found {
		panic(panicked)
	}
	return round.Run(l.cfg, l.state, l.setAside(s, in))
}

// try runs a round; panicked is the panic with its stack, or empty.
func (l *roundLoop) try(in round.Input) (state round.State, out round.Output, panicked string) {
	defer func() {
		if r := recover(); r != nil {
			panicked = fmt.Sprintf("%v\n%s", r, debug.Stack())
		}
	}()
	state, out = round.Run(l.cfg, l.state, in)
	return state, out, ""
}

// setAside replaces the faulty pods by ones without containers.
func (l *roundLoop) setAside(s *snapshot, in round.Input) round.Input {
	maps.DeleteFunc(l.faulty, func(_ types.UID, until time.Time) bool { return !in.Now.Before(until) })
	if len(l.faulty) == 0 {
		return in
	}
	in.Pods, in.Sample.Pods = slices.Clone(in.Pods), slices.Clone(in.Sample.Pods)
	for i, ref := range s.Refs {
		if _, faulty := l.faulty[ref.UID]; faulty {
			in.Pods[i] = round.PodInput{Pod: demand.Pod{UID: string(ref.UID), Unmanaged: true}}
			in.Sample.Pods[i].Containers = nil
		}
	}
	return in
}

// logChanges logs when the system's usage becomes unreadable or limits are not enforced, and when
// that ends. A round without rates tells neither.
func (l *roundLoop) logChanges(out round.Output) {
	n := out.Node
	if unenforced := out.Skipped.Unenforced > 0; unenforced != l.limitsUnenforced && n.UsageKnown {
		l.limitsUnenforced = unenforced
		if unenforced {
			l.log.Warn("the kernel does not enforce the CPU limits of some pods, so nothing is published for them; "+
				"set cpuCFSQuota: true in the kubelet's configuration", "pods", out.Skipped.Unenforced)
		} else {
			l.log.Info("the kernel enforces all CPU limits again")
		}
	}
	if unknown := !n.SystemKnown; unknown != l.systemUnknown && (n.UsageKnown || !unknown) {
		l.systemUnknown = unknown
		if unknown {
			l.log.Warn("CPU usage outside of pods is not readable, so its last known value is subtracted from the supply; "+
				"check that /proc/stat can be read", "system", n.System)
		} else {
			l.log.Info("CPU usage outside of pods is readable again")
		}
	}
}

// logBlocked counts the pods of which a file's read does not end, and logs each when that begins and
// when it ends.
func (l *roundLoop) logBlocked(s *snapshot, sample kernel.Sample) (count int) {
	before := l.blocked
	l.blocked = nil
	for i, p := range sample.Pods {
		ref := s.Refs[i]
		ref.Allocation = ""
		if !p.Blocked {
			continue
		}
		if l.blocked == nil {
			l.blocked = map[podRef]bool{}
		}
		if l.blocked[ref] = true; !before[ref] {
			l.log.Warn("the kernel does not answer a read of the pod's cgroup, so nothing is decided for it until it does",
				"namespace", ref.Namespace, "pod", ref.Name, "uid", ref.UID)
		}
	}
	for ref := range before {
		if !l.blocked[ref] {
			l.log.Info("the pod's cgroup is read again", "namespace", ref.Namespace, "pod", ref.Name, "uid", ref.UID)
		}
	}
	return len(l.blocked)
}

func (l *roundLoop) close() {
	if l.host != nil {
		_ = l.host.Close() // the files were only read
	}
}
