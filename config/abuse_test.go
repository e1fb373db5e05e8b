package config_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

var update = flag.Bool("update", false, "rewrite the table of attempts in docs/security.md")

// attempt is something that somebody tries to do.
type attempt struct {
	who  string
	what string // after "tries to"
	do   act
	// by is who refuses it: one of the words below, or the name of a policy; empty where it is what they are for.
	by   string
	says string // part of the refusal
}

// newer are attempts that become possible with a minor version of Kubernetes, and which older ones refuse or drop by themselves.
var newer = map[string]int{"change pod-level resources": 36, "change an init container that runs to completion": 36}

type act func(context.Context, *stage, client.Client) error

// Who refuses, beside our policies.
const (
	byToken   = "authentication"
	byRBAC    = "RBAC" // or, for kubelets, the authorizer that Kubernetes has for them
	bySchema  = "the CRD's schema"
	byServer  = "Kubernetes"
	byNobody  = "Kubernetes: without effect"
	agents    = "mbcas-agent"
	resizes   = "mbcas-controller"
	pods      = "mbcas-controller-pods"
	records   = "mbcas-controller-allocations"
	maps      = "mbcas-controller-configmaps"
	events    = "mbcas-controller-events"
	leases    = "mbcas-leases"
	mbcasOnly = "mbcas-machine-written"
)

// errNoEffect is for what the API server accepts and does not do.
var errNoEffect = errors.New("it was accepted, and had no effect")

func isStrong(who string) bool { return strings.HasSuffix(who, "by mistake") }

// try does it, as a dry run where asked.
func (a attempt) try(t *testing.T, s *stage, dry bool) error {
	t.Helper()
	return a.tryIn(context.Background(), t, s, dry) // also while a test cleans up
}

func (a attempt) tryIn(ctx context.Context, t *testing.T, s *stage, dry bool) error {
	t.Helper()
	c, ok := s.cast[a.who]
	if !ok {
		t.Fatalf("nobody of the cast is called %q", a.who)
	}
	if dry {
		c = client.NewDryRunClient(c)
	}
	return a.do(ctx, s, c)
}

// refused says what is wrong with the answer; "" if it is as it has to be.
func (a attempt) refused(err error) string {
	switch {
	case a.by == "" && err == nil:
		return ""
	case a.by == "":
		return fmt.Sprintf("refused, and should not be: %v", err)
	case err == nil:
		return "accepted, and should be refused by " + a.by
	case !strings.Contains(err.Error(), a.says):
		return fmt.Sprintf("refused with %q, want %q in it", err, a.says)
	case refuser(err) != a.by:
		return fmt.Sprintf("refused by %s, want %s: %v", refuser(err), a.by, err)
	}
	return ""
}

// refuser is who wrote a refusal.
func refuser(err error) string {
	text := err.Error()
	if _, rest, ok := strings.Cut(text, "ValidatingAdmissionPolicy '"); ok {
		name, _, _ := strings.Cut(rest, "'")
		return name
	}
	switch {
	case errors.Is(err, errNoEffect):
		return byNobody
	case apierrors.IsUnauthorized(err):
		return byToken
	case strings.Contains(text, " cannot ") && apierrors.IsForbidden(err), errors.Is(err, errMayNot):
		return byRBAC
	case apierrors.IsInvalid(err) && (strings.HasPrefix(text, "PodAllocation.allocation.mbcas.io ") || strings.HasPrefix(text, "DemandSignal.allocation.mbcas.io ")):
		return bySchema
	}
	return byServer
}

// TestAttempts: each attempt ends as the table says, on a real API server, with the credentials that they would have.
func TestAttempts(t *testing.T) {
	s := open(t)
	run := func(strong bool) {
		for _, a := range attempts() {
			if isStrong(a.who) != strong || s.minor < newer[a.what] {
				continue
			}
			t.Run(a.who+" "+a.what, func(t *testing.T) {
				// What is refused changes nothing, so it may be meant. What is accepted would disturb the others.
				if fault := a.refused(a.try(t, s, a.by == "")); fault != "" {
					t.Error(fault)
				}
			})
		}
	}
	run(false)
	s.strengthen(t)
	run(true)
}

// oldest is the first version of Kubernetes that MBCAS supports.
const oldest = "1.33"

// TestAttemptsOnOldest: the policies are understood by the oldest version of Kubernetes that MBCAS supports, and hold there.
func TestAttemptsOnOldest(t *testing.T) {
	apiserver.Start(t) // or skip
	if os.Getenv(apiserver.VersionKey) != "" {
		t.Skip("optional: this is an older version")
	}
	if os.Getenv("MBCAS_LONG") == "" {
		t.Skip("optional: make test-all runs it (MBCAS_LONG=1)")
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAttempts$", "-test.v")
	c.Env = append(os.Environ(), apiserver.VersionKey+"="+oldest)
	out, err := c.CombinedOutput()
	passed := 0
	for line := range strings.Lines(string(out)) {
		switch line := strings.TrimSpace(line); {
		case strings.HasPrefix(line, "--- PASS: TestAttempts/"):
			passed++
		case !strings.HasPrefix(line, "=== "):
			t.Log(line)
		}
	}
	if want := len(attempts()) - len(newer); err != nil || passed != want {
		t.Errorf("as Kubernetes %s: %v, %d attempts ended as they should, want %d", oldest, err, passed, want)
	}
}

// TestAttemptsTable: docs/security.md lists the refused attempts of the table above.
func TestAttemptsTable(t *testing.T) {
	page := filepath.Join("..", "docs", "security.md")
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- attempts -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(string(raw), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the attempts: %q and %q", page, begin, end)
	}
	want := table(attempts())
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("%s (go test ./config -run TestAttemptsTable -update rewrites it):\n%s", page, d)
	}
}

// table is the refused attempts in Markdown, those of one person that one refuser stops in one row.
func table(all []attempt) string {
	type row struct{ who, by string }
	var rows []row
	whats, refused, wanted := map[row][]string{}, 0, 0
	for _, a := range all {
		if a.by == "" {
			wanted++
			continue
		}
		refused++
		r := row{a.who, a.by}
		if !slices.Contains(rows, r) {
			rows = append(rows, r)
		}
		whats[r] = append(whats[r], a.what)
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		first := func(who string) int { return slices.IndexFunc(all, func(x attempt) bool { return x.who == who }) }
		return first(a.who) - first(b.who)
	})
	out := fmt.Sprintf("\n%d attempts are refused, and %d requests beside them that have to pass do pass.\n\n| who | tries to | refused by |\n| --- | --- | --- |\n", refused, wanted)
	for _, r := range rows {
		by := r.by
		if strings.HasPrefix(by, "mbcas-") {
			by = "`" + by + "`"
		}
		out += fmt.Sprintf("| %s | %s | %s |\n", r.who, strings.Join(whats[r], "; "), by)
	}
	return out + "\n"
}

// TestPluginUser: with the component for users of the plugin, bound as docs/cli.md says, doctor has
// nothing that it may not read.
func TestPluginUser(t *testing.T) {
	s := open(t)
	kubeconfig, err := s.User(t, "plugin-user").KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := cli.Command(cli.Streams{Out: &out, Err: &out}, "test")
	cmd.SetArgs([]string{"--kubeconfig", path, "doctor"})
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
