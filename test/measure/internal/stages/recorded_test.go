package stages

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
	mbcasaudit "github.com/mbcas/mbcas/internal/audit"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/test/internal/audit"
)

const (
	search = "022917a7-c796-43e8-bf97-ee1e272b1765"
	newPod = "d66530b3-d747-4e8f-b736-3a3ff476fcfa"
)

// recorded is what the API server wrote around four steps of make reaction: Kubernetes 1.36.3, two
// cores. Fields that are not read are left out.
func recorded(t *testing.T) *Log {
	t.Helper()
	log := &Log{Interval: time.Second}
	events, err := audit.Whole(filepath.Join("testdata", "audit.log"))
	if err == nil {
		err = events.Each(log.Add)
	}
	must.Succeed(t, err)
	return log
}

// at is a time of the recorded day.
func at(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	must.Succeed(t, err)
	return at
}

// TestRecorded: the stages are those that were worked out by hand from the file.
func TestRecorded(t *testing.T) {
	log := recorded(t)
	for _, c := range []struct {
		name, uid, step string
		took            time.Duration
		want            []Span
	}{
		{"freed", search, "2026-11-23T23:59:03.203008Z", 1600613 * time.Microsecond, []Span{
			{"sampling", 0.456}, {"evidence", 1}, {"publish", 0.019}, {"watch and queue + decide", 0.015},
			{"resize", 0.014}, {"kubelet", 0.096},
		}},
		{"freed, raised by the first round", search, "2026-11-23T23:59:20.687244Z", 1088442 * time.Microsecond, []Span{
			{"sampling", 0.967}, {"evidence", 0}, {"publish", 0.027}, {"watch and queue + decide", 0.021},
			{"resize", 0.022}, {"kubelet", 0.051},
		}},
		{"other's decrease", search, "2026-11-24T00:01:45.774440Z", 3001319 * time.Microsecond, []Span{
			{"sampling", 0.877}, {"evidence", 2}, {"publish", 0.027}, {"watch and queue + decide", 0.037},
			{"resize", 0.032}, {"kubelet", 0.029},
		}},
		{"new pod", newPod, "2026-11-24T00:05:18.692402Z", 2070212 * time.Microsecond, []Span{
			{"sampling", 0.959}, {"evidence", 1}, {"publish", 0.010}, {"watch and queue + decide", 0.001},
			{"dry run", 0.012}, {"resize", 0.008}, {"kubelet", 0.080},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := int64(540)
			if c.uid == newPod {
				from = 300
			}
			step := at(t, c.step)
			got := Divide(log.Marks(Step{UID: c.uid, At: step, Kernel: step.Add(c.took), From: cpu.Milli(from)}))
			if diff := cmp.Diff(Split{Spans: c.want}, got, cmpopts.EquateApprox(0, 0.001)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNextStep: what raises the limit in the next step is not of a step without a reaction.
func TestNextStep(t *testing.T) {
	log := recorded(t)
	step := at(t, "2026-11-23T23:59:05.5Z") // after one reaction, 8 s before the next
	m := log.Marks(Step{UID: search, At: step, Patience: 6 * time.Second, From: 540})
	if diff := cmp.Diff(Marks{Step: step}, m); diff != "" {
		t.Error(diff)
	}
	m = log.Marks(Step{UID: search, At: step, Patience: 20 * time.Second, From: 540})
	if m.Observed.IsZero() || m.Answered.IsZero() {
		t.Errorf("the next reaction is not seen where it is waited for: %+v", m)
	}
}

// TestDecided: the controller's audit record of a resize, found by its pod and time, says when it
// decided.
func TestDecided(t *testing.T) {
	step, sent := at(t, "2026-11-23T23:59:03.203008Z"), at(t, "2026-11-23T23:59:04.692244Z")
	for name, c := range map[string]struct {
		pod        string
		start, end time.Duration // of the attempt, from the request
		told       bool
	}{
		"its record":        {search, -time.Millisecond, 20 * time.Millisecond, true},
		"of another pod":    {newPod, -time.Millisecond, 20 * time.Millisecond, false},
		"of another resize": {search, -2 * time.Second, -time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			ended := sent.Add(c.end)
			out := slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{
				ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey {
						a.Value = slog.TimeValue(ended)
					}
					return a
				},
			}))
			pod := &corev1.Pod{}
			pod.UID = types.UID(c.pod)
			mbcasaudit.Write(out, mbcasaudit.Attempt{Pod: pod, Latency: c.end - c.start, Waited: 2 * time.Millisecond})
			log := recorded(t)
			log.AddLines("no JSON\n{\"msg\":\"other\"}\n" + text.String())
			m := log.Marks(Step{UID: search, At: step, Kernel: step.Add(1600 * time.Millisecond), From: 540})
			want := time.Time{}
			if c.told {
				want = sent.Add(c.start - 2*time.Millisecond)
			}
			if !m.Decided.Round(time.Microsecond).Equal(want.Round(time.Microsecond)) {
				t.Errorf("decided at %v, want %v; sent at %v", m.Decided, want, m.Sent)
			}
		})
	}
}

// TestLooks: the first look after the step is known where all decisions near it lie on one grid.
func TestLooks(t *testing.T) {
	for name, c := range map[string]struct {
		others             []int // when other decisions were observed, in ms before the one that raises
		observed, interval int   // in ms; observed is after the step
		want               int   // in ms after the step; 0: not known
	}{
		"two rounds later":         {[]int{3000, 7004}, 2400, 1000, 400},
		"the first":                {[]int{3000}, 400, 1000, 400},
		"a look between rounds":    {[]int{3000, 4400}, 2400, 1000, 0},
		"nothing else published":   {nil, 400, 1000, 0},
		"of long ago":              {[]int{120_000}, 400, 1000, 0},
		"the interval is unknown":  {[]int{3000}, 400, 0, 0},
		"rounds two seconds apart": {[]int{4000}, 2400, 2000, 400},
	} {
		t.Run(name, func(t *testing.T) {
			raised := after(c.observed)
			log := &Log{Interval: time.Duration(c.interval) * time.Millisecond}
			log.writes = append(log.writes, write{uid: "a", limit: 800, observed: raised, ended: raised})
			for _, before := range c.others {
				log.writes = append(log.writes, write{uid: "b", observed: after(c.observed - before)})
			}
			m := log.Marks(Step{UID: "a", At: start, Patience: time.Minute, From: 500})
			if !m.Look.Equal(after(c.want)) {
				t.Errorf("first look at %v, want %d ms after %v", m.Look, c.want, start)
			}
		})
	}
}
