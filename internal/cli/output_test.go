package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/cli/format"
)

// TestForms shows the forms of output of list, usage and nodes, in testdata/forms.txt.
func TestForms(t *testing.T) {
	var b strings.Builder
	for _, args := range [][]string{
		{"list", "-o", "name"},
		{"list", "-o", "jsonpath={.managed} of {.total}: {.pods[*].pod}"},
		{"list", "-o", "custom-columns=POD:.pod,LIMIT:.limit,USAGE:.figures.usage,BY:.figures.boundBy"},
		{"usage", "-o", "name"},
		{"usage", "-o", "custom-columns=POD:.pod,THROTTLED:.figures.throttledPercent"},
		{"nodes", "-o", "name"},
		{"nodes", "-o", "jsonpath={range .nodes[*]}{.node} {.price}{end}"},
	} {
		c := newCluster(t, shop()...)
		c.Round = respond(lastRound)
		stdout, stderr, err := c.run(t, args...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
		}
		b.WriteString("$ kubectl mbcas " + strings.Join(args, " ") + "\n" + stdout + stderr + "\n")
	}
	golden(t, "forms", b.String())
}

// TestNarrow shows list, usage and nodes on a colored terminal of 60 columns, in testdata/narrow.txt; escape sequences
// are written as in Go.
func TestNarrow(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	var b strings.Builder
	for _, args := range []string{"list", "usage", "nodes"} {
		c := newCluster(t, append(shop(), agentLease("node-2", 46e9, ""))...)
		c.Round = respond(lastRound)
		var out bytes.Buffer
		f := newFlags()
		f.connected = &c.Access
		screen := func() format.Screen { return format.Screen{Width: 60, Height: 20} }
		cmd := command(Streams{Out: &out, Err: &out, Screen: screen}, "test", f)
		cmd.SetArgs([]string{args})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		for line := range strings.Lines(out.String()) {
			plain := strings.NewReplacer("\x1b[31m", "", "\x1b[33m", "", "\x1b[36m", "", "\x1b[0m", "").Replace(line)
			if isRow := strings.Contains(plain, "   ") && !strings.HasPrefix(plain, " "); isRow && len(strings.TrimSpace(plain)) > 60 {
				t.Errorf("%s: wider than the terminal: %q", args, plain)
			}
		}
		b.WriteString("$ kubectl mbcas " + args + "\n" + strings.ReplaceAll(out.String(), "\x1b", `\x1b`) + "\n")
	}
	golden(t, "narrow", b.String())
}
