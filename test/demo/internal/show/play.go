//go:build linux

// Package show plays scripts on the stage and records what happens: it sends the requests, tells the hogs
// when to spin, and reads the kernel's counters once a second.
package show

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/mbcas/mbcas/test/demo/internal/ledger"
	"github.com/mbcas/mbcas/test/demo/internal/record"
	"github.com/mbcas/mbcas/test/demo/internal/script"
	"github.com/mbcas/mbcas/test/demo/internal/shop"
	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

// Show plays.
type Show struct {
	Ledger     *ledger.Ledger
	Node       cgroup.Node
	Seed       uint64
	Iterations int // of work in one request
	// Watch is told of every second; it must not block.
	Watch func(Moment)
}

// Moment is one second of a run.
type Moment struct {
	Run     string
	Phase   script.Timed
	At, End time.Duration
	Samples []record.Sample
}

const (
	// Timeout is after how long a client gives up: no latency is measured beyond it.
	Timeout = 30 * time.Second
	// inFlight bounds the requests on their way to one service: more than Timeout of them.
	inFlight = 2048
	// lead is the time to get ready before a script begins.
	lead = 500 * time.Millisecond
)

// Play plays one script to its end.
func (s Show) Play(ctx context.Context, name string, play script.Script) (record.Run, error) {
	run := record.Run{Name: name, Script: play, Requests: map[string][]traffic.Result{}}
	if err := s.idle(ctx); err != nil {
		return run, err
	}
	start := time.Now().Add(lead)
	for _, hog := range []string{script.Hog, script.HogTold} {
		for _, span := range play.Spans(hog) {
			if err := s.Spin(ctx, hog, script.HogThreads, start.Add(span[0]), start.Add(span[1])); err != nil {
				return run, err
			}
		}
	}
	playing, stop := context.WithCancel(ctx)
	defer stop()

	var mu sync.Mutex // guards run.Requests and recent
	recent := map[string][]ended{}
	var services, sampler sync.WaitGroup
	for _, service := range script.Services {
		arrivals := play.Arrivals(s.Seed, service)
		if len(arrivals) == 0 {
			continue
		}
		g, err := s.generator(service)
		if err != nil {
			return run, err
		}
		services.Go(func() {
			g.Run(playing, start, arrivals, func(r traffic.Result) {
				mu.Lock()
				defer mu.Unlock()
				run.Requests[service] = append(run.Requests[service], r)
				recent[service] = append(recent[service], ended{time.Since(start), r.Latency})
			})
		})
	}
	sampler.Go(func() {
		run.Samples, run.Node = s.sample(playing, name, play, start, func(service string, at time.Duration) (p50, p99 float64) {
			mu.Lock()
			defer mu.Unlock()
			return window(recent, service, at)
		})
	})
	services.Wait()
	wait(playing, time.Until(start.Add(play.Length())))
	stop()
	sampler.Wait()
	run.Changes = s.Ledger.Changes(start, start.Add(play.Length()))
	return run, ctx.Err()
}

// ended is when a request ended and how long it took.
type ended struct {
	at, latency time.Duration
}

// window is the latency of the requests that ended in the last record.Window; older ones are dropped.
func window(recent map[string][]ended, service string, now time.Duration) (p50, p99 float64) {
	all := recent[service]
	for len(all) > 0 && all[0].at < now-record.Window {
		all = all[1:]
	}
	recent[service] = all
	latencies := make([]time.Duration, len(all))
	for i, e := range all {
		latencies[i] = e.latency
	}
	m, _ := traffic.Quantile(latencies, 0.5)
	tail, _ := traffic.Quantile(latencies, 0.99)
	return record.Milliseconds(m), record.Milliseconds(tail)
}

// idle makes sure that nothing of an earlier run still spins.
func (s Show) idle(ctx context.Context) error {
	for _, hog := range []string{script.Hog, script.HogTold} {
		if err := s.Spin(ctx, hog, 0, time.Time{}, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// Spin tells a hog when to spin.
func (s Show) Spin(ctx context.Context, hog string, threads int, from, until time.Time) error {
	url, err := s.url(hog, "/plan")
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"threads": threads, "from": from, "until": until})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	client := traffic.NewClient(1)
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("hog %s: %w; look at its log", hog, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("hog %s: PUT %s: %s", hog, url, resp.Status)
	}
	return nil
}

// generator sends requests of the counted work to a service.
func (s Show) generator(service string) (traffic.Generator, error) {
	url, err := s.url(service, "/work?n="+strconv.Itoa(s.Iterations))
	return traffic.Generator{Send: traffic.Get(traffic.NewClient(inFlight), url), InFlight: inFlight, Timeout: Timeout}, err
}

// url is a path on a pod's own address: no proxy, no Service, nothing but our bridge between.
func (s Show) url(app, path string) (string, error) {
	p, err := s.Ledger.Pod(app)
	if err != nil {
		return "", err
	}
	if net.ParseIP(p.IP) == nil {
		return "", fmt.Errorf("pod %s has no address", p.Name)
	}
	return "http://" + net.JoinHostPort(p.IP, strconv.Itoa(shop.Port)) + path, nil
}

// wait waits for d, or less if ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
