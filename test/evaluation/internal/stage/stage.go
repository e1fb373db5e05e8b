//go:build linux

// Package stage plays one cell of the evaluation on the local cluster: it puts the pods there, sends the
// requests, makes the batch jobs work, and measures.
//
// Promises:
//   - The arrivals in the measured time are the same for every policy: TestArrivals.
//   - Every policy that does not learn has the same warm-up, and pods of one that acts have the same least age at
//     the event: TestTimeline.
//   - A batch job's pod that comes late does what is left of its plans: TestPlans.
//   - Every write of a policy is counted, wherever it is: TestCount, and with the local cluster's audit policy in a
//     real API server TestWritesAreCounted.
package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/test/evaluation/internal/objects"
	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

// Stage is where cells are played.
type Stage struct {
	Client client.Client
	Pods   *Pods
	Node   string // where the pods run: this machine
	Kernel cgroup.Node
	Audit  string // path of the API server's audit log
	Plan   plan.Plan
	Setup  results.Setup
	// RequestMS is what a request of each kind of service costs, in ms of CPU.
	RequestMS map[string]float64
}

const (
	// Timeout is after how long a client gives up: no latency is measured beyond it.
	Timeout = 10 * time.Second
	// inFlight bounds the requests in progress at one service.
	inFlight = 4096
	// patience bounds each wait for the cluster.
	patience = 2 * time.Minute
)

// Play plays a cell, and removes its pods whatever happens.
func (s Stage) Play(ctx context.Context, c plan.Cell, out *results.Cell) (err error) {
	out.Setup = s.Setup
	out.Setup.RequestMS, out.Setup.Rates = s.RequestMS, map[string]float64{}
	for _, w := range c.Situation.Workloads {
		if !w.Batch() {
			out.Setup.Rates[w.Name] = rate(w.Load[len(w.Load)-1].Cores, s.RequestMS[w.Kind])
		}
	}
	if out.Machine, err = before(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.remove(context.WithoutCancel(ctx), c)) }()
	if err := s.open(ctx, c); err != nil {
		return err
	}
	log, err := audit.From(s.Audit)
	if err != nil {
		return err
	}
	ns, ready := objects.Namespace(c), time.Now()
	youngest := time.Time{}
	for _, p := range s.Pods.In(ns, "") {
		if p.Created.After(youngest) {
			youngest = p.Created
		}
	}
	run := &run{stage: s, cell: c, namespace: ns, time: newTimeline(c, time.Now().Add(time.Second), youngest)}
	if err := run.play(ctx, out); err != nil {
		return err
	}
	for _, p := range s.Pods.In(ns, "") {
		out.Control.Restarts += p.Restarts
	}
	out.Control.WritesS = time.Since(ready).Seconds()
	return log.Each(func(e audit.Event) { count(&out.Control, ns, e) })
}

// open creates the objects of a cell and waits until every workload is Ready.
func (s Stage) open(ctx context.Context, c plan.Cell) error {
	all := append([]client.Object{objects.Class(), objects.NewNamespace(c)}, objects.Workloads(c, s.Node)...)
	for _, o := range all {
		if err := s.Client.Create(ctx, o); err != nil && !(apierrors.IsAlreadyExists(err) && isClass(o)) {
			return fmt.Errorf("create %T %s: %w", o, client.ObjectKeyFromObject(o), err)
		}
	}
	return poll.Until(ctx, patience, func() string {
		var missing []string
		for _, w := range c.Situation.Workloads {
			if ready := s.Pods.Ready(objects.Namespace(c), w.Name); len(ready) == 0 || ready[0].ContainerID == "" {
				missing = append(missing, w.Name)
			}
		}
		if len(missing) == 0 {
			return ""
		}
		return fmt.Sprintf("%s: not Ready: %s", objects.Namespace(c), strings.Join(missing, ", ")) + s.why(ctx, c)
	})
}

func isClass(o client.Object) bool { return o.GetNamespace() == "" && o.GetName() == plan.Important }

// why is what the Deployments and pods say about themselves.
func (s Stage) why(ctx context.Context, c plan.Cell) (text string) {
	var pods corev1.PodList
	var deployments appsv1.DeploymentList
	in := client.InNamespace(objects.Namespace(c))
	if err := errors.Join(s.Client.List(ctx, &pods, in), s.Client.List(ctx, &deployments, in)); err != nil {
		return ""
	}
	for _, p := range pods.Items {
		for _, condition := range p.Status.Conditions {
			if condition.Status == corev1.ConditionFalse && condition.Message != "" {
				text += "; " + p.Name + ": " + condition.Message
			}
		}
		for _, x := range p.Status.ContainerStatuses {
			if w := x.State.Waiting; w != nil {
				text += fmt.Sprintf("; %s waits: %s %s", p.Name, w.Reason, w.Message)
			}
			if e := x.LastTerminationState.Terminated; e != nil {
				text += fmt.Sprintf("; %s ended with %d", p.Name, e.ExitCode)
			}
		}
	}
	return text
}

// remove deletes the namespace of a cell and waits until it and its pods are gone.
func (s Stage) remove(ctx context.Context, c plan.Cell) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ns := objects.NewNamespace(c)
	if err := client.IgnoreNotFound(s.Client.Delete(ctx, ns)); err != nil {
		return fmt.Errorf("delete namespace %s: %w", ns.GetName(), err)
	}
	return poll.Until(ctx, patience, func() string {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(ns), ns)
		if pods := s.Pods.In(ns.GetName(), ""); apierrors.IsNotFound(err) && len(pods) == 0 {
			return ""
		}
		return fmt.Sprintf("namespace %s is still there; look at: kubectl get all -n %[1]s", ns.GetName())
	})
}

// run is a cell while it is played.
type run struct {
	stage     Stage
	cell      plan.Cell
	namespace string
	time      timeline

	mu       sync.Mutex // guards what follows
	requests map[string][]traffic.Result
	jobs     map[string]*job // by UID of the pod
	failed   error
}

// play plays the cell to its end and fills in what was measured.
func (r *run) play(ctx context.Context, out *results.Cell) error {
	r.requests, r.jobs = map[string][]traffic.Result{}, map[string]*job{}
	playing, stop := context.WithCancel(ctx)
	defer stop()
	var services, others sync.WaitGroup
	for _, w := range r.cell.Situation.Workloads {
		if w.Batch() {
			others.Go(func() { r.assign(playing, w) })
			continue
		}
		send, done, err := r.sender(w)
		if err != nil {
			return err
		}
		defer done()
		services.Go(func() { r.serve(playing, w, send) })
	}
	if name := r.cell.Situation.Rollout; name != "" {
		others.Go(func() { r.rollOut(playing, name) })
	}
	sampled := r.sample(playing)
	poll.Sleep(ctx, time.Until(r.time.end()))
	out.Control.SystemM = sampled.system()
	replicas := map[string]int{}
	for _, w := range r.cell.Situation.Workloads {
		replicas[w.Name] = len(r.stage.Pods.Ready(r.namespace, w.Name))
	}
	services.Wait() // for the answers to the last requests
	batches, err := r.collect(ctx)
	series := sampled.end(&out.Machine)
	out.Pods = sampled.limits(r.time.event)
	stop()
	others.Wait()
	if err := errors.Join(ctx.Err(), err, r.failed); err != nil {
		return err
	}
	out.Series, out.Batches = series, batches
	return r.figures(out, replicas)
}

// figures are those of services, and the usage of all.
func (r *run) figures(out *results.Cell, replicas map[string]int) error {
	means, ok := results.Means(out.Series, r.time.event)
	if !ok {
		return errors.New("no second of the measured time was sampled")
	}
	for _, w := range r.cell.Situation.Workloads {
		mean := means[w.Name]
		if w.Batch() {
			i := slices.IndexFunc(out.Batches, func(b results.Batch) bool { return b.Name == w.Name })
			out.Batches[i].UsageM, out.Batches[i].IdleClass = mean.UsageM, mean.IdleClass
			continue
		}
		x, err := results.NewService(w.Name, r.requests[w.Name], r.time.event)
		if err != nil {
			return err
		}
		x.UsageM, x.ThrottledS, x.IdleClass, x.Replicas = mean.UsageM, mean.Throttled, mean.IdleClass, replicas[w.Name]
		out.Services = append(out.Services, x)
	}
	return nil
}
