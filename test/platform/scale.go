//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/machine"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

const scaleNamespace = "platform-hpa"

// scaleRun is the service under its HPA, once.
type scaleRun struct {
	Phases   []phase
	Samples  []scaleSample
	Requests []traffic.Result
}

// scaleSample is one second.
type scaleSample struct {
	At             time.Duration
	Desired, Ready int
	Limits, Use    int64 // of all replicas, in thousandths of a core; limits by the kernel
	Machine        int64 // in use on the whole machine
	P99            float64
}

// window is how far back the latency of a sample looks.
const window = 5 * time.Second

// playScale plays the same load against the same service twice.
func (s *show) playScale(ctx context.Context) error {
	s.facts.Scale = map[string]*scaleRun{}
	for _, r := range []struct{ name, mode string }{{static, "off"}, {mbcas, "enforce"}} {
		list := phases(s.short)
		s.say("\nservice under an HPA, %s: %v of requests, the same ones in both runs", r.name, total(list))
		run, err := s.scale(ctx, r.name, r.mode, list)
		if err != nil {
			return fmt.Errorf("run %s: %w", r.name, err)
		}
		s.facts.Scale[r.name] = run
	}
	return nil
}

// scale plays one run with pods of its own.
func (s *show) scale(ctx context.Context, name, mode string, list []phase) (*scaleRun, error) {
	if err := s.openScale(ctx, mode); err != nil {
		return nil, err
	}
	replicas := &replicas{rng: rand.New(rand.NewPCG(s.seed, 0x7363616c65)), client: traffic.NewClient(1024), iterations: s.iterations}
	defer replicas.client.CloseIdleConnections()
	if err := s.follow(ctx, replicas); err != nil {
		return nil, err
	}
	run := &scaleRun{Phases: list}
	start := time.Now().Add(time.Second)
	playing, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var ended []timed
	var load, others sync.WaitGroup
	g := traffic.Generator{InFlight: 2048, Timeout: patience, Send: replicas.send}
	load.Go(func() {
		g.Run(playing, start, traffic.Arrivals(s.seed, segments(list)), func(r traffic.Result) {
			mu.Lock()
			defer mu.Unlock()
			run.Requests, ended = append(run.Requests, r), append(ended, timed{time.Since(start), r.Latency})
		})
	})
	others.Go(func() {
		for rest(playing, time.Now().Add(250*time.Millisecond)) {
			_ = s.follow(playing, replicas) // it is tried again soon
		}
	})
	others.Go(func() {
		run.Samples = s.sampleScale(playing, name, start, list, replicas, func(now time.Duration) float64 {
			mu.Lock()
			defer mu.Unlock()
			return recent(&ended, now)
		})
	})
	load.Wait()
	rest(playing, start.Add(total(list)+time.Second))
	stop()
	others.Wait()
	return run, errors.Join(ctx.Err(), s.close(context.WithoutCancel(ctx), scaleNamespace))
}

// openScale starts the service, and waits until its HPA sees what it uses.
func (s *show) openScale(ctx context.Context, mode string) error {
	if err := s.open(ctx, scaleNamespace, mode); err != nil {
		return err
	}
	for _, o := range []client.Object{web(scaleNamespace, s.node, s.limit), scaler(scaleNamespace)} {
		if err := s.client.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return poll.Until(ctx, 3*time.Minute, func() string {
		hpa, err := s.hpa(ctx)
		if err != nil {
			return err.Error()
		}
		for _, c := range hpa.Status.Conditions {
			if c.Type == autoscalingv2.ScalingActive && c.Status == corev1.ConditionTrue {
				return ""
			}
		}
		return fmt.Sprintf("the HPA does not see the service's CPU: %+v", hpa.Status.Conditions)
	})
}

func (s *show) hpa(ctx context.Context) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	hpa := scaler(scaleNamespace)
	err := s.client.Get(ctx, client.ObjectKeyFromObject(hpa), hpa)
	return hpa, err
}

// replicas are the Ready pods of the service. It sends each request to any of them, as a Service does for connections that are not kept.
type replicas struct {
	client     *http.Client
	iterations int

	mu   sync.Mutex
	rng  *rand.Rand
	pods []corev1.Pod
}

func (r *replicas) send(ctx context.Context) error {
	r.mu.Lock()
	pod := r.pods[r.rng.IntN(len(r.pods))]
	r.mu.Unlock()
	return traffic.Get(r.client, address(&pod, r.iterations))(ctx)
}

func (r *replicas) now() []corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods
}

// follow finds the replicas that are Ready now.
func (s *show) follow(ctx context.Context, r *replicas) error {
	pods, err := s.pods(ctx, scaleNamespace)
	if err != nil {
		return err
	}
	var now []corev1.Pod
	for i := range pods {
		if ready(&pods[i]) {
			now = append(now, pods[i])
		}
	}
	if len(now) == 0 {
		return errors.New("no replica is Ready")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods = now
	return nil
}

// timed is when a request ended, and how long it took.
type timed struct{ at, latency time.Duration }

// recent is the p99 of the requests that ended in the last window, in milliseconds; older ones are dropped. 0: none ended.
func recent(all *[]timed, now time.Duration) float64 {
	for len(*all) > 0 && (*all)[0].at < now-window {
		*all = (*all)[1:]
	}
	took := make([]time.Duration, len(*all))
	for i, e := range *all {
		took[i] = e.latency
	}
	if p := quantile(took, 0.99); p != nil {
		return *p
	}
	return 0
}

// sampleScale looks once a second until the last phase ends.
func (s *show) sampleScale(ctx context.Context, name string, start time.Time, list []phase, r *replicas, p99 func(time.Duration) float64) (samples []scaleSample) {
	last := map[string]cgroup.Reading{} // by container
	var meter machine.Meter
	for at := time.Second; at <= total(list) && rest(ctx, start.Add(at)); at += time.Second {
		pods := r.now()
		x := scaleSample{At: at, Ready: len(pods), P99: p99(at)}
		x.Machine, _, _ = meter.Next()
		if hpa, err := s.hpa(ctx); err == nil {
			x.Desired = int(hpa.Status.DesiredReplicas)
		} else if n := len(samples); n > 0 {
			x.Desired = samples[n-1].Desired // the API server did not answer in this second
		}
		for i := range pods {
			limit, use := s.kernelOf(&pods[i], last)
			x.Limits, x.Use = x.Limits+limit, x.Use+use
		}
		samples = append(samples, x)
		if at%(10*time.Second) == 0 {
			s.say("  %s, second %3.0f of %.0f: %2d replicas, %2d wanted; limits %5dm, use %4dm, p99 %5.0f ms", name, at.Seconds(), total(list).Seconds(), x.Ready, x.Desired, x.Limits, x.Use, x.P99)
		}
	}
	return samples
}

// kernelOf is the limit and the use of a pod since the last call, in thousandths of a core; 0 for what cannot be read.
func (s *show) kernelOf(p *corev1.Pod, last map[string]cgroup.Reading) (limit, use int64) {
	if len(p.Status.ContainerStatuses) == 0 {
		return 0, 0
	}
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	files, err := s.kernel.Find(id)
	if err != nil {
		return 0, 0
	}
	now, err := files.Read()
	if err != nil {
		return 0, 0
	}
	before, known := last[id]
	last[id] = now
	if known && now.At.After(before.At) {
		use = int64((now.Usage - before.Usage).Seconds() / now.At.Sub(before.At).Seconds() * 1000)
	}
	return now.Quota, use
}
