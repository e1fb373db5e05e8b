//go:build linux

package stage

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/evaluation/internal/objects"
	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

// The calibration sends requests at a low rate to a service without a limit; the first ones do not count.
const (
	calibrationRate   = 40
	calibrationWarm   = 4 * time.Second
	calibrationLength = 10 * time.Second
	calibrationLimit  = cpu.Milli(1000)
)

// Calibrate is the CPU time of a request of a kind of service on this machine, in ms.
func (s Stage) Calibrate(ctx context.Context, kind string) (ms float64, err error) {
	w := plan.Workload{Name: kind, Kind: kind, Request: 200, Limit: calibrationLimit}
	c := plan.Cell{
		Situation: plan.Situation{Name: "calibration-" + kind, Workloads: []plan.Workload{w}},
		Policy:    plan.Policy{Name: plan.None, NoLimits: true},
	}
	defer func() { err = errors.Join(err, s.remove(context.WithoutCancel(ctx), c)) }()
	if err := s.open(ctx, c); err != nil {
		return 0, err
	}
	r := &run{stage: s, cell: c, namespace: objects.Namespace(c)}
	send, done, err := r.sender(w)
	if err != nil {
		return 0, err
	}
	defer done()
	pod := s.Pods.Ready(r.namespace, kind)[0]
	files, err := s.Kernel.Find(pod.ContainerID)
	if err != nil {
		return 0, err
	}
	var served, failed atomic.Int64
	var last atomic.Pointer[error]
	g := traffic.Generator{InFlight: inFlight, Timeout: Timeout, Send: func(ctx context.Context) error {
		err := send(ctx)
		if err != nil {
			last.Store(&err)
		}
		return err
	}}
	play := func(length time.Duration, seed uint64) {
		arrivals := traffic.Arrivals(seed, []traffic.Segment{{For: length, Rate: calibrationRate}})
		g.Run(ctx, time.Now(), arrivals, func(x traffic.Result) {
			if x.Status == traffic.Served {
				served.Add(1)
			} else {
				failed.Add(1)
			}
		})
	}
	play(calibrationWarm, 1)
	first, err := files.Read()
	if err != nil {
		return 0, err
	}
	served.Store(0)
	play(calibrationLength, 2)
	end, err := files.Read()
	switch {
	case err != nil:
		return 0, err
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case failed.Load() > 0:
		return 0, fmt.Errorf("%s: %d requests failed, %d did not; the last one: %w",
			kind, failed.Load(), served.Load(), *last.Load())
	}
	return float64((end.Usage-first.Usage)/time.Duration(served.Load())) / float64(time.Millisecond), nil
}
