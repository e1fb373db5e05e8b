package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestOutput shows what each reading command prints of the shop, in testdata/*.txt. The agent of its
// node reports a round with one of the pods.
func TestOutput(t *testing.T) {
	for name, args := range map[string]string{
		"list":               "list",
		"list-all":           "list --all --sort throttled",
		"list-wide":          "list -A -o wide",
		"list-selected":      "list -l app=none",
		"list-node":          "list -A --node node-9",
		"list-yaml":          "list -n lab -o yaml",
		"list-off":           "list -n lab",
		"usage":              "usage -A",
		"usage-pod":          "usage batch-x2",
		"usage-none":         "usage -n lab",
		"nodes":              "nodes",
		"explain-live":       "explain cart-7d9f",
		"explain-price":      "explain pod/batch-x2",
		"explain-pending":    "explain fresh-1",
		"explain-failed":     "explain stuck-1",
		"explain-opted-out":  "explain pinned-1",
		"explain-guaranteed": "explain rich-1",
		"mode":               "mode",
		"mode-one":           "mode lab",
		"mode-dry-run":       "mode shop restore --dry-run",
		"version":            "version",
		"doctor":             "doctor",
		"restore-none":       "restore quiet-0",
		"resize-same":        "resize stuck-1 --cpu-limit 300m",
		"help":               "--help",
		"resize-help":        "resize --help",
		"completion-pods":    "__complete explain ca",
		"completion-modes":   "__complete mode shop ",
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, shop()...)
			c.Round = respond(lastRound)
			c.golden(t, name, args)
		})
	}
}

// golden compares what a command prints with a file of testdata. The command writes nothing.
func (c *fakeCluster) golden(t *testing.T, name, args string) {
	t.Helper()
	stdout, stderr, err := c.run(t, strings.Split(args, " ")...)
	must.Succeed(t, err)
	golden(t, name, "$ kubectl mbcas "+args+"\n"+stdout+stderr)
	if len(c.writes) > 0 {
		t.Errorf("%s wrote: %v", args, c.writes)
	}
}

// TestErrors shows the errors of the commands with their exit codes, in testdata/errors.txt.
func TestErrors(t *testing.T) {
	var b strings.Builder
	for _, args := range []string{
		"lst", "list web", "list --sort colour", "nodes --sort colour", "nodes node-1", "list -o csv", "list -l ==", "explain", "explain a b", "explain deployment/web",
		"explain missing", "explain cart", "list -n nowhere", "usage fresh-1", "usage cart-7d9f -A", "mode shop sometimes", "mode kube-system off",
		"resize cart-7d9f", "resize cart-7d9f --cpu-limit -1",
		"resize cart-7d9f --cpu-limit 100m", "resize cart-7d9f --cpu-limit 300m",
		"resize poor-1 --cpu-limit 1",
		"restore", "restore -A", "restore cart-7d9f --all", "--colour",
	} {
		c := newCluster(t, shop()...)
		stdout, stderr, err := c.run(t, strings.Split(args, " ")...)
		var usage UsageError
		code := 1
		switch {
		case err == nil:
			t.Errorf("%s: no error, printed %q", args, stdout)
			continue
		case errors.As(err, &usage):
			code = 2
		}
		b.WriteString("$ kubectl mbcas " + args + "\n" + stdout + stderr + "error: " + err.Error() + "\n")
		b.WriteString(map[int]string{1: "(exit 1)\n\n", 2: "(exit 2)\n\n"}[code])
		if len(c.writes) > 0 {
			t.Errorf("%s wrote: %v", args, c.writes)
		}
	}
	golden(t, "errors", b.String())
}

// TestReadsOnly: list, usage, nodes, explain and doctor write nothing, on a healthy cluster and an empty
// one.
func TestReadsOnly(t *testing.T) {
	for name, c := range map[string]*fakeCluster{"shop": newCluster(t, shop()...), "empty": newCluster(t)} {
		for _, args := range []string{"list -A", "list --all -o json", "usage -A", "nodes", "explain cart-7d9f", "doctor", "mode", "version"} {
			_, _, _ = c.run(t, strings.Split(args, " ")...) // errors are another test's
			if len(c.writes) > 0 {
				t.Fatalf("%s: %s wrote %v", name, args, c.writes)
			}
		}
	}
}

const lastRound = `{"at":"2026-11-21T11:59:59Z","took":"2ms",
 "node":{"price":1.204,"cleared":1.2,"supply":"3400m","demand":"5100m","usage":"3390m","system":"210m","pressure":0.31,"floorsExceedSupply":false,"managed":4,"unmanaged":3,"warmingUp":1,"stale":0},
 "pods":[{"namespace":"shop","name":"cart-7d9f","uid":"uid-cart-7d9f","limit":"900m","desired":"720m","containers":{"app":"720m"},
   "usage":"705m","demand":"760m","throttled":0.12,"pressure":0.2,"memoryPressure":0,"ioPressure":0.12,"budget":864,"floor":"210m","ceiling":"4000m","boundBy":"Price"}]}`

// TestRoundsUnreadable: if the last round cannot be read, the published decisions are shown, with a
// note that says why.
func TestRoundsUnreadable(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/portforward"}, "mbcas-agent-abcde", errors.New("no"))
	for name, answer := range map[string]func(context.Context, *corev1.Pod) ([]byte, error){
		"round-forbidden": func(context.Context, *corev1.Pod) ([]byte, error) { return nil, forbidden },
		"round-malformed": respond("<html>"),
	} {
		c := newCluster(t, shop()...)
		c.Round = answer
		c.golden(t, name, "usage")
	}
}

// TestExplainBetween: explain does not show the state from before a change that the status does not
// show yet.
func TestExplainBetween(t *testing.T) {
	objects := shop()
	edit(t, objects, "cart-7d9f", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = apiserver.Container("", "", "650m").Resources.Limits
	})
	if stdout := newCluster(t, objects...).prints(t, "explain cart-7d9f", "have just changed"); strings.Contains(stdout, "Settled") {
		t.Errorf("\n%s", stdout)
	}
}
