package config_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/atlength"
	"github.com/mbcas/mbcas/internal/testing/must"
)

var update = flag.Bool("update", false, "rewrite docs/security.md")

// request is one row of the access table.
type request struct {
	user, action string // the user tries to do the action
	send         send
	// by is what refuses it: one of the words below, or the name of a policy; empty where it is allowed.
	by   string
	says string // part of the refusal
}

// newer are requests that become possible with a minor version of Kubernetes. Older ones refuse or drop them.
var newer = map[string]int{"change pod-level resources": 36, "change an init container that runs to completion": 36}

// What refuses requests beside our policies.
const (
	byRBAC    = "RBAC" // or, for kubelets, the authorizer that Kubernetes has for them
	byServer  = "Kubernetes"
	byNothing = "Kubernetes: without effect"
	agents    = "mbcas-agent"
	resizes   = "mbcas-controller"
	pods      = "mbcas-controller-pods"
	records   = "mbcas-controller-allocations"
	maps      = "mbcas-controller-configmaps"
	events    = "mbcas-controller-events"
	leases    = "mbcas-leases"
	mbcasOnly = "mbcas-machine-written"
	told      = "mbcas-node-allocations"
)

// elevated says whether the request is made by an account that is cluster-admin by mistake.
func (r request) elevated() bool { return r.user == elevatedAgent || r.user == elevatedController }

// try makes the request, as a dry run where asked.
func (r request) try(ctx context.Context, t *testing.T, e *environment, dry bool) error {
	t.Helper()
	c := e.users[r.user]
	if dry {
		c = client.NewDryRunClient(c)
	}
	return r.send(call{ctx, e, c})
}

// fault says what is wrong with the answer; "" if it is as it has to be.
func (r request) fault(err error) string {
	switch {
	case r.by == "" && err == nil:
		return ""
	case r.by == "":
		return fmt.Sprintf("refused, and should not be: %v", err)
	case err == nil:
		return "accepted, and should be refused by " + r.by
	case !strings.Contains(err.Error(), r.says):
		return fmt.Sprintf("refused with %q, want %q in it", err, r.says)
	case refusedBy(err) != r.by:
		return fmt.Sprintf("refused by %s, want %s: %v", refusedBy(err), r.by, err)
	}
	return ""
}

func refusedBy(err error) string {
	text := err.Error()
	if _, rest, ok := strings.Cut(text, "ValidatingAdmissionPolicy '"); ok {
		name, _, _ := strings.Cut(rest, "'")
		return name
	}
	switch {
	case errors.Is(err, errNoEffect):
		return byNothing
	case strings.Contains(text, " cannot ") && apierrors.IsForbidden(err), errors.Is(err, errNotAllowed):
		return byRBAC
	}
	return byServer
}

// TestAccess: each request of the table ends as it says, on a real API server, with the credentials of its user.
func TestAccess(t *testing.T) {
	e := open(t)
	run := func(elevated bool) {
		for _, r := range accessTable() {
			if r.elevated() != elevated || e.Minor(t) < newer[r.action] {
				continue
			}
			t.Run(r.user+" "+r.action, func(t *testing.T) {
				// What is refused changes nothing. What is accepted would disturb the others, so it is a dry run.
				if fault := r.fault(r.try(t.Context(), t, e, r.by == "")); fault != "" {
					t.Error(fault)
				}
			})
		}
	}
	run(false)
	e.elevate(t)
	run(true)
}

// TestAccessPage: docs/security.md has the table. go test ./config -run TestAccessPage -update rewrites it.
func TestAccessPage(t *testing.T) {
	const path, begin, end = "../docs/security.md", "<!-- access -->\n", "<!-- end -->"
	page, err := os.ReadFile(path)
	must.Succeed(t, err)
	before, rest, ok := strings.Cut(string(page), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	type row struct{ user, by string }
	var order []row
	actions := map[row][]string{}
	for _, r := range accessTable() {
		if k := (row{r.user, r.by}); r.by != "" {
			if actions[k] == nil {
				order = append(order, k)
			}
			actions[k] = append(actions[k], r.action)
		}
	}
	slices.SortStableFunc(order, func(a, b row) int { return cmp.Compare(a.user, b.user) })
	want := "\n| user | tries to | refused by |\n| --- | --- | --- |\n"
	for _, k := range order {
		want += fmt.Sprintf("| %s | %s | %s |\n", k.user, strings.Join(actions[k], "; "), k.by)
	}
	if want += "\n"; want == have {
		return
	}
	if !*update {
		t.Fatalf("%s does not have the access table; go test ./config -run TestAccessPage -update rewrites it", path)
	}
	must.Succeed(t, os.WriteFile(path, []byte(before+begin+want+end+after), 0o644))
}

// oldest is the first version of Kubernetes that MBCAS supports.
const oldest = "1.33"

// TestAccessOnOldest: the oldest version of Kubernetes that MBCAS supports knows the policies and the CRDs, and
// enforces them.
func TestAccessOnOldest(t *testing.T) {
	apiserver.Start(t) // or skip
	if os.Getenv(apiserver.VersionKey) != "" {
		t.Skip("optional: this is an older version")
	}
	if !atlength.On() {
		t.Skip("optional: make test-all runs it (MBCAS_LONG=1)")
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^(TestAccess|TestSchema)$", "-test.v")
	c.Env = append(os.Environ(), apiserver.VersionKey+"="+oldest)
	out, err := c.CombinedOutput()
	text := string(out)
	passed := strings.Count(text, "--- PASS: TestAccess/")
	want := len(accessTable()) - len(newer)
	if err != nil || passed != want || !strings.Contains(text, "--- PASS: TestSchema ") {
		t.Errorf("as Kubernetes %s: %v, %d requests ended as they should, want %d:\n%s", oldest, err, passed, want, text)
	}
}

// TestPluginUser: with the component for users of the plugin, bound as docs/cli.md says, doctor may read all it reads.
func TestPluginUser(t *testing.T) {
	e := open(t)
	var out strings.Builder
	cmd := cli.Command(cli.Streams{Out: &out, Err: &out}, "test")
	cmd.SetArgs([]string{"--kubeconfig", e.Kubeconfig(t, "plugin-user"), "doctor"})
	if err := cmd.ExecuteContext(t.Context()); err != nil && !errors.Is(err, cli.ErrFindings) { // nothing runs here
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "cannot be read") {
			t.Error(line)
		}
	}
	if !strings.Contains(out.String(), "may watch pods, patch pods/resize") {
		t.Errorf("doctor does not know what the controller may do:\n%s", out.String())
	}
}
