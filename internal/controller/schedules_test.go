package controller

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/controller/metrics"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/objectcache"
	"github.com/mbcas/mbcas/internal/testing/atlength"
	"github.com/mbcas/mbcas/internal/testing/history"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/internal/testing/schedule"
)

// underTest is the production controller in a schedule, without goroutines of its own.
type underTest struct {
	*Reconciler
	answered map[string]bool // nodes about whose pods resizes were answered
}

func (u *underTest) Changed(ctx context.Context, o client.Object) []reconcile.Request {
	return u.nodesOf(ctx, o)
}

// Reconcile reconciles a node, carries resizes out, and reconciles the nodes about whose pods these
// were answered.
func (u *underTest) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	result, err := u.Reconciler.Reconcile(ctx, q)
	for range 3 {
		if u.carryOut(ctx); !u.answered[q.Name] || err != nil {
			break
		}
		delete(u.answered, q.Name)
		result, err = u.Reconciler.Reconcile(ctx, q)
	}
	return result, err
}

// carryOut carries out the resizes whose turn it is.
func (u *underTest) carryOut(ctx context.Context) {
	for u.resizes.Step(ctx) {
	}
}

// Background carries resizes out, opens the gate, as its check does, and empties the queues of nodes.
func (u *underTest) Background(ctx context.Context) (requests []reconcile.Request) {
	u.carryOut(ctx)
	for node := range u.answered {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
	}
	clear(u.answered)
	if closed, _ := u.Gate.Closed(); closed != "" {
		u.Gate.Set("", "")
		u.requeue.AllNodes()
	}
	for {
		select {
		case e := <-u.requeue.All:
			requests = append(requests, u.nodesOf(ctx, e.Object)...)
		case e := <-u.requeue.Some:
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
			ActuationTimeout: c.ActuationTimeout, Rate: c.Resizes.PerSecond + 3*c.Resizes.PerNode, Burst: c.Resizes.Burst + 2,
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
			}).Init()
			r.jitter = p.Jitter
			r.lookups.vpas = noVPAs{}
			r.Gate.Set("", "")
			u := &underTest{r, map[string]bool{}}
			r.resizes.Answered = func(_ context.Context, node string) { u.answered[node] = true }
			return u
		},
	}
}

var (
	schedules = flag.Int("schedules", atlength.Of(20, 30), "how many random schedules to play")
	firstSeed = flag.Uint64("seed", 1, "the seed of the first one")
	reportTo  = flag.String("report", "", "the file to write a report to; schedules that fail are kept in testdata/schedules")
	play      = flag.String("play", "", "print the history of the schedule in this file")
)

// progress keeps each schedule that fails, and prints a line every ten seconds, where a report is wanted.
func progress(t *testing.T) func(done int, failed []schedule.Failure) {
	began, kept := time.Now(), 0
	last := began
	return func(done int, failed []schedule.Failure) {
		if *reportTo == "" {
			return
		}
		for ; kept < len(failed); kept++ {
			keep(t, failed[kept])
		}
		if time.Since(last) > 10*time.Second {
			last = time.Now()
			fmt.Printf("%5d of %d schedules, %d failed, %v\n", done, *schedules, kept, time.Since(began).Round(time.Second))
		}
	}
}

// keep keeps a schedule that fails for TestKnownSchedules.
func keep(t *testing.T, f schedule.Failure) {
	fmt.Printf("seed %d breaks invariant %d: %s\n%s%s\n", f.Seed, f.Invariant, history.Invariants[f.Invariant], f.Steps, f.Text)
	text := fmt.Sprintf("# Seed %d: %s\n%s", f.Seed, f.Text, f.Steps)
	if err := os.WriteFile(fmt.Sprintf("testdata/schedules/seed-%d.txt", f.Seed), []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

// busy is a schedule in which a pod is raised, lowered, raised before the kubelet has lowered it, lowered again,
// changed by another client, restored and forgotten, another one is raised beside it, and the agent is lost.
const busy = `
reconcile A n1
decide p1 900 0.000
decide p2 2000 0.000
show A all
reconcile A n1
sync n1
renew n1
show A all
reconcile A n1
decide p1 300 2.000
show A all
reconcile A n1
decide p1 900 0.000
show A all
reconcile A n1
sync n1
wait 6s
renew n1
decide p1 300 2.000
show A all
reconcile A n1
sync n1
wait 6s
renew n1
show A all
reconcile A n1
resize p2 700
harm p1 unready
show A all
reconcile A n1
forget p1
show A all
reconcile A n1
mode shop restore
show A all
reconcile A n1
sync n1
show A all
reconcile A n1
`

// everyFault are the faults that each request of the busy schedule meets in turn, in make faults.
var everyFault = []string{
	"crash-after", "crash-before", "lost-request", "lost-answer", "hang", "hang-after", "delay(7s)", "late",
	"401", "403", "404", "409", "410", "429", "500", "503", "504",
}

// TestCrashes ends the controller after each request in turn, has another one go on, and checks
// what came of it, in a world of the one node that the busy schedule touches. With MBCAS_LONG=1
// also before each, which leaves what a crash after the request before it leaves, but where time
// passes between the two. In make faults each request also meets each other fault, in the whole
// world.
func TestCrashes(t *testing.T) {
	nodes, kinds := schedule.Nodes[:1], everyFault[:atlength.Of(1, 2)]
	if *schedules >= 1000 {
		nodes, kinds = schedule.Nodes, everyFault
	}
	variants := schedule.EachCall(system(), busy, nodes, kinds)
	if least := 27 * len(kinds); len(variants) < least {
		t.Errorf("%d variants, want at least %d: the schedule makes too few requests", len(variants), least)
	}
	for _, text := range variants {
		if v := schedule.RunOn(system(), text, nodes).Violations; len(v) > 0 {
			t.Fatalf("%s\n%v", text, v)
		}
	}
	t.Logf("%d schedules, one for each request and fault", len(variants))
}

// TestSchedules plays random schedules of faults. One that breaks an invariant is made smaller and
// printed; kept in testdata/schedules, TestKnownSchedules plays it again.
func TestSchedules(t *testing.T) {
	c := schedule.Play(system(), *firstSeed, *schedules, 80, progress(t))
	for _, f := range c.Failures {
		t.Errorf("seed %d breaks invariant %d: %s\n%s\n%v", f.Seed, f.Invariant, history.Invariants[f.Invariant], f.Steps, f.Violation)
	}
	if *reportTo != "" {
		must.Succeed(t, os.WriteFile(*reportTo, []byte(c.Report()), 0o644))
	}
}

// TestEtcdStandsStill: while no request of the controller is answered for more than two minutes, each gives up
// in time, and nothing is resized. With the next renewal of the agent the decision is carried out, once.
func TestEtcdStandsStill(t *testing.T) {
	hang := ""
	for n := range 20 {
		hang += fmt.Sprintf(" hang@%d", n+1)
	}
	text := "reconcile A n1\ndecide p1 900 0.000\nrenew n1\nshow A all\n" +
		strings.Repeat("reconcile A n1"+hang+"\nwait 6s\n", 12) +
		"renew n1\nshow A all\nreconcile A n1\nwait 6s\nreconcile A n1\n"
	result := schedule.Run(system(), text)
	for _, v := range result.Violations {
		t.Error(v)
	}
	var began, again time.Time
	looks, asked, hung, carried := 0, 0, 0, 0
	for i, n := range result.Requests {
		if asked += n; i > 0 && i <= 12 && n > 0 {
			hung++
		}
	}
	if hung < 6 {
		t.Errorf("%d of 12 looks sent a request, want most of them", hung)
	}
	for _, e := range result.Events {
		switch e.Kind {
		case history.Looked:
			if looks++; looks == 2 {
				began = e.At
			} else if looks == 14 {
				again = e.At
			}
		case history.Resized:
			if looks > 1 && looks < 14 {
				t.Errorf("resized at %v, in look %d", e.At, looks)
			} else if looks == 14 || looks == 15 {
				carried++
			}
		}
	}
	if carried != 1 {
		t.Errorf("%d resizes after that, want one", carried)
	}
	if stood := again.Sub(began); stood < 2*time.Minute || stood > 20*time.Minute {
		t.Errorf("%d requests, of which those of 12 looks were given up, took %v", asked, stood)
	}
}

// TestKnownSchedules plays the schedules that once broke an invariant.
func TestKnownSchedules(t *testing.T) {
	files, err := filepath.Glob("testdata/schedules/*.txt")
	must.Succeed(t, err)
	if *play != "" {
		files = []string{*play}
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must.Succeed(t, err)
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
