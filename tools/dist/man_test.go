package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mbcas/mbcas/internal/cli"
	lab "github.com/mbcas/mbcas/internal/lab/cli"
)

// TestManPages: every command that a user sees has a page with its short text and each of its flags, and there are no
// other pages. Where groff is installed, it finds no fault in them.
func TestManPages(t *testing.T) {
	r := release{version: "v0.1.0", made: time.Unix(1e9, 0).UTC()}
	archive, err := r.man()
	if err != nil {
		t.Fatal(err)
	}
	pages, err := unpack(manPages, archive)
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		commands++
		page := string(pages["man1/"+strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"].text)
		if !strings.Contains(page, roff(cmd.Short)) || !strings.HasPrefix(page, ".TH ") {
			t.Errorf("%s has the page %.200q", cmd.CommandPath(), page)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			line := regexp.MustCompile(`(?m)^(\\-\w, )?` + regexp.QuoteMeta(`\-\-`+roff(f.Name)) + `( .+)?$`)
			if n := len(line.FindAllString(page, -1)); n != map[bool]int{false: 1}[f.Hidden] {
				t.Errorf("%s: --%s, hidden: %v, is %d times on its page", cmd.CommandPath(), f.Name, f.Hidden, n)
			}
		})
		for _, c := range cmd.Commands() {
			check(c)
		}
	}
	check(cli.Command(cli.Streams{Out: io.Discard, Err: io.Discard}, ""))
	check(lab.Command(lab.Streams{Out: io.Discard, Err: io.Discard}, ""))
	if commands != len(pages) || commands < 20 {
		t.Errorf("%d pages of %d commands, want one each, and at least 20", len(pages), commands)
	}
	if got := roff(".x\n'y' \\ -z"); got != "\\&.x\n\\(aqy\\(aq \\e \\-z" {
		t.Errorf("roff makes %q", got)
	}
	formatter, err := exec.LookPath("groff")
	if err != nil {
		return
	}
	for name, page := range pages {
		path := filepath.Join(t.TempDir(), filepath.Base(name))
		if err := os.WriteFile(path, page.text, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), formatter, "-man", "-ww", "-z", "-Tutf8", path).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
