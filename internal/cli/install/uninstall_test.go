package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// keepers are the controllers of Kubernetes that empty a namespace.
var keepers = []string{"namespace-controller", "garbage-collector-controller"}

// playJobs plays the node for Jobs of MBCAS until the test ends: each gets a pod, does its work, and is complete or, if
// that returns an error, failed.
func (s *site) playJobs(work func(*batchv1.Job) error) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	jobs, err := s.Client.Watch(ctx, &batchv1.JobList{}, client.InNamespace(kube.SystemNamespace))
	s.ok(err)
	done := make(chan error, 1)
	go func() {
		var failed error
		for e := range jobs.ResultChan() {
			job, ok := e.Object.(*batchv1.Job)
			if ok && e.Type == watch.Added && len(job.Status.Conditions) == 0 && failed == nil {
				failed = s.play(ctx, job, work)
			}
		}
		done <- failed
	}()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

func (s *site) play(ctx context.Context, job *batchv1.Job, work func(*batchv1.Job) error) error {
	pod := apiserver.Pod(job.Namespace, job.Name+"-x", apiserver.Container("restore", "", ""))
	pod.Labels = map[string]string{"job-name": job.Name}
	if err := s.Client.Create(ctx, pod); err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodRunning
	if err := s.Client.Status().Update(ctx, pod); err != nil {
		return err
	}
	now := metav1.Now()
	conditions := []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete}
	job.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1}
	if work(job) != nil {
		conditions = []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed}
		job.Status = batchv1.JobStatus{StartTime: &now, Failed: 1}
	}
	for _, c := range conditions {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now,
		})
	}
	return s.Client.Status().Update(ctx, job)
}

// raised is a pod whose declared limit is 500m, and whose limit MBCAS has set to 900m. Its ledger records that.
func (s *site) raised(namespace, name string) *corev1.Pod {
	s.t.Helper()
	ctx := s.t.Context()
	pod := apiserver.Pod(namespace, name, apiserver.Container("app", "100m", "500m"))
	pod.Spec.NodeName = "node-1"
	s.Kubelet(s.t, pod.Spec.NodeName)
	s.ok(s.Client.Create(ctx, pod))
	apiserver.Eventually(s.t, "the pod runs", func() (bool, any) {
		s.ok(s.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod))
		return pod.Status.Phase == corev1.PodRunning, pod.Status
	})
	s.resize(pod, "900m")
	declared := kube.Limits(pod)
	declared[0].CPULimit = 500
	text, err := json.Marshal(restore.Entry{Namespace: namespace, Pod: name, Limits: declared})
	s.ok(err)
	ledger := &corev1.ConfigMap{Data: map[string]string{string(pod.UID): string(text)}}
	ledger.Namespace, ledger.Name = kube.SystemNamespace, restore.LedgerName("node-1")
	ledger.Labels = map[string]string{kube.LedgerLabel: "true"}
	s.ok(s.Client.Create(ctx, ledger))
	return pod
}

// resize sets the limit of a pod as the controller does.
func (s *site) resize(pod *corev1.Pod, limit string) {
	s.t.Helper()
	s.ok(s.setLimit(s.t.Context(), pod, limit))
}

// setLimit sets the limit of a pod, and waits until the kubelet reports it.
func (s *site) setLimit(ctx context.Context, pod *corev1.Pod, limit string) error {
	patch := fmt.Appendf(nil, `{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":%q}}}]}}`, limit)
	err := s.Client.SubResource("resize").Patch(ctx, pod, client.RawPatch("application/strategic-merge-patch+json", patch),
		client.FieldOwner(kube.FieldManager))
	if err != nil {
		return err
	}
	want := resource.MustParse(limit)
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err
		}
		status := pod.Status.ContainerStatuses
		return len(status) > 0 && status[0].Resources != nil && status[0].Resources.Limits.Cpu().Cmp(want) == 0 &&
			pod.Status.ObservedGeneration >= pod.Generation, nil
	})
}

// TestRestoresFirst: an uninstallation deletes nothing if its Job fails, or if a pod is not at its declared limits
// after it. Forced, it goes on, and leaves the records that a later restore needs.
func TestRestoresFirst(t *testing.T) {
	s := newSite(t, keepers...)
	s.namespace("shop")
	s.install(Options{Tag: "v0.1.0"})
	pod := s.raised("shop", "web")
	before := slices.Sorted(maps.Keys(s.objects()))
	answer := fmt.Errorf("a quota is full")
	var timeout string
	s.playJobs(func(j *batchv1.Job) error {
		timeout = j.Spec.Template.Spec.Containers[0].Env[0].Value
		return answer
	})
	var out strings.Builder
	s.ok(Uninstall(t.Context(), s.access, &out, RemoveOptions{DryRun: true, KeepCRDs: true, Timeout: time.Minute}))
	for _, want := range []string{
		"1 pod would be restored:\n  pod shop/web: container app 900m -> 500m\n", fmt.Sprintf("%d objects would be deleted then:\n", len(before)-3),
		"3 CRDs with their objects would stay", "Dry run: nothing was written.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the dry run printed %q, want %q in it", out.String(), want)
		}
	}
	uninstall := func(o RemoveOptions) error {
		out.Reset()
		o.Timeout = time.Minute
		return Uninstall(t.Context(), s.access, &out, o)
	}
	stays := func(after string) {
		t.Helper()
		if now := slices.Sorted(maps.Keys(s.objects())); !slices.Equal(now, before) {
			t.Fatalf("after %s the server has %v, it had %v", after, now, before)
		}
	}
	refuses(t, "a Job that fails", uninstall(RemoveOptions{KeepCRDs: true}), "failed", "logs job/mbcas-restore-",
		"nothing was deleted", "--force", "kubectl mbcas resume")
	stays("a Job that failed")
	if timeout != "1m0s" || !strings.Contains(out.String(), "2 pods restored") || strings.Contains(out.String(), "audit") {
		t.Errorf("the Job had %s; printed %q", timeout, out.String())
	}
	answer = nil // it says that it has restored everything, and has not
	refuses(t, "a pod that is not restored", uninstall(RemoveOptions{}), "1 pod is not at the declared limits: shop/web",
		"nothing was deleted", "kubectl mbcas restore --all -A", "--force")
	stays("a restore that left a pod")

	s.ok(uninstall(RemoveOptions{Force: true}))
	crds := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return !strings.HasPrefix(name, crdKind) })
	if left := slices.Sorted(maps.Keys(s.objects())); !slices.Equal(left, append(crds, "Namespace mbcas-system")) {
		t.Errorf("by force it leaves %v", left)
	}
	declared, err := restore.ReadLedgers(t.Context(), s.Client, kube.SystemNamespace)
	if err != nil || len(declared) != 1 {
		t.Errorf("records of declared limits: %v, %v", declared, err)
	}
	if !strings.Contains(out.String(), "hold declared limits") {
		t.Errorf("printed %q", out.String())
	}
	s.resize(pod, "500m") // kubectl mbcas restore
	s.ok(uninstall(RemoveOptions{}))
	if left := s.objects(); len(left) > 0 {
		t.Errorf("once the pod is restored it leaves %v", slices.Sorted(maps.Keys(left)))
	}
}

// TestLeavesWhatItSays: an uninstallation restores, and leaves the CRDs alone, or nothing. After it, MBCAS can be
// installed again.
func TestLeavesWhatItSays(t *testing.T) {
	s := newSite(t, keepers...)
	ctx := t.Context()
	err := Uninstall(ctx, s.access, io.Discard, RemoveOptions{Timeout: time.Minute})
	refuses(t, "nothing is installed", err, "not installed")
	s.namespace("shop")
	s.install(Options{Tag: "v0.1.0", Namespaces: []string{"shop"}})
	pod := s.raised("shop", "web")
	s.playJobs(func(*batchv1.Job) error { return s.setLimit(ctx, pod, "500m") })
	all := slices.Sorted(maps.Keys(s.objects()))
	crds := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !strings.HasPrefix(name, crdKind) })
	var out strings.Builder
	s.ok(Uninstall(ctx, s.access, &out, RemoveOptions{KeepCRDs: true, Timeout: time.Minute}))
	if left := slices.Sorted(maps.Keys(s.objects())); !slices.Equal(left, crds) || len(crds) != 3 {
		t.Errorf("left are %v, want the CRDs alone", left)
	}
	for _, want := range []string{
		"MBCAS is gone.", "--keep-crds=false", "The label mbcas.io/mode stays on shop, and acts again",
		"To remove it: kubectl label namespace -l mbcas.io/mode mbcas.io/mode-",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("printed %q, want %q in it", out.String(), want)
		}
	}
	if strings.Contains(out.String(), "Nothing was left") {
		t.Errorf("printed %q", out.String())
	}
	out.Reset()
	s.ok(Uninstall(ctx, s.access, &out, RemoveOptions{KeepCRDs: true, Timeout: time.Minute}))
	if !strings.Contains(out.String(), "Nothing was left to delete.") {
		t.Errorf("repeated it printed %q", out.String())
	}
	s.ok(s.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	if l := kube.Limits(pod)[0].CPULimit; l != 500 {
		t.Errorf("the pod has a limit of %v", l)
	}
	err = s.Client.Get(ctx, client.ObjectKey{Name: kube.SystemNamespace}, &corev1.Namespace{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("namespace %s: %v", kube.SystemNamespace, err)
	}
	err = Upgrade(ctx, s.access, io.Discard, Options{Tag: "v0.1.0"})
	refuses(t, "an upgrade of what is left", err, "kubectl mbcas install")

	s.install(Options{Tag: "v0.2.0"}) // over the CRDs that are left
	if again := slices.Sorted(maps.Keys(s.objects())); !slices.Equal(again, all) {
		t.Errorf("installed again are %v, want %v", again, all)
	}
	s.ok(restore.Pause(ctx, s.Client, kube.SystemNamespace, kube.PluginFieldManager, "incident"))
	if said := s.upgrade(Options{Tag: "v0.2.0"}); !strings.Contains(said, "kubectl mbcas resume") {
		t.Errorf("of a pause the upgrade says %q", said)
	}
	s.ok(Uninstall(ctx, s.access, io.Discard, RemoveOptions{Timeout: time.Minute}))
	if left := s.objects(); len(left) > 0 {
		t.Errorf("left are %v, want nothing", slices.Sorted(maps.Keys(left)))
	}
}

// TestUninstallChecks: what has to hold before a restore and after the programs have ended is checked, and if it does
// not, no record of declared limits is deleted.
func TestUninstallChecks(t *testing.T) {
	s := newSite(t, keepers...)
	ctx := t.Context()
	s.namespace("shop")
	s.install(Options{Tag: "v0.1.0"})
	all := s.objects()
	uninstall := func() error {
		return Uninstall(ctx, s.access, io.Discard, RemoveOptions{Timeout: time.Minute})
	}
	stays := func(after string, all map[string]string) {
		t.Helper()
		now := slices.Sorted(maps.Keys(s.objects()))
		if want := slices.Sorted(maps.Keys(all)); !slices.Equal(now, want) {
			t.Fatalf("after %s the server has %v, want %v", after, now, want)
		}
	}

	s.access.System = "elsewhere"
	refuses(t, "another namespace", uninstall(), "namespace elsewhere", "--system-namespace")
	s.access.System = kube.SystemNamespace
	stays("another namespace", all)

	cron := &batchv1.CronJob{}
	cron.Namespace, cron.Name = kube.SystemNamespace, restoreName
	s.ok(s.Client.Delete(ctx, cron, client.PropagationPolicy("Background")))
	delete(all, template)
	refuses(t, "no template", uninstall(), template, "is missing", "nothing was deleted", "kubectl mbcas upgrade")
	stays("an uninstallation without the template", all)
	s.upgrade(Options{Tag: "v0.1.0"})
	all[template] = ""

	// The controller is resumed after the restore, and resizes a pod before it ends.
	pod := s.raised("shop", "web")
	s.playJobs(func(*batchv1.Job) error { return s.setLimit(ctx, pod, "500m") })
	plain, once := s.access.Client, true
	s.access.Client = interceptor.NewClient(s.watching(), interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if once {
				once = false
				s.resize(pod, "900m")
			}
			return c.Delete(ctx, o, options...)
		},
	})
	refuses(t, "a pod resized after the restore", uninstall(), "1 pod is not at the declared limits: shop/web", "resumed",
		"Uninstall again")
	delete(all, "Deployment "+cluster.ControllerName)
	delete(all, "DaemonSet "+cluster.AgentName)
	stays("a pod resized after the restore", all)
	if declared, err := restore.ReadLedgers(ctx, s.Client, kube.SystemNamespace); err != nil || len(declared) != 1 {
		t.Errorf("records of declared limits: %v, %v", declared, err)
	}
	s.access.Client = plain
	s.ok(uninstall())
	stays("all pods are restored", nil)
}

// watching is the administrator's connection, for an interceptor.
func (s *site) watching() client.WithWatch {
	s.t.Helper()
	c, err := client.NewWithWatch(s.Config, client.Options{Scheme: cluster.Scheme()})
	s.ok(err)
	return c
}

// TestDeletesWhatItRead: an object that was made anew after the check is not deleted, and the error has no advice about
// fields.
func TestDeletesWhatItRead(t *testing.T) {
	s := newSite(t)
	s.install(Options{Tag: "v0.1.0"})
	r := &run{Access: s.access, out: io.Discard}
	now, err := r.read(t.Context())
	s.ok(err)
	d := now.controller()
	d.SetUID("that-of-before")
	err = r.removeIf(t.Context(), now, []*unstructured.Unstructured{d}, isProgram)
	refuses(t, "another object", err, "delete Deployment mbcas-controller", "made it anew", "repeat")
	if strings.Contains(err.Error(), "--force-conflicts") {
		t.Errorf("the error is %v", err)
	}
	s.deployment()
}

// TestSaysWhatStaysOnNodes: where mbcas-weights was installed, its folder on the nodes is named, and nowhere else.
func TestSaysWhatStaysOnNodes(t *testing.T) {
	const volume = "name: weights-record\n          hostPath:\n            path: /var/lib/mbcas-weights\n"
	component, err := os.ReadFile("../../../config/components/weights/kustomization.yaml")
	if err != nil || !strings.Contains(string(component), volume) {
		t.Errorf("the component has no volume\n%s%v", volume, err)
	}
	volumes := []any{map[string]any{"name": "weights-record", "hostPath": map[string]any{"path": "/var/lib/mbcas-weights"}}}
	for want, volumes := range map[string][]any{"The folder /var/lib/mbcas-weights stays on the disks of the nodes": volumes, "": volumes[:0]} {
		agents := &unstructured.Unstructured{Object: map[string]any{"kind": "DaemonSet", "metadata": map[string]any{"name": cluster.AgentName}}}
		if err := unstructured.SetNestedSlice(agents.Object, volumes, "spec", "template", "spec", "volumes"); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		r := &run{Access: &cluster.Access{Client: fake.NewClientBuilder().WithScheme(cluster.Scheme()).Build()}, out: &out}
		now := &installation{live: map[string]*unstructured.Unstructured{nameOf(agents): agents}}
		if err := r.sayLeft(t.Context(), now, RemoveOptions{}, false); err != nil {
			t.Fatal(err)
		}
		after := out.String()
		out.Reset()
		if err := r.wouldRemove(t.Context(), now, RemoveOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, said := range []string{after, out.String()} {
			if !strings.Contains(said, want) || want == "" && strings.Contains(said, "folder") {
				t.Errorf("said:\n%s\nwant %q", said, want)
			}
		}
	}
}

// TestStuckDeletionIsNudged: a CustomResourceDefinition whose deletion rests is written to, after ten seconds and not before,
// and what the API server says of it is in the error.
func TestStuckDeletionIsNudged(t *testing.T) {
	for name, tc := range map[string]struct {
		goesAfter time.Duration // by itself
		nudges    int           // until it goes; 0: none helps
		wrote     int
		fails     bool
	}{
		"goes at once":             {goesAfter: 3 * time.Second},
		"waits for a change":       {goesAfter: time.Hour, nudges: 1, wrote: 1},
		"waits for a second one":   {goesAfter: time.Hour, nudges: 2, wrote: 2},
		"waits for something else": {goesAfter: time.Hour, wrote: 6, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				crd := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
					"type": "Terminating", "reason": "InstanceDeletionFailed", "message": "could not list instances",
				}}}}}
				crd.SetAPIVersion("apiextensions.k8s.io/v1")
				crd.SetKind(crdKind)
				crd.SetName(cluster.CRDName)
				crd.SetDeletionTimestamp(new(metav1.Now()))
				begin, wrote := time.Now(), 0
				gone := apierrors.NewNotFound(schema.GroupResource{Resource: "customresourcedefinitions"}, cluster.CRDName)
				server := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
					Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
						if time.Since(begin) > tc.goesAfter || tc.nudges > 0 && wrote >= tc.nudges {
							return gone
						}
						o.(*unstructured.Unstructured).Object = crd.DeepCopy().Object
						return nil
					},
					Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
						wrote++
						return errors.New("not allowed") // is no error of the uninstallation
					},
				})
				r := &run{Access: &cluster.Access{Client: server, Now: time.Now}, out: io.Discard}
				err := r.waitGone(t.Context(), []*unstructured.Unstructured{crd}, time.Minute)
				if (err != nil) != tc.fails || wrote != tc.wrote {
					t.Errorf("%v after %d writes, want %d and an error: %v", err, wrote, tc.wrote, tc.fails)
				}
				if err != nil && !strings.Contains(err.Error(), "(InstanceDeletionFailed: could not list instances) after 1m0s") {
					t.Errorf("%v does not say what the API server says", err)
				}
			})
		})
	}
}

// TestFollowEnds: the log of a Job is followed no longer than its program may run.
func TestFollowEnds(t *testing.T) {
	var until time.Time
	var bounded bool
	a := &cluster.Access{Follow: func(ctx context.Context, _ *corev1.Pod) (io.ReadCloser, error) {
		until, bounded = ctx.Deadline()
		return io.NopCloser(strings.NewReader("")), nil
	}}
	(&run{Access: a, out: io.Discard}).follow(t.Context(), &corev1.Pod{}, time.Hour)
	if !bounded || until.After(time.Now().Add(time.Hour)) {
		t.Errorf("the log is followed until %v (%v)", until, bounded)
	}
}

// TestJobDoesNotStart: a Job whose pod does not start is deleted, and the error has the reason that the pod gives.
func TestJobDoesNotStart(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	s.install(Options{Tag: "v0.1.0"})
	now := time.Now()
	s.access.Now = func() time.Time {
		now = now.Add(startWithin)
		return now
	}
	before := len(s.objects())
	err := Uninstall(ctx, s.access, io.Discard, RemoveOptions{Timeout: time.Hour})
	refuses(t, "a Job without a pod", err, "did not start in 3m0s", "nothing was deleted")
	jobs := &batchv1.JobList{}
	s.ok(s.Client.List(ctx, jobs, client.InNamespace(kube.SystemNamespace)))
	left := slices.DeleteFunc(jobs.Items, func(j batchv1.Job) bool { return j.DeletionTimestamp != nil })
	if len(left) > 0 || len(s.objects()) != before {
		t.Errorf("%d Jobs are left, and %d objects of %d", len(left), len(s.objects()), before)
	}
	key := client.ObjectKey{Namespace: kube.SystemNamespace, Name: cluster.ControllerName}
	s.ok(s.Client.Get(ctx, key, s.deployment()))
}
