package live

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// setup is a service beside a batch pod on two cores. The service is idle from 30 s to 60 s.
func setup() sim.Setup {
	return sim.Setup{
		Machine: sim.Machine{Cores: 2}, Length: 80 * time.Second, WarmUp: 20 * time.Second, Seed: 1,
		Pods: []sim.PodSpec{
			{Name: "service", Request: 500, Limit: 1000, Requests: load.Requests{
				Rate:        load.Burst{Low: 60, High: 0, Start: 30 * time.Second, Length: 30 * time.Second},
				ServiceTime: 10 * time.Millisecond,
			}},
			{Name: "batch", Request: 500, Limit: 2000, Start: 5 * time.Second, Spin: load.Constant(4)},
		},
	}
}

func policy() sim.Policy { return mbcas.New(mbcas.DefaultConfig()) }

func points(t *testing.T) (all []Point, r sim.Result) {
	t.Helper()
	r, err := Run(t.Context(), setup(), policy(), func(p Point) error {
		p.Pods = append([]Pod(nil), p.Pods...)
		all = append(all, p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, r
}

func TestReportsChangeNothing(t *testing.T) {
	if _, r := points(t); !reflect.DeepEqual(r, sim.Run(setup(), policy())) {
		t.Error("a reported run ends differently")
	}
}

func TestPointsAreTheSeries(t *testing.T) {
	all, r := points(t)
	if len(all) != 80 || len(all[0].Pods) != 1 {
		t.Fatalf("%d points, the first with %d pods: want 80, and one", len(all), len(all[0].Pods))
	}
	batch := r.Pod("batch")
	for k, p := range all {
		if p.Time != time.Duration(k+1)*time.Second || p.Price != r.Price[k] || p.Idle != r.Idle[k] {
			t.Errorf("point %d: %+v", k, p)
		}
		if len(p.Pods) < 2 {
			continue
		}
		if got, want := p.Pods[1], batch.Points[k]; got.Name != "batch" || got.Limit != want.Limit || got.Usage != want.Usage {
			t.Errorf("point %d: %+v, want %+v", k, got, want)
		}
	}
}

func TestTailIsOfTheWindow(t *testing.T) {
	all, _ := points(t)
	for at, want := range map[int][2]uint64{ // requests in the last 10 s, least and most
		15: {500, 700}, 29: {500, 700}, 35: {200, 400}, 42: {0, 0}, 59: {0, 0}, 65: {200, 400},
	} {
		service := all[at-1].Pods[0]
		if service.Served < want[0] || service.Served > want[1] || (service.P99 > 0) != (want[1] > 0) {
			t.Errorf("at %d s: %d requests in the window with a p99 of %v, want %d to %d", at, service.Served, service.P99, want[0], want[1])
		}
	}
}

func TestRunStops(t *testing.T) {
	stop := errors.New("stop")
	if _, err := Run(t.Context(), setup(), policy(), func(Point) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of the report ends the run with %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Run(ctx, setup(), policy(), func(Point) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled run ends with %v", err)
	}
}
