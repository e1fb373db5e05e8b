package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// BenchmarkRestoreAll measures restore --all as a program of its own: 3,000 pods without a kubelet, each
// raised from 500m to 2000m and with a PodAllocation, on the real API server. The second run finds nothing
// to do.
func BenchmarkRestoreAll(b *testing.B) {
	const pods = 3000
	s := apiserver.Start(b)
	ns := &corev1.Namespace{}
	ns.Name = kube.SystemNamespace
	must.Succeed(b, s.Client.Create(b.Context(), ns))
	s.Install(b, "", "rbac/controller_role.yaml", "rbac/bindings.yaml",
		"policy/controller.yaml", "policy/controller_records.yaml", "policy/leases.yaml")
	program := filepath.Join(b.TempDir(), "mbcas-controller")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	kubeconfig := s.Kubeconfig(b, "system:serviceaccount:mbcas-system:mbcas-controller", "system:serviceaccounts")
	namespace := s.Namespace(b)
	makeNode(b, s)
	for b.Loop() {
		var made errgroup.Group
		made.SetLimit(16)
		for i := range pods {
			made.Go(func() error { return raised(b.Context(), s.Client, namespace, i) })
		}
		must.Succeed(b, made.Wait())
		for run, want := range []string{fmt.Sprintf("%d pods restored", pods), "0 pods restored"} {
			cmd := exec.Command(program, "restore", "--all", "--timeout=10m", "--workers=32", "--rate=1000", "--kubeconfig="+kubeconfig)
			var said bytes.Buffer
			cmd.Stderr = &said
			began, server := time.Now(), childrenCPU(b)
			if err := cmd.Run(); err != nil || !bytes.Contains(said.Bytes(), []byte(want)) {
				b.Fatalf("%v, want %q\n%s", err, want, said.String())
			}
			took := time.Since(began)
			usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			b.ReportMetric(took.Seconds(), fmt.Sprintf("s/run%d", run+1))
			b.ReportMetric(float64(usage.Maxrss)/1024, fmt.Sprintf("MiB-peak/run%d", run+1))
			// On a busy machine the rate says little; this says what a core could do.
			b.ReportMetric(childrenCPU(b)-server, fmt.Sprintf("server-cpu-s/run%d", run+1))
			b.ReportMetric(float64(usage.Utime.Nano()+usage.Stime.Nano())/1e9, fmt.Sprintf("cpu-s/run%d", run+1))
			b.Log(said.String())
		}
	}
}

// childrenCPU is the CPU time in seconds that the children of this process have used that still run: the API
// server and etcd.
func childrenCPU(b *testing.B) (seconds float64) {
	b.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	must.Succeed(b, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		_, rest, ok := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if err != nil || !ok || len(fields) < 13 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		for _, ticks := range fields[11:13] { // user and system time, in hundredths of a second
			n, err := strconv.ParseFloat(ticks, 64)
			must.Succeed(b, err)
			seconds += n / 100
		}
	}
	return seconds
}

// makeNode makes the node of the pods. It is Ready, and has no kubelet.
func makeNode(b *testing.B, s *apiserver.Server) {
	b.Helper()
	node := &corev1.Node{}
	node.Name = "scale"
	node.Labels = map[string]string{corev1.LabelOSStable: "linux"}
	err := s.Client.Create(b.Context(), node)
	if err == nil {
		node.Spec.Taints = nil // admission gave it not-ready, as every new node
		err = s.Client.Update(b.Context(), node)
	}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(4000), corev1.ResourceMemory: resource.MustParse("8Gi")}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.NodeInfo.KubeletVersion = s.Version(b)
	if err == nil {
		err = s.Client.Status().Update(b.Context(), node)
	}
	must.Succeed(b, err)
}

// raised makes a pod that the controller raised, on a node without a kubelet. Its status shows the declared
// limit, as if the kubelet were quick.
func raised(ctx context.Context, c client.Client, namespace string, i int) error {
	pod := apiserver.Pod(namespace, fmt.Sprintf("web-%05d", i), apiserver.Container("app", "100m", "500m"), apiserver.Container("proxy", "10m", "100m"))
	pod.Spec.NodeName = "scale"
	if err := c.Create(ctx, pod); err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodRunning
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Ready: true, Resources: container.Resources.DeepCopy(),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		})
	}
	pa := allocation.New(pod)
	if err := errors.Join(c.Status().Update(ctx, pod), c.Create(ctx, pa)); err != nil {
		return err
	}
	pa.Status.DeclaredLimits = kube.Limits(pod)
	pa.Status.Phase = v1alpha1.PhaseApplied
	patch := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"2"}}}]}}`))
	return errors.Join(c.Status().Update(ctx, pa), c.SubResource("resize").Patch(ctx, pod, patch, client.FieldOwner(kube.FieldManager)))
}
