package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/round"
)

// probe is a sampler that notes when it is read, in seconds after the start, and does then what it is told.
type probe struct {
	mu     sync.Mutex
	start  time.Time
	at     []float64
	do     func(read int)
	closed bool
}

func (p *probe) Read(targets []kernel.Target) kernel.Sample {
	p.mu.Lock()
	p.at = append(p.at, time.Since(p.start).Seconds())
	n := len(p.at)
	p.mu.Unlock()
	if p.do != nil {
		p.do(n)
	}
	return kernel.Sample{Node: kernel.NodeSample{At: time.Now()}, Pods: make([]kernel.PodSample, len(targets))}
}

func (*probe) Descriptors() int { return 0 }

func (p *probe) Close() error {
	p.closed = true
	return nil
}

func (p *probe) reads() []float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.at)
}

// newPlayer is a player of an empty node with rounds each second, and its probe.
func newPlayer(do func(read int)) (*player, *probe) {
	now := time.Now()
	host := &probe{start: now, do: do}
	return &player{
		interval: time.Second, cfg: round.DefaultConfig(), log: slog.New(slog.DiscardHandler),
		open:  func(context.Context) (sampler, error) { return host, nil },
		view:  func() *view { return &view{Node: round.Node{Capacity: 2000, Allocatable: 2000}} },
		offer: func(*played) {}, pulse: newPulse(time.Second, now), metrics: newMetrics(),
	}, host
}

// start runs f until stop is called, which waits for its end.
func start(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func count(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func TestTicksNeverQueue(t *testing.T) {
	cases := map[string]struct {
		reason string
		slow   map[int]time.Duration // read -> how long it takes
		want   []float64             // rounds in the first 8.5 seconds
		late   float64
	}{
		"on time":        {"a quick round leaves the next one on its second", map[int]time.Duration{2: 900 * time.Millisecond}, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8}, 0},
		"one slow":       {"the ticks at 3 and 4 pass during the round of 2, and are not caught up", map[int]time.Duration{3: 2500 * time.Millisecond}, []float64{0, 1, 2, 5, 6, 7, 8}, 2},
		"to the next":    {"a round that ends on a tick leaves no time for that tick's round", map[int]time.Duration{3: time.Second}, []float64{0, 1, 2, 4, 5, 6, 7, 8}, 1},
		"always slow":    {"rounds of 1.5 seconds are played every other second", map[int]time.Duration{1: 1500 * time.Millisecond, 2: 1500 * time.Millisecond, 3: 1500 * time.Millisecond, 4: 1500 * time.Millisecond, 5: 1500 * time.Millisecond}, []float64{0, 2, 4, 6, 8}, 4},
		"slow and quick": {"the grid stays where it was", map[int]time.Duration{1: 3100 * time.Millisecond}, []float64{0, 4, 5, 6, 7, 8}, 3},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, host := newPlayer(func(read int) { time.Sleep(c.slow[read]) })
				stop := start(p.Run)
				time.Sleep(8500 * time.Millisecond)
				got, late := host.reads(), count(t, p.metrics.late)
				stop()
				if d := cmp.Diff(c.want, got); d != "" {
					t.Errorf("%s: rounds (-want +got):\n%s", c.reason, d)
				}
				if late != c.late {
					t.Errorf("%s: %v late ticks, want %v", c.reason, late, c.late)
				}
				if !host.closed {
					t.Error("the cgroups' files were left open")
				}
			})
		})
	}
}

func TestPanicIsARoundLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, host := newPlayer(func(read int) {
			if read >= 3 && read <= 6 || read >= 9 {
				panic("a broken round")
			}
		})
		stop := start(p.Run)
		defer stop()
		time.Sleep(6500 * time.Millisecond) // reads 1 to 7; four in a row panicked, the seventh did not
		if got, want := host.reads(), []float64{0, 1, 2, 3, 4, 5, 6}; !slices.Equal(got, want) {
			t.Errorf("rounds at %v, want %v", got, want)
		}
		if got := count(t, p.metrics.rounds.panicked); got != 4 {
			t.Errorf("%v panics counted, want 4", got)
		}
		if err := p.pulse.Ready(time.Now()); err != nil {
			t.Errorf("after a good round: %v", err)
		}
		time.Sleep(5 * time.Second) // reads 8 to 12: four panicked
		if err := p.pulse.Healthy(time.Now()); err != nil {
			t.Errorf("after four panics: %v", err)
		}
		time.Sleep(time.Second)
		if err := p.pulse.Healthy(time.Now()); err == nil {
			t.Error("healthy after five panics in a row")
		}
	})
}

// TestPanicStartsAfresh: what was learnt before a panic is not used after it.
func TestPanicStartsAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := false
		p, _ := newPlayer(func(int) {
			if bad {
				panic("a broken round")
			}
		})
		ctx := t.Context()
		p.turn(ctx, time.Now())
		if reflect.ValueOf(p.state).IsZero() {
			t.Fatal("a round left no state: this test shows nothing")
		}
		bad = true
		p.turn(ctx, time.Now())
		if !reflect.ValueOf(p.state).IsZero() {
			t.Errorf("state after a panic: %+v", p.state)
		}
	})
}

func TestStuckRoundStopsTheHeart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		p, _ := newPlayer(func(read int) {
			if read == 31 {
				<-free
			}
		})
		var beats []float64
		begin := time.Now()
		h := &heart{
			playing: p.pulse.Playing, log: p.log, metrics: p.metrics,
			renew: func(context.Context, time.Time) error {
				beats = append(beats, time.Since(begin).Seconds())
				return nil
			},
		}
		stopPlayer, stopHeart := start(p.Run), start(h.Run)
		time.Sleep(100500 * time.Millisecond)
		if err := p.pulse.Healthy(time.Now()); err == nil {
			t.Error("healthy 70 seconds after the last round")
		}
		close(free)
		time.Sleep(15 * time.Second)
		if err := p.pulse.Ready(time.Now()); err != nil {
			t.Errorf("rounds are played again: %v", err)
		}
		stopPlayer()
		stopHeart()
		// The round of second 30 does not end; at 31 the one of 29 is recent. From 39 on it is not.
		if want := []float64{1, 11, 21, 31, 101, 111}; !slices.Equal(beats, want) {
			t.Errorf("renewed at %v, want %v", beats, want)
		}
	})
}

// TestHeartTriesAgain: a renewal that failed is tried again after a second.
func TestHeartTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics()
		tries := 0
		h := &heart{
			playing: func(time.Time) bool { return true }, log: slog.New(slog.DiscardHandler), metrics: m,
			renew: func(context.Context, time.Time) error {
				if tries++; tries <= 3 {
					return errors.New("no API server")
				}
				return nil
			},
		}
		stop := start(h.Run)
		time.Sleep(15 * time.Second) // 1, 2, 3 fail; 4 and 14 do not
		stop()
		if count(t, m.beats.failed) != 3 || count(t, m.beats.renewed) != 2 {
			t.Errorf("%v failed and %v renewed, want 3 and 2", count(t, m.beats.failed), count(t, m.beats.renewed))
		}
	})
}

// TestNoRoundWithoutAllInputs: while something is missing nothing is played, readiness says what, and health stays good.
func TestNoRoundWithoutAllInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, host := newPlayer(nil)
		var opens atomic.Int64
		var found atomic.Bool
		var current atomic.Pointer[view]
		open := p.open
		p.open = func(ctx context.Context) (sampler, error) {
			if opens.Add(1); !found.Load() {
				return nil, errors.New("mount the host's /sys/fs/cgroup")
			}
			return open(ctx)
		}
		p.view = current.Load
		stop := start(p.Run)
		defer stop()
		not := func(want string) {
			t.Helper()
			err := p.pulse.Ready(time.Now())
			if err == nil || err.Error() != "no rounds: "+want {
				t.Errorf("ready: %v, want no rounds: %s", err, want)
			}
			if err := p.pulse.Healthy(time.Now()); err != nil {
				t.Error(err)
			}
			if p.pulse.Playing(time.Now()) {
				t.Error("the Lease would be renewed")
			}
		}
		time.Sleep(12500 * time.Millisecond)
		not("mount the host's /sys/fs/cgroup")
		if opens.Load() != 3 {
			t.Errorf("looked for the cgroups %d times in 12 seconds, want 3", opens.Load())
		}
		found.Store(true)
		time.Sleep(5 * time.Second)
		not("waiting for the API server")
		current.Store(&view{Lack: "node n is not in the API server"})
		time.Sleep(time.Second)
		not("node n is not in the API server")
		if len(host.reads()) > 0 {
			t.Errorf("%d rounds, want none", len(host.reads()))
		}
		current.Store(&view{Node: round.Node{Capacity: 2000, Allocatable: 2000}})
		time.Sleep(time.Second)
		if err := p.pulse.Ready(time.Now()); err != nil {
			t.Error(err)
		}
	})
}

// TestUnreadableSystemIsToldOnce: the log says when the system's use is lost and found, not in each round.
func TestUnreadableSystemIsToldOnce(t *testing.T) {
	var log bytes.Buffer
	p, _ := newPlayer(nil)
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	good := round.NodeDecision{UsageKnown: true, SystemKnown: true}
	blind := round.NodeDecision{UsageKnown: true}
	for _, n := range []round.NodeDecision{{}, good, {}, good, blind, blind, {}, blind, good, good} {
		p.note(round.Output{Node: n})
	}
	if lost, lines := strings.Count(log.String(), "is not readable"), strings.Count(log.String(), "\n"); lost != 1 || lines != 2 {
		t.Errorf("want one line when it is lost and one when it is found:\n%s", log.String())
	}
	log.Reset()
	for range 3 {
		p.note(round.Output{Node: good, Skipped: round.Skipped{Unenforced: 2}})
	}
	if n := strings.Count(log.String(), "cpuCFSQuota: true"); n != 1 {
		t.Errorf("%d lines, want one that says what to do about limits that are not enforced:\n%s", n, log.String())
	}
}
