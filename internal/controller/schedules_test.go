package controller

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/controller/metrics"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/objectcache"
	"github.com/mbcas/mbcas/internal/testing/history"
	"github.com/mbcas/mbcas/internal/testing/schedule"
)

// underTest is the production controller in a schedule.
type underTest struct{ *Reconciler }

func (u underTest) Changed(ctx context.Context, o client.Object) []reconcile.Request {
	return u.nodesOf(ctx, o)
}

// Background opens the gate, as its check does, and empties the queues of nodes.
func (u underTest) Background(ctx context.Context) (requests []reconcile.Request) {
	if closed, _ := u.Gate.Closed(); closed != "" {
		u.Gate.Set("", "")
		u.requeue.allNodes()
	}
	for {
		select {
		case e := <-u.requeue.all:
			requests = append(requests, u.nodesOf(ctx, e.Object)...)
		case e := <-u.requeue.some:
			requests = append(requests, u.nodesOf(ctx, e.Object)...)
		default:
			return requests
		}
	}
}

// noEvents takes events and forgets them.
type noEvents struct{}

func (noEvents) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// system is the controller as it ships, with the defaults, one request at a time.
func system() schedule.System {
	c := DefaultConfig()
	c.Pods = 1
	return schedule.System{
		Namespace: c.Namespace, Trim: objectcache.NewTransform(),
		Rules: history.Rules{
			FreezeAfter: c.FreezeAfter, RestoreAfter: c.RestoreAfter, HoldOff: c.ExternalChangeHoldOff,
			ActuationTimeout: c.ActuationTimeout, Rate: c.Rate, Burst: c.Burst,
			Skew: 2 * time.Minute, Slack: 45 * time.Second, Lag: 45 * time.Second,
		},
		New: func(p schedule.Process) schedule.Controller {
			r := (&Reconciler{
				Config: c, API: API{Client: p.Client, Live: p.Live, Resize: podresize.New(p.Client, kube.FieldManager)},
				Gate: flowcontrol.NewGate(nil, nil), Now: p.Now,
				Telemetry: Telemetry{
					Events: noEvents{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Audit: slog.New(p.Audit),
					Metrics: metrics.New(prometheus.NewRegistry()),
				},
			}).Ready()
			r.jitter, r.breakers = p.Jitter, flowcontrol.NewBreakers(p.Jitter)
			r.lookups.vpas = noVPAs{}
			r.Gate.Set("", "")
			return underTest{r}
		},
	}
}

var (
	schedules = flag.Int("schedules", 30, "how many random schedules to play")
	firstSeed = flag.Uint64("seed", 1, "the seed of the first one")
	reportTo  = flag.String("report", "", "the file to write a report to")
	play      = flag.String("play", "", "print the history of the schedule in this file")
)

// TestSchedules plays random schedules of faults. One that breaks an invariant is made smaller and
// printed; kept in testdata/schedules, TestKnownSchedules plays it again.
func TestSchedules(t *testing.T) {
	c := schedule.Play(system(), *firstSeed, *schedules, 80)
	for _, f := range c.Failures {
		t.Errorf("seed %d breaks invariant %d: %s\n%s\n%v", f.Seed, f.Invariant, history.Invariants[f.Invariant], f.Steps, f.Violation)
	}
	if *reportTo != "" {
		if err := os.WriteFile(*reportTo, []byte(c.Report()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKnownSchedules plays the schedules that once broke an invariant.
func TestKnownSchedules(t *testing.T) {
	files, err := filepath.Glob("testdata/schedules/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if *play != "" {
		files = []string{*play}
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			result := schedule.Run(system(), string(text))
			for _, v := range result.Violations {
				t.Error(v)
			}
			if *play != "" {
				t.Log(schedule.Story(result))
			}
		})
	}
}
