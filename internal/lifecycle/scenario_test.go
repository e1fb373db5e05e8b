package lifecycle

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/market"
)

var update = flag.Bool("update", false, "rewrite what the scenarios of testdata expect")

// TestScenarios plays the histories of testdata. A line that begins with a time after the start is
// an event; the indented lines below it are what follows: each resize, and each status. Run with
// -update to rewrite these.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			must.Succeed(t, err)
			got := play(t, string(want))
			if *update {
				err = os.WriteFile(file, []byte(got), 0o600)
			}
			if err != nil || got != string(want) && !*update {
				t.Errorf("%v; got:\n%s", err, got)
			}
		})
	}
}

// history is a pod with its node, agent and kubelet.
type history struct {
	pod       Pod
	node      Node
	now       time.Time
	constrain constraint
	declared  cpu.Milli
	kubelet   actuator.Progress // what becomes of the next resizes
	decidedAt time.Time         // of the last decision or confirmation
	renewedAt time.Time         // of the Lease; zero: at all times
}

// play returns the scenario with what follows each event.
func play(t *testing.T, text string) string {
	s := history{node: Node{Ready: true, ReadySince: noon.Add(-time.Hour)}, now: noon, declared: 500}
	s.pod = running("web", 500, 500, constraint{})
	s.pod.Recorded, s.pod.Status.Declared = true, app(500)
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		at, event, _ := strings.Cut(line, " ")
		after, err := time.ParseDuration(at)
		if err == nil {
			s.now = noon.Add(after)
			for event := range strings.SplitSeq(event, ",") {
				s.apply(t, strings.Fields(event))
			}
		}
		if err == nil || !strings.HasPrefix(line, "    ") {
			fmt.Fprintln(&out, line)
		}
		if err == nil {
			s.settle(&out)
		}
	}
	return out.String()
}

// apply takes an event in.
func (s *history) apply(t *testing.T, event []string) {
	t.Helper()
	arg := func(i int) string {
		if i >= len(event) {
			t.Fatalf("an argument is missing: %q", event)
		}
		return event[i]
	}
	limit := func(i int) (m cpu.Milli) {
		must.Succeed(t, m.UnmarshalText([]byte(arg(i))))
		return m
	}
	c := &s.pod.Containers[0]
	switch arg(0) {
	case "wait":
	case "decide": // LIMIT [at PRICE]
		s.pod.Decision, s.decidedAt = &Decision{Limits: app(limit(1)), Demand: 4000, Budget: 100}, s.now
		if len(event) > 2 {
			s.pod.Decision.Price = market.Price(1)
		}
	case "confirm":
		s.decidedAt = s.now
	case "external": // LIMIT
		c.Limit, c.InForce, c.Own, c.PossiblyOwn, c.ResizedByOther = limit(1), limit(1), false, false, s.now
	case "declared":
		s.declared = limit(1)
		s.pod.Declared, s.pod.Status.Declared, c.Limit, c.InForce = app(s.declared), app(s.declared), s.declared, s.declared
	case "unready":
		s.pod.Ready, s.pod.ReadySince, s.pod.UnreadySince = false, time.Time{}, s.now
	case "ready":
		s.pod.Ready, s.pod.ReadySince, s.pod.UnreadySince = true, s.now, time.Time{}
	case "bound": // BOOST: it has a node, and its containers have not started
		factor, err := strconv.ParseFloat(arg(1), 64)
		must.Succeed(t, err)
		s.pod.StartupBoost, s.pod.Ready, s.pod.UnreadySince, c.StartedAt, c.InForce = factor, false, s.now, time.Time{}, 0
		c.NotRunning = true
	case "starts":
		c.StartedAt, c.InForce, s.pod.Progress = s.now, c.Limit, actuator.Done
		c.NotRunning, c.FailedStart, c.FailedAt = false, false, time.Time{}
	case "ceiling": // LIMIT
		s.constrain.ceiling = limit(1)
	case "restart":
		c.Restarts++
		c.EndedAt, c.StartedAt, c.NotRunning = []time.Time{s.now}, s.now, false
	case "ends": // [for good]
		c.EndedAt, c.StartedAt, c.InForce, c.NotRunning, c.Completed = []time.Time{s.now}, time.Time{}, 0, true, len(event) > 1
		c.Restarts++
	case "cannotstart":
		c.StartedAt, c.InForce, c.NotRunning, c.FailedStart, s.pod.Progress = time.Time{}, 0, true, true, actuator.Done
		c.EndedAt, c.FailedAt = []time.Time{s.now}, s.now
	case "quota": // LIMIT: the agent finds that quota of the pod's own cgroup
		s.pod.Quota = Quota{CPU: limit(1), Wanted: c.Limit}
	case "forgotten": // by a controller that starts anew
		s.pod.Memory = Memory{}
	case "mode":
		s.pod.Mode = Mode(arg(1))
	case "latestwins":
		s.pod.LatestWins = true
	case "quotashort":
		s.pod.QuotaShort = true
	case "exclude":
		s.pod.Excluded.Reason = reasons.Reason(arg(1))
	case "floor":
		s.constrain.floor = limit(1)
	case "nodecrease":
		s.pod.NoDecrease = reasons.Reason(arg(1))
	case "agentstops":
		s.renewedAt = s.now
	case "kubelet":
		s.kubelet = map[string]actuator.Progress{"obeys": actuator.Done, "stalls": actuator.InProgress, "defers": actuator.Deferred, "refuses": actuator.Infeasible, "fails": actuator.Errored}[arg(1)]
		if s.kubelet == actuator.Done {
			c.InForce = c.Limit
		}
		if c.InForce == c.Limit {
			s.pod.Progress = actuator.Done
		}
	default:
		t.Fatalf("unknown event %q", event)
	}
}

// settle decides and carries out until nothing changes any more, and writes each change.
func (s *history) settle(out *strings.Builder) {
	s.node.LeaseAge = 0
	if !s.renewedAt.IsZero() {
		s.node.LeaseAge = s.now.Sub(s.renewedAt)
	}
	s.pod.QuotasReported = s.now.Add(-s.node.LeaseAge)
	for range 5 {
		bounds := running("web", s.pod.Containers[0].Limit, s.declared, s.constrain)
		c, b := &s.pod.Containers[0], bounds.Containers[0]
		c.Floor, c.NoDecreaseFloor, c.Ceiling = b.Floor, b.NoDecreaseFloor, b.Ceiling
		if s.pod.Decision != nil {
			s.pod.Decision.Age = s.now.Sub(s.decidedAt)
		}
		tasks := Decide(scenarioConfig(), s.node, []Pod{s.pod}, s.now)
		if len(tasks) == 0 {
			return
		}
		t := tasks[0]
		moved := t.Move != nil
		if moved {
			ch := t.Move.Changes[0]
			fmt.Fprintf(out, "    %s %v to %v\n", t.Purpose, ch.From, ch.To)
			t.Resized(scenarioConfig(), s.now, app(ch.From), app(ch.To), &s.pod.Memory)
			c.Limit, c.Own, c.PossiblyOwn, c.ResizedByOther, s.pod.Progress = ch.To, true, true, time.Time{}, s.kubelet
			s.pod.Quota = Quota{} // the agent found it at another generation
			if c.NotRunning {
				s.pod.Progress = actuator.Done
			}
			if s.kubelet == actuator.Done {
				c.InForce = ch.To
			} else if t.Purpose == Revert {
				s.pod.Progress = actuator.Done
			}
		}
		before := s.pod.Status
		s.pod.Status = t.Status
		if t.Record != nil {
			s.pod.Declared, s.declared = t.Record, t.Record.Total()
		}
		changed := before.Phase != t.Status.Phase || before.Reason != t.Status.Reason
		if changed && t.Status.Reason != reasons.ResizeInFlight || changed && s.pod.Progress != actuator.Done {
			fmt.Fprintf(out, "    %s %s\n", t.Status.Phase, t.Status.Reason)
		}
		if !moved && !changed {
			return
		}
	}
}

// scenarioConfig lowers at once, so that a scenario is about one thing.
func scenarioConfig() Config {
	c := DefaultConfig()
	c.Actuator.MaxDecreaseFactor, c.Actuator.DecreaseCooldown = 100, 0
	return c
}
