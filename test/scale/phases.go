package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/fakekubelet"
)

// world is the simulated cluster with MBCAS.
type world struct {
	options
	log      *slog.Logger
	progress *progress
	report   *report
	dir      string // for files that go with the program

	api      *apiserver.Server
	core     kubernetes.Interface
	kubelets *fakekubelet.Kubelets
	loads    *loads
	agents   *agents
	process  *controllerProcess
	watcher  *watcher
}

// measure sets the cluster up, runs the phases, and takes everything down again.
func (w *world) measure(ctx context.Context, assets string) (err error) {
	if w.dir, err = os.MkdirTemp("", "mbcas-scale-"); err != nil {
		return err
	}
	defer os.RemoveAll(w.dir)
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer func() {
		stop()
		running.Wait()
		if w.agents != nil {
			w.agents.running.Wait()
		}
		if w.process != nil {
			w.process.stop()
		}
		if w.api != nil {
			err = errors.Join(err, w.api.Close())
		}
	}()
	if err := w.start(ctx, assets, &running); err != nil {
		return err
	}
	return w.phases(ctx)
}

// start brings up everything that runs during the phases.
func (w *world) start(ctx context.Context, assets string, running *sync.WaitGroup) (err error) {
	w.progress.say("API server and etcd start")
	if w.api, err = openCluster(ctx, assets); err != nil {
		return err
	}
	admin := rest.CopyConfig(w.api.Config)
	admin.QPS, admin.ContentType = -1, "application/vnd.kubernetes.protobuf"
	admin.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if w.core, err = kubernetes.NewForConfig(admin); err != nil {
		return err
	}
	for i := range w.namespaces() {
		ns := &corev1.Namespace{}
		ns.Name = namespaceName(i)
		if err := w.api.Client.Create(ctx, ns); err != nil {
			return fmt.Errorf("create namespace %s: %w", ns.Name, err)
		}
	}
	w.progress.say("%d nodes and %d pods in %d namespaces are written to etcd", w.nodes, w.pods, w.namespaces())
	if err := w.seedCluster(ctx, newStore(w.api.Etcd())); err != nil {
		return err
	}
	w.watcher = newWatcher()
	w.loads = &loads{kind: w.kindOf}
	w.kubelets = fakekubelet.New(fakekubelet.Config{
		Client: w.core, Workers: 16, Changed: w.changed,
		Start:  fakekubelet.Delay{Min: 500 * time.Millisecond, Max: 2 * time.Second},
		Resize: fakekubelet.Delay{Min: 100 * time.Millisecond, Max: time.Second},
	})
	w.loads.kubelets = w.kubelets
	running.Go(func() { w.kubelets.Run(ctx) })
	err = w.await(ctx, "the kubelets see all pods", 2*time.Minute, func() bool {
		return w.kubelets.Synced() && len(w.kubelets.Pods()) >= w.pods
	})
	if err != nil {
		return err
	}
	w.progress.say("controller starts: %s", strings.Join(w.args, " "))
	if w.process, err = w.startController(ctx); err != nil {
		return err
	}
	within := time.Duration(w.nodes) * w.pace
	w.progress.say("%d agents start within %v", w.nodes, within)
	w.agents, err = w.startAgents(ctx, within)
	return err
}

// kindOf is the part that a pod plays: contended nodes have three pods that saturate.
func (w *world) kindOf(pod *corev1.Pod) loadKind {
	rng := drawn(pod.Spec.NodeName)
	if rng.Float64() < w.contended {
		if drawn(pod.Name).Float64() < 3*float64(w.nodes)/float64(w.pods) {
			return saturating
		}
		return calm
	}
	if drawn(pod.Namespace+pod.Name).Float64() < w.throttled {
		return throttled
	}
	return calm
}

// changed takes in what the kubelets see.
func (w *world) changed(before, after *corev1.Pod) {
	switch {
	case after == nil:
		w.loads.drop(before)
	case before == nil:
		w.loads.add(after)
	}
	w.watcher.see(before, after, time.Now())
}

// await waits until something is so, and says so.
func (w *world) await(ctx context.Context, what string, within time.Duration, is func() bool) error {
	start := time.Now()
	for !is() {
		if time.Since(start) > within {
			return fmt.Errorf("after %v it is not true that %s", within, what)
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("ended before %s", what)
		}
	}
	w.progress.say("%s (after %.1f s)", what, time.Since(start).Seconds())
	return nil
}

// phases measures the phases in turn.
func (w *world) phases(ctx context.Context) error {
	if err := w.quiet(ctx); err != nil {
		return err
	}
	for _, p := range []struct {
		name string
		run  func(context.Context, *row) error
	}{
		{"recommend", func(ctx context.Context, _ *row) error { return w.steady(ctx, false) }},
		{"switch", w.enforceAll},
		{"enforce", func(ctx context.Context, _ *row) error { return w.steady(ctx, true) }},
		{"churn", w.churnPods},
		{"pause", w.pause},
		{"restore", w.restoreAll},
	} {
		if w.skip[p.name] {
			continue
		}
		if err := w.phase(ctx, p.name, p.run); err != nil {
			return fmt.Errorf("phase %s: %w", p.name, err)
		}
	}
	return nil
}

// warmUp is how long agents take to stand by a decision about every pod, and some more.
func (w *world) warmUp() time.Duration { return max(30*time.Second, 15*w.interval) }

// quiet waits until every agent has decided, the controller has looked at every node, and the
// installation writes hardly anything but heartbeats.
func (w *world) quiet(ctx context.Context) error {
	const every = 5 * time.Second
	start := time.Now()
	before, err := w.scrape(ctx)
	if err != nil {
		return err
	}
	for time.Since(start) < w.settle {
		if !sleep(ctx, every) {
			return ctx.Err()
		}
		after, err := w.scrape(ctx)
		if err != nil {
			return err
		}
		writes := difference(writesOf(after), writesOf(before))
		perSecond := 0.0
		for kind, n := range writes {
			if strings.Contains(kind, "podallocations") || strings.Contains(kind, "configmaps") {
				perSecond += n / after.at.Sub(before.at).Seconds()
			}
		}
		looks := after.controller.sum("controller_runtime_reconcile_total", labels{"controller": "nodes"})
		w.progress.say("settling: %.1f writes/s of records, %.0f looks at nodes, queue %.0f, controller %.0f MiB",
			perSecond, looks, after.controller.sum("workqueue_depth", labels{"name": "nodes"}),
			after.controller.sum("process_resident_memory_bytes", nil)/mebibyte)
		before = after
		calm := perSecond < max(0.5, 0.1*float64(w.pods)/60)
		if calm && looks >= float64(w.nodes) && time.Since(start) > w.warmUp() {
			return nil
		}
	}
	w.progress.say("the installation is not quiet after %v; the phases start all the same", w.settle)
	return nil
}

// phase runs one phase between two readings of all metrics.
func (w *world) phase(ctx context.Context, name string, run func(context.Context, *row) error) error {
	w.progress.say("phase %s", name)
	r := &row{name: name}
	before, err := w.scrape(ctx)
	if err != nil {
		return err
	}
	w.watcher.begin()
	during, stop := context.WithCancel(ctx)
	var sampling sync.WaitGroup
	sampling.Go(func() { r.maxDepth = w.deepest(during) })
	if w.profile {
		sampling.Go(func() { w.writeProfile(during, name) })
	}
	err = run(ctx, r)
	stop()
	sampling.Wait()
	if err != nil {
		return w.died(err)
	}
	r.waitFor = w.reasons(ctx, w.watcher.waiting(time.Now(), 5*time.Second))
	r.seen = w.watcher.end()
	after, err := w.scrape(ctx)
	if err != nil {
		return err
	}
	r.fill(w, before, after)
	w.report.rows = append(w.report.rows, r)
	w.progress.say("%s", r.line())
	return nil
}

// reasons are why pods wait, with their numbers.
func (w *world) reasons(ctx context.Context, pods []*corev1.Pod) map[string]int {
	const most = 200 // are asked
	count := map[string]int{}
	for _, pod := range pods[:min(most, len(pods))] {
		pa := &v1alpha1.PodAllocation{}
		key := types.NamespacedName{Namespace: pod.Namespace, Name: string(pod.UID)}
		if err := w.api.Client.Get(ctx, key, pa); err != nil {
			count["no PodAllocation"]++
			continue
		}
		reason := pa.Status.Reason
		if kube.Total(pa.Spec.Containers) <= kube.Total(kube.Limits(pod)) {
			reason = "no higher limit published, " + reason
		}
		count[fmt.Sprintf("%s %s", pa.Status.Phase, reason)]++
		w.log.Warn("pod waits", "pod", pod.Name, "node", pod.Spec.NodeName, "limits", kube.Limits(pod),
			"published", pa.Spec, "phase", pa.Status.Phase, "reason", reason,
			"lease", w.annotations(ctx, pod.Spec.NodeName))
	}
	return count
}

// annotations are those of the Lease of a node's agent, with the figures of the node.
func (w *world) annotations(ctx context.Context, node string) map[string]string {
	lease := &coordinationv1.Lease{}
	key := types.NamespacedName{Namespace: kube.SystemNamespace, Name: kube.AgentLease(node)}
	if err := w.api.Client.Get(ctx, key, lease); err != nil {
		return map[string]string{"error": err.Error()}
	}
	return lease.Annotations
}

// deepest is the deepest that the controller's queue of nodes was seen, looked at each second.
func (w *world) deepest(ctx context.Context) (depth float64) {
	for sleep(ctx, time.Second) {
		if f, err := read(ctx, nil, w.process.metrics); err == nil {
			depth = max(depth, f.sum("workqueue_depth", labels{"name": "nodes"}))
		}
	}
	return depth
}

// probed says whether pods of a node come to want more: on each tenth.
func (w *world) probed(node string) bool {
	return w.interval == time.Second || strings.HasSuffix(node, "0")
}

// steady lets time pass. With probes some pods want more for a while, which is how long an increase
// takes.
func (w *world) steady(ctx context.Context, probes bool) error {
	end := time.Now().Add(w.length)
	for time.Now().Before(end) {
		if probes {
			w.probe()
		}
		if !sleep(ctx, time.Second) {
			return ctx.Err()
		}
	}
	return nil
}

// probe has a calm pod want more than its limit, and ends older probes.
func (w *world) probe() {
	now := time.Now()
	for _, pod := range w.watcher.over(now) {
		w.loads.want(pod, "app", 0)
	}
	for _, pod := range w.kubelets.Pods() { // in the order of a map, so any
		calmly := w.loads.kind(pod) == calm && pod.Status.Phase == corev1.PodRunning && !kube.Ended(pod)
		if !calmly || !w.probed(pod.Spec.NodeName) {
			continue
		}
		limit := kube.Limits(pod)[0].CPULimit
		if limit > cpu.Milli(w.cores)*500 || !w.watcher.start(pod, limit, now, false) {
			continue
		}
		w.loads.want(pod, "app", limit+limit/2)
		return
	}
}

// enforceAll switches every namespace to enforce, and waits until the throttled pods have more.
func (w *world) enforceAll(ctx context.Context, r *row) error {
	for _, pod := range w.kubelets.Pods() {
		if w.loads.kind(pod) == throttled {
			w.watcher.start(pod, kube.Limits(pod)[0].CPULimit, time.Now(), true)
		}
	}
	began := time.Now()
	patch := []byte(`{"metadata":{"labels":{"` + kube.ModeLabel + `":"enforce"}}}`)
	for i := range w.namespaces() {
		ns := &corev1.Namespace{}
		ns.Name = namespaceName(i)
		if err := w.api.Client.Patch(ctx, ns, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return fmt.Errorf("label namespace %s: %w", ns.Name, err)
		}
	}
	labelled := time.Since(began)
	w.watcher.restart(began)
	for end := began.Add(max(30*time.Second, w.length)); time.Now().Before(end); {
		w.probe()
		if !sleep(ctx, time.Second) {
			return ctx.Err()
		}
	}
	r.note = fmt.Sprintf("all namespaces labelled in %.1f s", labelled.Seconds())
	return nil
}

// pause pauses and resumes three times, and keeps the slowest acknowledgement.
func (w *world) pause(ctx context.Context, r *row) error {
	for range 3 {
		value := "scale-" + time.Now().UTC().Format("150405.000")
		start := time.Now()
		if err := restore.Pause(ctx, w.api.Client, kube.SystemNamespace, "scale", value); err != nil {
			return err
		}
		acknowledged := func() bool {
			s, err := restore.ReadState(ctx, w.api.Client, kube.SystemNamespace)
			return err == nil && s.Acknowledged == value
		}
		if err := w.await(ctx, "the pause is acknowledged", time.Minute, acknowledged); err != nil {
			return err
		}
		r.pause = max(r.pause, time.Since(start))
		if err := restore.Resume(ctx, w.api.Client, kube.SystemNamespace, "scale", time.Now()); err != nil {
			return err
		}
		if !sleep(ctx, 2*time.Second) {
			return ctx.Err()
		}
	}
	return nil
}

// restoreAll runs the controller's command for it.
func (w *world) restoreAll(ctx context.Context, r *row) error {
	log, err := os.Create(filepath.Join(w.out, "restore.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	for _, pod := range w.kubelets.Pods() {
		if w.watcher.changedLimit(pod) {
			r.toRestore++
		}
	}
	const within = 5 * time.Minute
	w.progress.say("%d pods are not at their declared limits", r.toRestore)
	cmd := tied(w.controller, "restore", "--all", "--timeout", within.String(), "--kubeconfig", w.process.kubeconfig)
	cmd.Stdout, cmd.Stderr = log, log
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = cmd.Process.Kill() // it may have ended
		return errors.Join(ctx.Err(), <-ended)
	}
	r.restore = time.Since(start)
	if err != nil {
		r.note = fmt.Sprintf("the command failed (%v): see restore.log", err)
	}
	for _, pod := range w.kubelets.Pods() {
		if w.watcher.changedLimit(pod) {
			r.unrestored++
		}
	}
	return nil
}
