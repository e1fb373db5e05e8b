// Package player plays the synthetic load of a script: it sends the requests and makes the hogs
// spin, while the recorder samples.
package player

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/internal/traffic"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
	"github.com/mbcas/mbcas/test/measure/internal/workload"
)

// Player plays runs.
type Player struct {
	Recorder   *recorder.Recorder
	Seed       uint64
	Iterations int // of work in one request
	// Second gets the samples of every second; it must not block.
	Second func(run *recorder.Run, at time.Duration, now []recorder.Sample)
	// Beside, where it is set, runs beside the load from its start on.
	Beside func(ctx context.Context, run *recorder.Run)
	// StartPod starts the pod of a reaction, of which threads spin, and returns once it runs.
	StartPod func(ctx context.Context, i, threads int) (workload.Started, error)
}

const (
	// Timeout is after how long a client gives up: no latency is measured beyond it.
	Timeout = 30 * time.Second
	// inFlight bounds the requests in progress at one service: more than Timeout of them.
	inFlight = 2048
	// lead is the time to get ready before a run begins.
	lead = 500 * time.Millisecond
	// hogThreads is how many threads a hog spins: more than the node has cores.
	hogThreads = 4
)

// Play plays one run to its end.
func (p Player) Play(ctx context.Context, name string, plan script.Plan) (*recorder.Run, error) {
	run := &recorder.Run{Name: name, Plan: plan, Requests: map[string][]traffic.Result{}}
	if err := p.Stop(ctx); err != nil {
		return run, err
	}
	run.Start = time.Now().Add(lead)
	playing, stop := context.WithCancel(ctx)
	defer stop()

	var mu sync.Mutex // guards run.Requests, recent and failed
	recent := recorder.Latencies{}
	var failed error
	var load, others sync.WaitGroup
	for _, service := range plan.Services() {
		g := p.generator(service, 1)
		load.Go(func() {
			g.Run(playing, run.Start, plan.Arrivals(p.Seed, service), func(r traffic.Result) {
				mu.Lock()
				defer mu.Unlock()
				run.Requests[service] = append(run.Requests[service], r)
				recent[service] = append(recent[service], recorder.Ended{At: time.Since(run.Start), Latency: r.Latency})
			})
		})
	}
	for _, hog := range p.hogs() {
		load.Go(func() {
			if err := p.spins(playing, hog, run.Start, plan.Spans(hog)); err != nil && playing.Err() == nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
			}
		})
	}
	others.Go(func() {
		p.Recorder.Sample(playing, run, func(service string, at time.Duration) (p50, p99 float64) {
			mu.Lock()
			defer mu.Unlock()
			return recent.Window(service, at)
		}, func(at time.Duration, now []recorder.Sample) { p.Second(run, at, now) })
	})
	if p.Beside != nil {
		load.Go(func() { p.Beside(playing, run) })
	}
	load.Wait()
	poll.Sleep(playing, time.Until(run.Start.Add(plan.Length())))
	stop()
	others.Wait()
	return run, errors.Join(ctx.Err(), failed)
}

// hogs are the workloads that scripts can make spin.
func (p Player) hogs() (names []string) {
	for _, w := range p.Recorder.Script.Workloads {
		if w.Kind == script.Spin && w.Managed() {
			names = append(names, w.Name)
		}
	}
	return names
}

// spins makes a hog spin in its spans. Each span is announced after the end of the one before.
func (p Player) spins(ctx context.Context, hog string, start time.Time, spans [][2]time.Duration) error {
	for _, span := range spans {
		if err := p.Spin(ctx, hog, hogThreads, start.Add(span[0]), start.Add(span[1])); err != nil {
			return err
		}
		poll.Sleep(ctx, time.Until(start.Add(span[1])))
	}
	return nil
}

// Stop makes every hog stop.
func (p Player) Stop(ctx context.Context) (err error) {
	for _, hog := range p.hogs() {
		err = errors.Join(err, p.Spin(ctx, hog, 0, time.Time{}, time.Time{}))
	}
	return err
}

// Keep makes the first hog spin without end.
func (p Player) Keep(ctx context.Context) error {
	for _, hog := range p.hogs() {
		return p.Spin(ctx, hog, hogThreads, time.Now(), time.Time{})
	}
	return nil
}

// Spin gives a hog its times.
func (p Player) Spin(ctx context.Context, hog string, threads int, from, until time.Time) error {
	url, err := p.url(hog, 0, "/plan")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	client := traffic.NewClient(1)
	defer client.CloseIdleConnections()
	plan := map[string]any{"threads": threads, "from": from, "until": until}
	if err := traffic.Put(ctx, client, url, plan); err != nil {
		return fmt.Errorf("hog %s: %w; look at its log", hog, err)
	}
	return nil
}

// generator sends requests of the counted work to a service, each to any of its Ready pods.
func (p Player) generator(service string, stream uint64) traffic.Generator {
	client := traffic.NewClient(inFlight)
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(p.Seed, stream))
	return traffic.Generator{InFlight: inFlight, Timeout: Timeout, Send: func(ctx context.Context) error {
		mu.Lock()
		pick := rng.Int()
		mu.Unlock()
		url, err := p.url(service, pick, "/work?n="+strconv.Itoa(p.Iterations))
		if err == nil {
			_, err = traffic.Get(ctx, client, url)
		}
		return err
	}}
}

// url is a path at the address of one of the Ready pods of a workload, or of its only pod, Ready or
// not. The request passes no proxy and no Service.
func (p Player) url(app string, which int, path string) (string, error) {
	pods := p.Recorder.Pods(app)
	n := 0
	for n < len(pods) && pods[n].Ready { // Ready ones come first
		n++
	}
	if len(pods) == 0 || net.ParseIP(pods[0].IP) == nil {
		return "", fmt.Errorf("workload %s has no pod with an address", app)
	}
	return "http://" + net.JoinHostPort(pods[which%max(1, n)].IP, strconv.Itoa(workload.Port)) + path, nil
}
