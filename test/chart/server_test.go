package chart_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

const system = "mbcas-system"

// installation is a real API server without anything of MBCAS, and Helm with an administrator's rights there.
type installation struct {
	*apiserver.Server
	t                *testing.T
	helm, kubeconfig string
}

func install(t *testing.T) *installation {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		const why = `no API server to test against: set KUBEBUILDER_ASSETS="$(bin/mbcas-cluster assets)"`
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	program, err := helm()
	if err != nil {
		t.Fatalf("build helm: %v", err)
	}
	t.Chdir(root) // the server wants to know where config is
	s, err := apiserver.Open(assets, func(env *envtest.Environment) {
		env.CRDDirectoryPaths, env.ErrorIfCRDPathMissing = nil, false
	})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &installation{Server: s, t: t, helm: program, kubeconfig: s.Kubeconfig(t, "admin", "system:masters")}
}

// run runs helm against the server, until its end or that of the context.
func (i *installation) run(ctx context.Context, args ...string) (string, error) {
	home := filepath.Dir(i.kubeconfig)
	cmd := exec.CommandContext(ctx, i.helm, append(args, "--namespace", system)...)
	cmd.Env = []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + i.kubeconfig,
		"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// must runs helm, and it has to succeed.
func (i *installation) must(args ...string) string {
	i.t.Helper()
	out, err := i.run(i.t.Context(), args...)
	if err != nil {
		i.t.Fatalf("helm %v: %v\n%s", args, err, out)
	}
	return out
}

// refused runs helm, which has to fail and say this.
func (i *installation) refused(says string, args ...string) {
	i.t.Helper()
	if out, err := i.run(i.t.Context(), args...); err == nil || !strings.Contains(out, says) {
		i.t.Fatalf("helm %v: %v, want %q in\n%s", args, err, says, out)
	}
}

func (i *installation) ok(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}

// interrupted begins an uninstallation, and ends helm when it has created the Job that restores.
func (i *installation) interrupted() {
	i.t.Helper()
	ctx, cancel := context.WithCancel(i.t.Context())
	defer cancel()
	ended := make(chan string, 1)
	go func() {
		out, err := i.run(ctx, "uninstall", "mbcas", "--timeout", "10m")
		ended <- fmt.Sprint(err, "\n", out)
	}()
	apiserver.Eventually(i.t, "helm creates its Job", func() (bool, any) {
		select {
		case said := <-ended:
			i.t.Fatalf("helm has not waited for its Job: %s", said)
		default:
		}
		err := i.Client.Get(ctx, client.ObjectKey{Namespace: system, Name: "mbcas-restore"}, &batchv1.Job{})
		return err == nil, err
	})
	cancel()
	<-ended
}

// mode is that of the controller and of its policy.
func (i *installation) mode() string {
	i.t.Helper()
	d := &appsv1.Deployment{}
	i.ok(i.Client.Get(i.t.Context(), client.ObjectKey{Namespace: system, Name: "mbcas-controller"}, d))
	policy := &unstructured.Unstructured{}
	policy.SetAPIVersion("admissionregistration.k8s.io/v1")
	policy.SetKind("ValidatingAdmissionPolicy")
	i.ok(i.Client.Get(i.t.Context(), client.ObjectKey{Name: "mbcas-controller"}, policy))
	return fmt.Sprint(d.Spec.Template.Spec.Containers[0].Env[0].Value, " ",
		within(policy.Object, strings.Split("spec.variables.0.expression", ".")))
}

// left are the objects of these which the server has.
func (i *installation) left(all []object) (names []string) {
	i.t.Helper()
	for _, o := range all {
		u := &unstructured.Unstructured{Object: clone(o)}
		err := i.Client.Get(i.t.Context(), client.ObjectKeyFromObject(u), u)
		gone := apierrors.IsNotFound(err) || u.GetDeletionTimestamp() != nil
		if err != nil && !gone {
			i.t.Fatalf("%s: %v", o.name(), err)
		}
		if !gone && !strings.HasPrefix(o.name(), "hook ") {
			names = append(names, o.name())
		}
	}
	slices.Sort(names)
	return names
}

// stays says that nothing was deleted.
func (i *installation) stays(all []object, after string) {
	i.t.Helper()
	if got := i.left(all); len(got) != len(all)-1 {
		i.t.Fatalf("after %s %d objects of %d are left: %v", after, len(got), len(all)-1, got)
	}
}

// setEnv is kubectl set env: it sets the mode of the controller, and owns that field then.
func (i *installation) setEnv(mode string) {
	i.t.Helper()
	d := &appsv1.Deployment{}
	i.ok(i.Client.Get(i.t.Context(), client.ObjectKey{Namespace: system, Name: "mbcas-controller"}, d))
	before := client.StrategicMergeFrom(d.DeepCopy())
	d.Spec.Template.Spec.Containers[0].Env[0].Value = mode
	i.ok(i.Client.Patch(i.t.Context(), d, before, client.FieldOwner("kubectl-set")))
}

// endJobs runs something while Jobs of mbcas-system are reported as complete or failed, as the controller of Jobs does
// when their pods have ended. Helm waits for that.
func (i *installation) endJobs(failed bool, during func()) {
	i.t.Helper()
	ctx, cancel := context.WithCancel(i.t.Context())
	done := make(chan error, 1)
	go func() { done <- i.reportJobs(ctx, failed) }()
	during()
	cancel()
	i.ok(<-done)
}

func (i *installation) reportJobs(ctx context.Context, failed bool) error {
	w, err := i.Client.Watch(ctx, &batchv1.JobList{}, client.InNamespace(system))
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		job, ok := e.Object.(*batchv1.Job)
		if !ok || e.Type == watch.Deleted || job.DeletionTimestamp != nil || len(job.Status.Conditions) > 0 {
			continue
		}
		now := metav1.Now()
		job.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1}
		conditions := []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete}
		if failed {
			job.Status = batchv1.JobStatus{StartTime: &now, Failed: 1}
			conditions = []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed}
		}
		for _, c := range conditions {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
				Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now,
			})
		}
		err := i.Client.Status().Update(ctx, job)
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// TestLifecycle: on a real API server, Helm installs, upgrades, rolls back and uninstalls. An uninstallation that is
// interrupted, or whose Job fails, deletes nothing and can be repeated. The CRDs and their objects outlive the release.
func TestLifecycle(t *testing.T) {
	all := rendered(t)
	signal, err := os.ReadFile(root + "/config/samples/demand-signal.yaml")
	must.Succeed(t, err)
	i := install(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: system, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	i.ok(i.Client.Create(t.Context(), ns))
	i.refused("pod-security.kubernetes.io/enforce=privileged --overwrite", "install", "mbcas", "charts/mbcas")
	ns.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
	i.ok(i.Client.Update(t.Context(), ns))
	if out := i.must("install", "mbcas", "charts/mbcas"); strings.Contains(out, "Pod Security") {
		t.Errorf("the notes ask for a label that is there:\n%s", out)
	}
	i.stays(all, "the installation")
	if m := i.mode(); m != "recommend 'recommend'" {
		t.Errorf("mode %s", m)
	}
	i.must("upgrade", "mbcas", "charts/mbcas", "--set", "mode=enforce,agent.flags.reserve=0.05")
	if m := i.mode(); m != "enforce 'enforce'" {
		t.Errorf("after the upgrade the mode is %s", m)
	}
	i.must("rollback", "mbcas", "1")
	if m := i.mode(); m != "recommend 'recommend'" {
		t.Errorf("after the rollback the mode is %s", m)
	}

	i.setEnv("restore")
	i.refused(`conflict with "kubectl-set"`, "upgrade", "mbcas", "charts/mbcas", "--set", "mode=enforce")
	i.must("upgrade", "mbcas", "charts/mbcas", "--set", "mode=enforce", "--force-conflicts")
	if m := i.mode(); m != "enforce 'enforce'" {
		t.Errorf("after an upgrade by force the mode is %s", m)
	}

	o := &unstructured.Unstructured{Object: objects(t, string(signal))[0]}
	o.SetNamespace("default")
	apiserver.Eventually(t, "a DemandSignal is made", func() (bool, any) {
		err := i.Client.Create(t.Context(), o)
		return err == nil, err
	})
	i.interrupted()
	i.stays(all, "a restore that did not end")
	i.endJobs(true, func() { // the Job that is left is replaced
		i.refused("mbcas-restore", "uninstall", "mbcas", "--timeout", "2m")
	})
	i.stays(all, "a restore that failed")
	i.must("rollback", "mbcas") // MBCAS is kept after all
	i.endJobs(false, func() { i.must("uninstall", "mbcas", "--timeout", "2m") })
	if got, want := strings.Join(i.left(all), " "), crds; got != want {
		t.Errorf("left are %s, want the CRDs alone", got)
	}
	i.ok(i.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
}

// TestTakeOver: Helm takes over an installation that kubectl made of config, and changes nothing of it but labels and
// annotations. Without hooks it removes it at once, but for the CRDs.
func TestTakeOver(t *testing.T) {
	made := built(t)
	i, specs := install(t), map[string]any{}
	for _, o := range made {
		u := &unstructured.Unstructured{Object: clone(o)}
		i.ok(i.Client.Create(t.Context(), u, client.FieldOwner("kubectl-client-side-apply")))
		specs[key(o)] = runtime.DeepCopyJSONValue(u.Object["spec"])
	}
	i.refused("invalid ownership metadata", "install", "mbcas", "charts/mbcas")
	i.must("install", "mbcas", "charts/mbcas", "--take-ownership", "--force-conflicts")
	for _, o := range made {
		u := &unstructured.Unstructured{Object: clone(o)}
		i.ok(i.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u))
		for _, fault := range unequal("spec", specs[key(o)], u.Object["spec"]) {
			t.Errorf("%s: %s", o.name(), fault)
		}
	}
	i.must("uninstall", "mbcas", "--no-hooks")
	if got := i.left(made); strings.Join(got, " ") != crds+" Namespace/mbcas-system" {
		t.Errorf("left are %v, want the CRDs and the namespace", got)
	}
}
