package e2e

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
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/audit"
)

// Paths of the repository, from this folder.
const (
	root    = "../.."
	overlay = root + "/config/overlays/local"
)

// suite is a cluster with MBCAS on it.
type suite struct {
	client.Client
	node string
	// remote says that the node is another machine, so that its kernel's files are not here.
	remote bool
	// ceiling is the highest limit of a pod on it.
	ceiling cpu.Milli
	// audit is the API server's audit log, and audited its size when the test began.
	audit   string
	audited int64
}

// start finds the cluster. Without one the test is skipped, which `make test` counts and CI refuses.
func start(t *testing.T) *suite {
	t.Helper()
	log.SetLogger(logr.Discard()) // else the library complains with a stack trace
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		t.Skip("KUBECONFIG is not set: run these tests with `make e2e`")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatalf("KUBECONFIG %s: %v", path, err)
	}
	config.QPS, config.Burst = 50, 100
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	s := &suite{Client: c, audit: auditLog(path)}
	var nodes corev1.NodeList
	if err := c.List(t.Context(), &nodes); err != nil || len(nodes.Items) == 0 {
		t.Fatalf("nodes: %d, %v", len(nodes.Items), err)
	}
	// The first node is the cluster's own; others were added.
	s.use(slices.MinFunc(nodes.Items, func(a, b corev1.Node) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) }))
	if _, err := os.Stat(filepath.Dir(s.audit)); err != nil {
		t.Fatalf("the logs of the local cluster: %v", err)
	}
	if s.audited, err = audit.Size(s.audit); err != nil {
		t.Fatal(err)
	}
	return s
}

// use makes a node the one that the pods of the test run on.
func (s *suite) use(node corev1.Node) {
	s.node, s.ceiling = node.Name, cpu.Milli(node.Status.Allocatable.Cpu().MilliValue()).RoundDown(cpu.Quantum)
}

// cluster is a command of the program that runs the local cluster.
func cluster(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := filepath.Abs(root + "/bin/mbcas-cluster")
	if err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), program, args...)
}

// install builds the load's image and installs MBCAS as the documentation says.
func (s *suite) install(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	program, archive := filepath.Join(dir, "mbcas-load"), filepath.Join(dir, "load.tar")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./test/load")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	for _, cmd := range []*exec.Cmd{
		build,
		cluster(t, "image", "--name", loadImage, "-o", archive, program),
		cluster(t, "load", archive),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	s.applyManifests(t)
}

// applyManifests installs MBCAS, or brings back what is missing of it.
func (s *suite) applyManifests(t *testing.T) {
	t.Helper()
	kubectl(t, "apply", "-k", overlay)
	kubectl(t, "-n", system, "rollout", "status", "deployment/mbcas-controller", "--timeout=120s")
	kubectl(t, "-n", system, "rollout", "status", "daemonset/mbcas-agent", "--timeout=300s")
}

// kubectl runs the program that people use.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "kubectl", args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

// pollEvery is the interval of a wait.
const pollEvery = 200 * time.Millisecond

// wait waits until ok returns true; its text is the state otherwise.
func wait(t *testing.T, most time.Duration, what string, ok func(context.Context) (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	state := ""
	for {
		done, now := ok(ctx)
		if done {
			return
		}
		if ctx.Err() == nil {
			state = now
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s; at last: %s", most, what, state)
		case <-tick.C:
		}
	}
}

func orError(err error, format string, args ...any) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf(format, args...)
}
