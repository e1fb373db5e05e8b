//go:build linux

package kernelrun

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/testing/must"
)

type noChanges struct{}

func (noChanges) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) { return nil, r.Now + time.Hour }

func requireSupport(t *testing.T) {
	t.Helper()
	if err := Supported(); err != nil {
		t.Skip(err)
	}
}

func left(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, dir := range []string{"", "cpu", "cpuacct", "cpu,cpuacct", "unified"} {
		paths, err := filepath.Glob(filepath.Join(root, dir, prefix+strconv.Itoa(os.Getpid())))
		must.Succeed(t, err)
		found = append(found, paths...)
	}
	return found
}

// run is Run, which begins again where the machine is too busy to start the processes in time.
func run(ctx context.Context, s sim.Setup, policy sim.Policy) (r Result, err error) {
	for range 10 {
		if r, err = Run(ctx, s, policy); !errors.Is(err, errBusy) {
			break
		}
	}
	return r, err
}

func TestLeavesNothing(t *testing.T) {
	requireSupport(t)
	setup := Cases(time.Second, 1)[3].Setup
	setup.WarmUp = 0
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	late := setup
	late.Length = time.Hour
	late.Pods = append([]sim.PodSpec(nil), setup.Pods...)
	late.Pods[0].Requests.Rate = load.Step{After: 1, Time: 59 * time.Minute}
	for _, s := range []sim.Setup{setup, late} {
		if _, err := run(ctx, s, noChanges{}); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled run ends with %v", err)
		}
	}
	good := worker
	worker = "exit 1"
	if _, err := run(t.Context(), setup, noChanges{}); err == nil {
		t.Error("processes that fail at once go unnoticed")
	}
	worker = good
	setup.Length = 100 * time.Millisecond
	if _, err := run(t.Context(), setup, noChanges{}); err != nil {
		t.Error(err)
	}
	if l := left(t); len(l) > 0 {
		t.Errorf("left behind: %v", l)
	}
}

// TestGapsAreKept: what was kept at once ends when it shows, what may have been kept bit by bit is
// spread, and what was kept before the first sample does not count.
func TestGapsAreKept(t *testing.T) {
	const ms = time.Millisecond
	var g gaps
	for _, sample := range []struct {
		at     time.Duration
		stolen []time.Duration
	}{
		{0, []time.Duration{70 * ms, 0}},
		{50 * ms, []time.Duration{70 * ms, 20 * ms}},
		{100 * ms, []time.Duration{70 * ms, 30 * ms}},
		{2000 * ms, []time.Duration{80 * ms, 30 * ms}},
		{2050 * ms, []time.Duration{80 * ms, 150 * ms}},
	} {
		g.record(sample.at, sample.stolen)
	}
	want := []sim.Gap{{Core: 1, At: 30 * ms, Duration: 20 * ms}}
	for at := 50 * ms; at < 100*ms; at += 10 * ms {
		want = append(want, sim.Gap{Core: 1, At: at, Duration: 2 * ms})
	}
	for at := 1500 * ms; at < 2000*ms; at += 100 * ms {
		want = append(want, sim.Gap{Core: 0, At: at, Duration: 2 * ms})
	}
	want = append(want, sim.Gap{Core: 1, At: 1930 * ms, Duration: 120 * ms})
	if !slices.Equal(g.all, want) {
		t.Errorf("gaps %v, want %v", g.all, want)
	}
	g = gaps{}
	g.record(0, []time.Duration{0})
	g.record(20*ms, []time.Duration{50 * ms}) // some of it was kept before the run
	if want := []sim.Gap{{Core: 0, At: 0, Duration: 20 * ms}}; !slices.Equal(g.all, want) {
		t.Errorf("gaps %v, want %v", g.all, want)
	}
}

// TestStallsShow: others use one of two cores for 0.2 s, and 1 % at all other times, looked at
// every 50 ms, and once late.
func TestStallsShow(t *testing.T) {
	s := stall{cores: 2}
	for _, step := range []struct {
		at, until, used time.Duration // of every 50 ms
		want            float64
	}{
		{0, 200 * time.Millisecond, time.Millisecond, 0}, // not a stretch yet
		{200 * time.Millisecond, 3 * time.Second, time.Millisecond, 0.01},
		{3 * time.Second, 3200 * time.Millisecond, 50 * time.Millisecond, (0.2 + 0.001) / 0.5},
		{3200 * time.Millisecond, 20 * time.Second, time.Millisecond, (0.2 + 0.001) / 0.5},
	} {
		for at := step.at + sampleInterval; at <= step.until; at += sampleInterval {
			last := sample{at: step.at}
			if n := len(s.samples); n > 0 {
				last = s.samples[n-1]
			}
			if at == 10*time.Second { // late: the next one counts for both
				continue
			}
			s.add(sample{at, last.used + step.used*((at-last.at)/sampleInterval)})
		}
		if math.Abs(s.max-step.want) > 1e-9 {
			t.Errorf("at %v a stall of %v, want %v", step.until, s.max, step.want)
		}
	}
	if n := len(s.samples); n > int(stallWindow/sampleInterval)+1 {
		t.Errorf("%d samples are kept", n)
	}
}

// TestSameRequests: each pod gets the requests here that it gets in the simulator.
func TestSameRequests(t *testing.T) {
	requireSupport(t)
	duel, err := scenario.Find("duel")
	must.Succeed(t, err)
	s := duel.Setup(0, 7)
	s.Machine.Cores, s.Length, s.WarmUp = runtime.NumCPU(), 2*time.Second, 0
	real, err := run(t.Context(), s, noChanges{})
	must.Succeed(t, err)
	model := sim.Run(s, noChanges{})
	for i, r := range real.Pods {
		if m := model.Pods[i]; r.Usage == 0 || r.Arrived != m.Arrived || (r.Useful+r.Backlog-m.Offered).Abs() > time.Millisecond {
			t.Errorf("pod %s used %v for %d requests of %v; in the simulator %d of %v", r.Spec.Name, r.Usage, r.Arrived,
				r.Useful+r.Backlog, m.Arrived, m.Offered)
		}
	}
	s.Pods = append(s.Pods, sim.PodSpec{Name: "late", Start: time.Second})
	if _, err := run(t.Context(), s, noChanges{}); err == nil || !strings.Contains(err.Error(), "pod late") {
		t.Errorf("a pod that comes later: %v", err)
	}
}
