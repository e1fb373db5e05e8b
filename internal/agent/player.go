package agent

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/round"
)

// sampler reads the counters of the machine: a kernel.Host.
type sampler interface {
	Read([]kernel.Target) kernel.Sample
	Descriptors() int // files held open
	Close() error
}

// played is one round with all that went into it. It is never changed.
type played struct {
	At    time.Time
	Took  time.Duration
	Files int // of cgroups that are held open
	View  *view
	Out   round.Output
}

// player plays the rounds. All of it is one goroutine that never touches the network.
type player struct {
	interval time.Duration
	cfg      round.Config
	log      *slog.Logger
	open     func(context.Context) (sampler, error)
	view     func() *view  // the newest; nil before the first
	offer    func(*played) // takes what is to be published; returns at once
	pulse    *pulse
	metrics  *metrics
	last     atomic.Pointer[played]

	host   sampler // nil until the cgroups are found
	tried  time.Time
	state  round.State
	lacked string // as last logged
	blind  bool   // the system's use could not be read in the last good round
	loose  bool   // some pod's limit was not enforced in the last round with rates
}

// openEvery is how often the cgroups are looked for while they can't be found.
const openEvery = 5 * time.Second

// Run plays a round in each interval until ctx ends. A round that takes longer makes the next ones
// late: they are skipped, and the grid stays.
func (p *player) Run(ctx context.Context) {
	defer p.close()
	next := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		p.turn(ctx, time.Now())
		var late int
		next, late = following(next, time.Now(), p.interval)
		p.metrics.late.Add(float64(late))
		timer.Reset(time.Until(next))
	}
}

// following is the first point of the grid through last that lies after now, and how many it passes over.
func following(last, now time.Time, every time.Duration) (next time.Time, late int) {
	if passed := now.Sub(last) / every; passed > 0 {
		late = int(passed)
	}
	return last.Add(time.Duration(late+1) * every), late
}

// turn is one tick: a round, or the reason why there is none. A panic costs the round and
// what was learnt so far, since a half-made state must decide nothing.
func (p *player) turn(ctx context.Context, now time.Time) {
	defer func() {
		if r := recover(); r != nil {
			p.state = round.State{}
			p.pulse.panics.Add(1)
			p.metrics.rounds.panicked.Inc()
			p.log.Error("round panicked", "panic", r, "stack", string(debug.Stack()))
		}
		end := time.Now()
		p.pulse.turn.Store(&end)
	}()
	v := p.view()
	lack := p.lack(ctx, v, now)
	p.tell(lack)
	if lack != "" {
		p.metrics.rounds.skipped.Inc()
		return
	}
	p.play(v, now)
}

// lack is what is missing for a round; empty where nothing is.
func (p *player) lack(ctx context.Context, v *view, now time.Time) string {
	if p.host == nil && (p.tried.IsZero() || now.Sub(p.tried) >= openEvery) {
		p.tried = now
		h, err := p.open(ctx)
		if err != nil {
			return err.Error()
		}
		p.host = h
	}
	switch {
	case p.host == nil:
		return p.lacked
	case v == nil:
		return "waiting for the API server"
	}
	return v.Lack
}

// tell logs what is missing when that changes.
func (p *player) tell(lack string) {
	if lack == p.lacked && p.pulse.lack.Load() != nil {
		return
	}
	p.lacked = lack
	p.pulse.lack.Store(&lack)
	switch {
	case lack == "":
		p.log.Info("rounds begin")
	case p.host == nil:
		p.log.Error("no rounds", "why", lack)
	default: // most of the time this passes within a second
		p.log.Info("no rounds", "why", lack)
	}
}

func (p *player) play(v *view, now time.Time) {
	sample := p.host.Read(v.Targets)
	in := round.Input{Now: now, Node: v.Node, Pods: v.Pods, Sample: sample}
	r := &played{At: now, View: v, Files: p.host.Descriptors()}
	p.state, r.Out = round.Run(p.cfg, p.state, in)
	p.note(r.Out)
	end := time.Now()
	r.Took = end.Sub(now)
	p.offer(r)
	p.last.Store(r)
	p.pulse.panics.Store(0)
	p.pulse.round.Store(&end)
	p.metrics.rounds.played.Inc()
	p.metrics.duration.Observe(r.Took.Seconds())
}

// note logs when the system's use can no longer be read or limits are not enforced, and when that ends. A round without any rates
// says nothing of it.
func (p *player) note(out round.Output) {
	n := out.Node
	if loose := out.Skipped.Unenforced > 0; loose != p.loose && n.UsageKnown {
		p.loose = loose
		if loose {
			p.log.Warn("pods have a CPU limit that the kernel does not enforce, so nothing is published for them; set cpuCFSQuota: true in the kubelet's configuration", "pods", out.Skipped.Unenforced)
		} else {
			p.log.Info("the kernel enforces all CPU limits again")
		}
	}
	if blind := !n.SystemKnown; blind != p.blind && (n.UsageKnown || !blind) {
		p.blind = blind
		if blind {
			p.log.Warn("use of CPU outside of pods is not readable, so the last known is taken off the supply; check that /proc/stat can be read", "system", n.System)
		} else {
			p.log.Info("use of CPU outside of pods is readable again")
		}
	}
}

func (p *player) close() {
	if p.host != nil {
		_ = p.host.Close() // files that were only read
	}
}
