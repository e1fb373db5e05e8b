//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/internal/machine"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

const quotaNamespace = "platform-quota"

// quotaFacts is what was measured beside the quota.
type quotaFacts struct {
	Samples   []quotaSample `json:"-"`
	Newcomers []arrival     `json:"newcomers"`
	// OverQuota is how often a quota refused somebody, by account; Resizes is how often limits were changed.
	OverQuota map[string]int `json:"over_quota"`
	Resizes   int            `json:"resizes"`
	Requests  int            `json:"requests"`
	Unserved  int            `json:"unserved"`
	P99       *float64       `json:"p99_ms"`
}

// quotaSample is one second, in thousandths of a core.
type quotaSample struct {
	At         time.Duration
	Used, Hard int64 // by the quota controller
	Newcomer   int64 // limit of the new pod that is there
	Busy, Idle int64 // limits of the pods that get much load in this turn, and of the others
	Machine    int64 // in use on the whole machine
}

// arrival is a new pod that just fits into what is to stay free.
type arrival struct {
	Second  float64  `json:"s"`
	Free    int64    `json:"free_m"`            // just before
	Refused string   `json:"refused,omitempty"` // why it was
	Ready   *float64 `json:"ready_after_s"`
	Again   *float64 `json:"tenth_free_again_after_s"`
}

// playQuota lets the load of twenty pods move about for ten minutes, with a new pod every minute.
func (s *show) playQuota(ctx context.Context) error {
	length := quotaFull
	if s.short {
		length = quotaTry
	}
	s.say("\n%d pods in a quota of %dm; load that moves every %v for %v, and a new pod of %dm every minute",
		quotaPods, quotaHard, turnFor, length, quotaHard-quotaMark)
	if err := s.openQuota(ctx); err != nil {
		return err
	}
	if !rest(ctx, time.Now().Add(grace)) {
		return ctx.Err()
	}
	offset, err := audit.Size(s.cluster.Log("audit"))
	if err != nil {
		return err
	}
	pods, err := s.pods(ctx, quotaNamespace)
	if err != nil {
		return err
	}
	rates := turns(s.seed, length)
	f := &quotaFacts{OverQuota: map[string]int{}}
	start := time.Now().Add(time.Second)
	playing, stop := context.WithCancel(ctx)
	defer stop()
	var all []traffic.Result
	var mu sync.Mutex
	var load, others sync.WaitGroup
	requests := traffic.NewClient(256)
	defer requests.CloseIdleConnections()
	for i, p := range pods {
		g := traffic.Generator{InFlight: 512, Timeout: patience, Send: traffic.Get(requests, address(&p, s.iterations))}
		load.Go(func() {
			g.Run(playing, start, arrivalsOf(s.seed, rates, i), func(r traffic.Result) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, r)
			})
		})
	}
	others.Go(func() { f.Samples = s.sampleQuota(playing, start, length, rates) })
	others.Go(func() { f.Newcomers = s.newcomers(playing, start, length) })
	load.Wait()
	rest(playing, start.Add(length))
	others.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.Requests, f.Unserved, f.P99 = tail(all, 0, length)
	s.facts.Quota = f
	err = audit.Each(s.cluster.Log("audit"), offset, func(e audit.Event) { f.count(e) })
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	return s.close(ctx, quotaNamespace)
}

// count counts what the API server was asked for.
func (f *quotaFacts) count(e audit.Event) {
	switch {
	case e.ObjectRef.Namespace != quotaNamespace || e.DryRun():
	case e.OverQuota():
		f.OverQuota[e.User.Username]++
	case e.Of("resize") && e.ResponseStatus.Code < 300 && e.User.Username == guard.Controller:
		f.Resizes++
	}
}

// openQuota starts the pods in their quota, and waits until it is counted and they are Ready.
func (s *show) openQuota(ctx context.Context) error {
	if err := s.open(ctx, quotaNamespace, "enforce"); err != nil {
		return err
	}
	for _, o := range []client.Object{quota(quotaNamespace), tenants(quotaNamespace, s.node)} {
		if err := s.client.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return poll.Until(ctx, 3*time.Minute, func() string {
		pods, err := s.pods(ctx, quotaNamespace)
		if err != nil {
			return err.Error()
		}
		n := 0
		for i := range pods {
			if ready(&pods[i]) {
				n++
			}
		}
		used, hard, err := s.used(ctx)
		if err != nil || n < quotaPods || used == 0 || hard == 0 {
			return fmt.Sprintf("%d of %d pods are Ready, %dm of %dm are used, %v", n, quotaPods, used, hard, err)
		}
		return ""
	})
}

// used is what the quota controller counts.
func (s *show) used(ctx context.Context) (used, hard int64, err error) {
	q := quota(quotaNamespace)
	if err := s.client.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
		return 0, 0, err
	}
	u, h := q.Status.Used[corev1.ResourceLimitsCPU], q.Status.Hard[corev1.ResourceLimitsCPU]
	return u.MilliValue(), h.MilliValue(), nil
}

// sampleQuota looks once a second.
func (s *show) sampleQuota(ctx context.Context, start time.Time, length time.Duration, rates [][]float64) (samples []quotaSample) {
	var meter machine.Meter
	for at := time.Second; at <= length && rest(ctx, start.Add(at)); at += time.Second {
		x := quotaSample{At: at}
		x.Machine, _, _ = meter.Next()
		var err error
		if x.Used, x.Hard, err = s.used(ctx); err != nil {
			continue // a second without a sample
		}
		pods, err := s.pods(ctx, quotaNamespace)
		if err != nil {
			continue
		}
		turn, i := rates[min(int(at/turnFor), len(rates)-1)], 0
		for _, p := range pods {
			switch {
			case p.Labels[app] != "tenant":
				x.Newcomer += limit(&p)
				continue
			case turn[i] > idleRate:
				x.Busy += limit(&p)
			default:
				x.Idle += limit(&p)
			}
			i = min(i+1, quotaPods-1)
		}
		samples = append(samples, x)
		if at%(10*time.Second) == 0 {
			s.say("  second %3.0f: %4dm of %dm used; busy pods %4dm, others %4dm, new pod %3dm", at.Seconds(), x.Used, x.Hard, x.Busy, x.Idle, x.Newcomer)
		}
	}
	return samples
}

// newcomers creates a pod every minute that just fits into what is to stay free, and takes it away again.
func (s *show) newcomers(ctx context.Context, start time.Time, length time.Duration) (all []arrival) {
	for at := newFirst; at+newStays <= length && rest(ctx, start.Add(at)); at += newEvery {
		used, hard, err := s.used(ctx)
		a := arrival{Second: time.Since(start).Seconds(), Free: hard - used}
		if err != nil {
			a.Refused = err.Error()
		}
		pod := newcomer(quotaNamespace, s.node, len(all))
		created := time.Now()
		if err := s.client.Create(ctx, pod); err != nil {
			a.Refused = err.Error()
			s.say("  a new pod was refused with %dm free: %v", a.Free, err)
		} else {
			s.followNewcomer(ctx, pod, created, start.Add(at+newStays), &a)
			if err := s.client.Delete(ctx, pod, client.GracePeriodSeconds(1)); client.IgnoreNotFound(err) != nil {
				s.say("  the new pod could not be deleted: %v", err)
			}
		}
		all = append(all, a)
	}
	return all
}

// followNewcomer says when the pod was Ready, and when the part of the quota that it took was free again.
func (s *show) followNewcomer(ctx context.Context, pod *corev1.Pod, created, until time.Time, a *arrival) {
	counted := false // the quota's status shows it
	for time.Now().Before(until) && rest(ctx, time.Now().Add(200*time.Millisecond)) {
		if a.Ready == nil && s.client.Get(ctx, client.ObjectKeyFromObject(pod), pod) == nil && ready(pod) {
			a.Ready = new(time.Since(created).Seconds())
		}
		used, hard, err := s.used(ctx)
		if err != nil {
			continue
		}
		counted = counted || used > hard*9/10
		if a.Again == nil && counted && used <= hard*9/10 {
			a.Again = new(time.Since(created).Seconds())
		}
	}
}

// patience is after how long a client gives up: no latency is measured beyond it.
const patience = 30 * time.Second

// address is where a request of so much work goes.
func address(p *corev1.Pod, iterations int) string {
	return "http://" + p.Status.PodIP + ":" + strconv.Itoa(port) + "/work?n=" + strconv.Itoa(iterations)
}

// tail is what became of the requests that were to be sent between two times.
func tail(all []traffic.Result, from, to time.Duration) (n, unserved int, p99 *float64) {
	var took []time.Duration
	for _, r := range all {
		if r.At < from || r.At >= to {
			continue
		}
		took = append(took, r.Latency)
		if r.Status != traffic.Served {
			unserved++
		}
	}
	return len(took), unserved, quantile(took, 0.99)
}

// quantile is in milliseconds; nil of nothing.
func quantile(took []time.Duration, q float64) *float64 {
	v, ok := traffic.Quantile(slices.Clone(took), q)
	if !ok {
		return nil
	}
	return new(float64(v) / float64(time.Millisecond))
}
