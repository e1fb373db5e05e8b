package e2e

import (
	"cmp"
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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/internal/poll"
)

// root is the repository, from this folder.
const root = "../.."

// watched is the guard of the suite.
var watched *guard.Guard

// TestMain watches every pod of the cluster from before the first test until after the last one.
// What MBCAS must never do fails the whole suite, in whichever test it was done. testall knows the
// line by its beginning: such a fault outlasts a test that passes when it runs once more.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // else the library complains with a stack trace
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		os.Exit(m.Run()) // every test is skipped
	}
	g, err := guard.New(path, auditLog(path))
	watched = g
	if err != nil {
		fmt.Fprintln(os.Stderr, "the watch over the whole suite:", err)
		os.Exit(1)
	}
	code := m.Run()
	r := g.End()
	for _, n := range r.Notes {
		fmt.Println("    note:", n)
	}
	for _, f := range r.Faults {
		fmt.Println("OUTSIDE OF THE TESTS:", f)
		code = 1
	}
	const sum = "    the watch over the whole suite saw %d pods, %d resizes (%d met a busy server), %d faults\n"
	fmt.Printf(sum, r.Pods, r.Resizes, r.Busy, len(r.Faults))
	os.Exit(code)
}

// auditLog is where the local cluster keeps it.
func auditLog(kubeconfig string) string {
	return filepath.Join(filepath.Dir(kubeconfig), "logs", "audit.log")
}

// suite is a cluster with MBCAS on it.
type suite struct {
	client.Client
	access *rest.Config
	node   string
	// remote says that the node is another machine, so that its kernel's files are not here.
	remote bool
	// slower is the factor of every deadline: 1 on a real node.
	slower int
	// lastSupply is that of its market, or its allocatable CPU before it was read.
	lastSupply cpu.Milli
	// log is the API server's audit log since the test began.
	log audit.Log
}

// start finds the cluster and installs MBCAS. Without a cluster the test is skipped, which
// `make test` counts and CI refuses. prepare, where it is given, runs before the installation.
func start(t *testing.T, prepare ...func(*suite)) *suite {
	t.Helper()
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
	schemes := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, v1alpha1.AddToScheme, apiextensionsv1.AddToScheme)
	must.Succeed(t, schemes.AddToScheme(scheme))
	s := &suite{access: config, slower: 1}
	if s.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	var nodes corev1.NodeList
	if err := s.List(t.Context(), &nodes); err != nil || len(nodes.Items) == 0 {
		t.Fatalf("nodes: %d, %v", len(nodes.Items), err)
	}
	// The first node is the cluster's own; others were added.
	s.use(slices.MinFunc(nodes.Items, func(a, b corev1.Node) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	}))
	if s.log, err = audit.From(auditLog(path)); err != nil {
		t.Fatalf("the audit log of the local cluster: %v", err)
	}
	for _, f := range prepare {
		f(s)
	}
	kubectl(t, "apply", "-k", root+"/config/overlays/local")
	s.rolledOut(t, "deployment/mbcas-controller")
	s.rolledOut(t, "daemonset/mbcas-agent")
	return s
}

// use makes a node the one that the pods of the test run on.
func (s *suite) use(node corev1.Node) {
	s.node = node.Name
	s.lastSupply = cpu.Milli(node.Status.Allocatable.Cpu().MilliValue())
}

// cluster is a command of the program that runs the local cluster.
func cluster(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bin/mbcas-cluster", args...)
	cmd.Dir = root
	return cmd
}

// addNode adds a node to the cluster, and removes it after the test when its pods are gone: one whose
// node is removed counts as evicted.
func (s *suite) addNode(t *testing.T, name string, flags ...string) {
	t.Helper()
	t.Cleanup(func() {
		ctx := context.Background()
		err := poll.Until(ctx, s.deadline(2*time.Minute), func() string {
			var pods corev1.PodList
			err := s.List(ctx, &pods, client.MatchingFields{"spec.nodeName": name})
			if err == nil && len(pods.Items) == 0 {
				return ""
			}
			return orError(err, "%d are still there", len(pods.Items))
		})
		if err != nil {
			t.Errorf("pods of node %s, which is to go: %v", name, err)
		}
		output(t, cluster(ctx, "node", "remove", name))
	})
	output(t, cluster(t.Context(), slices.Concat([]string{"node", "add"}, flags, []string{name})...))
}

// uninstall runs the documented command, and returns what it prints.
func uninstall(t *testing.T) string {
	t.Helper()
	return output(t, exec.CommandContext(t.Context(), "make", "-C", root, "--no-print-directory", "uninstall"))
}

// kubectl runs the program that people use.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return output(t, exec.CommandContext(t.Context(), "kubectl", args...))
}

func (s *suite) rolledOut(t *testing.T, what string) {
	t.Helper()
	kubectl(t, "-n", system, "rollout", "status", what, "--timeout="+s.deadline(5*time.Minute).String())
}

// output runs a command.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}

// deadline is the time on the node of the test for what may take that long on a real node.
func (s *suite) deadline(most time.Duration) time.Duration { return time.Duration(s.slower) * most }

// wait waits until ok returns true; its text is the state otherwise. most is the time on a real
// node.
func (s *suite) wait(t *testing.T, most time.Duration, what string, ok func() (bool, string)) {
	t.Helper()
	err := poll.Until(t.Context(), s.deadline(most), func() string {
		done, state := ok()
		if done {
			return ""
		}
		return cmp.Or(state, "not yet")
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func orError(err error, format string, args ...any) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf(format, args...)
}
