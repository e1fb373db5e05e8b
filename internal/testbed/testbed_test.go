//go:build linux

package testbed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sim"
	"github.com/mbcas/mbcas/internal/sim/load"
)

// TestMain lets the test binary be the process of the bed.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type still struct{}

func (still) Turn(r *sim.Reading) ([]sim.Action, time.Duration) { return nil, r.Now + time.Hour }

func bed(t *testing.T) Bed {
	t.Helper()
	if err := Able(); err != nil {
		t.Skip(err)
	}
	return Bed{Self: []string{os.Args[0], "serve"}}
}

// duel is a service at 60 requests of 10 ms per second beside a hog of four threads, on two cores.
func duel(service, hog, serviceLimit, hogLimit cpu.Milli, threads float64, length time.Duration) sim.Setup {
	return sim.Setup{Machine: sim.Machine{Cores: 2}, Length: length, Warm: 2 * time.Second, Seed: 1, Pods: []sim.Spec{
		{Name: "service", Request: service, Limit: serviceLimit, Threads: 8, Requests: load.Requests{Rate: load.Constant(60), Service: 10 * time.Millisecond}},
		{Name: "hog", Request: hog, Limit: hogLimit, Spin: load.Constant(threads)},
	}}
}

func left(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, dir := range []string{"", "cpu", "cpuacct", "cpu,cpuacct", "unified"} {
		paths, err := filepath.Glob(filepath.Join(root, dir, prefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, paths...)
	}
	return found
}

func TestTable(t *testing.T) {
	if os.Getenv("MBCAS_TABLE") == "" {
		t.Skip("set MBCAS_TABLE")
	}
	b := bed(t)
	for _, c := range []struct {
		sreq, hreq, slim, hlim cpu.Milli
		threads                float64
	}{
		{500, 500, 0, 0, 0}, {500, 500, 0, 0, 4}, {500, 500, 0, 1200, 4}, {500, 500, 0, 1000, 4}, {500, 500, 0, 800, 4}, {500, 500, 0, 600, 4}, {500, 500, 0, 200, 4},
		{125, 1000, 0, 1200, 4}, {125, 1000, 0, 1000, 4}, {125, 1000, 0, 800, 4}, {125, 1000, 0, 600, 4}, {125, 1000, 0, 200, 4}, {125, 1000, 0, 0, 4}, {500, 500, 700, 0, 4},
	} {
		s := duel(c.sreq, c.hreq, c.slim, c.hlim, c.threads, 14*time.Second)
		real, err := b.Run(t.Context(), s, still{})
		if err != nil {
			t.Fatal(err)
		}
		model := sim.Run(s, still{})
		show := func(r *sim.Result) string {
			p, h := r.Pod("service"), r.Pod("hog")
			return strings.Join([]string{
				p.Latency.Quantile(.5).String(), p.Latency.Quantile(.99).String(), p.Usage.Round(time.Millisecond).String(), h.Usage.Round(time.Millisecond).String(),
			}, " ")
		}
		t.Logf("service %v/%v hog %v/%v: real %s | sim %s | others %.3f stolen %.3f thr real %d/%d %v sim %d/%d %v", c.sreq, c.slim, c.hreq, c.hlim, show(&real.Result), show(&model), real.Others, real.Stolen,
			real.Pod("hog").Throttled, real.Pod("hog").Periods, real.Pod("hog").ThrottledTime, model.Pod("hog").Throttled, model.Pod("hog").Periods, model.Pod("hog").ThrottledTime)
	}
	if l := left(t); len(l) > 0 {
		t.Errorf("left behind: %v", l)
	}
}
