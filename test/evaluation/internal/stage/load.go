//go:build linux

package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/test/evaluation/internal/client"
	"github.com/mbcas/mbcas/test/evaluation/internal/objects"
	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

// sender sends requests to a service, each to one of its Ready pods, with its seed's choices.
func (r *run) sender(w plan.Workload) (send func(context.Context) error, done func(), err error) {
	request, done, err := client.New(w.Kind)
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	number := numbers(r.stage.Plan.SeedOf(r.cell, w.Name))
	return func(ctx context.Context) error {
		mu.Lock()
		choice := number()
		mu.Unlock()
		pods := r.stage.Pods.Ready(r.namespace, w.Name)
		if len(pods) == 0 {
			return fmt.Errorf("service %s has no Ready pod", w.Name)
		}
		return request(ctx, pods[choice%len(pods)].IP, choice)
	}, done, nil
}

// serve sends a service's requests, and keeps the results of the measured time.
func (r *run) serve(ctx context.Context, w plan.Workload, send func(context.Context) error) {
	arrivals := r.time.arrivals(w, r.stage.Plan.SeedOf(r.cell, w.Name), r.stage.RequestMS[w.Kind])
	g := traffic.Generator{Send: send, InFlight: inFlight, Timeout: Timeout}
	g.Run(ctx, r.time.begin, arrivals, func(x traffic.Result) {
		if x.At -= r.time.offset(); x.At < 0 {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests[w.Name] = append(r.requests[w.Name], x)
	})
}

// job is a pod of a batch job.
type job struct {
	app, ip string
}

// control is the client of the workloads' own port.
var control = traffic.NewClient(8)

func controlURL(ip, path string) string {
	return "http://" + net.JoinHostPort(ip, strconv.Itoa(client.ControlPort)) + path
}

// rollOut starts a rolling update of a service at the event.
func (r *run) rollOut(ctx context.Context, name string) {
	if !poll.Sleep(ctx, time.Until(r.time.eventAt())) {
		return
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}}
	patch := ctrl.RawPatch(types.StrategicMergePatchType, objects.Restart(time.Now()))
	if err := r.stage.Client.Patch(ctx, d, patch); err != nil && ctx.Err() == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.failed = errors.Join(r.failed, fmt.Errorf("rolling update of %s/%s: %w", r.namespace, name, err))
	}
}

// assign gives every pod of a batch job its plans, also one that comes later.
func (r *run) assign(ctx context.Context, w plan.Workload) {
	for ctx.Err() == nil {
		for _, p := range r.stage.Pods.Ready(r.namespace, w.Name) {
			r.mu.Lock()
			_, known := r.jobs[p.UID]
			r.mu.Unlock()
			if known {
				continue
			}
			if err := r.give(ctx, p, w.Threads); err != nil {
				if !r.stage.Pods.has(p.UID) {
					continue // it was evicted
				}
				r.mu.Lock()
				if ctx.Err() == nil {
					r.failed = errors.Join(r.failed, fmt.Errorf("batch job %s: %w", w.Name, err))
				}
				r.mu.Unlock()
				return
			}
			r.mu.Lock()
			r.jobs[p.UID] = &job{app: w.Name, ip: p.IP}
			r.mu.Unlock()
		}
		poll.Sleep(ctx, 200*time.Millisecond)
	}
}

// give gives a pod the plans that have not ended.
func (r *run) give(ctx context.Context, p Pod, threads int) error {
	for _, x := range left(r.time.plans(threads), time.Now()) {
		one, cancel := context.WithTimeout(ctx, Timeout)
		err := traffic.Put(one, control, controlURL(p.IP, "/plan"), x)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// left are the plans that have not ended.
func left(plans []client.Plan, now time.Time) (all []client.Plan) {
	for _, p := range plans {
		if now.Before(p.Until) {
			all = append(all, p)
		}
	}
	return all
}

// collect asks every pod of a batch job that is still there what it has done. The work of a pod that was
// evicted is lost, as that of a job without checkpoints is.
func (r *run) collect(ctx context.Context) (all []results.Batch, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.cell.Situation.Workloads {
		if !w.Batch() {
			continue
		}
		b := results.Batch{Name: w.Name}
		for _, p := range r.stage.Pods.In(r.namespace, w.Name) {
			if r.jobs[p.UID] == nil {
				continue
			}
			done, err := r.ask(ctx, p)
			if err != nil {
				return nil, fmt.Errorf("batch job %s: %w", w.Name, err)
			}
			b.Units += done.Units
		}
		b.PerS = float64(b.Units) / (r.time.length - r.time.event).Seconds()
		all = append(all, b)
	}
	return all, nil
}

// ask asks a pod what it has done of its last plan, once that has ended. That of a pod that is gone meanwhile is lost.
func (r *run) ask(ctx context.Context, p Pod) (done client.Done, err error) {
	err = poll.Until(ctx, patience, func() string {
		if !r.stage.Pods.has(p.UID) {
			done = client.Done{}
			return ""
		}
		one, cancel := context.WithTimeout(ctx, Timeout)
		defer cancel()
		text, err := traffic.Get(one, control, controlURL(p.IP, "/done"))
		if err == nil {
			err = json.Unmarshal([]byte(text), &done)
		}
		switch {
		case err != nil:
			return err.Error()
		case done.Error == "" && (!done.Ended || !done.From.Equal(r.time.eventAt())):
			return fmt.Sprintf("its plan has not ended: %+v", done)
		}
		return ""
	})
	if err == nil && done.Error != "" {
		err = errors.New(done.Error)
	}
	return done, err
}
