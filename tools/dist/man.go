package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mbcas/mbcas/internal/cli"
	lab "github.com/mbcas/mbcas/internal/lab/cli"
)

// manPages is the archive of the pages of the plugin and of the lab, to be unpacked in a folder of MANPATH.
const manPages = "mbcas-man.tar.gz"

// man is that archive. Pages are made of the commands' own definitions, one for each command.
func (r release) man() ([]byte, error) {
	pages := map[string]string{}
	r.addPages(pages, cli.Command(cli.Streams{Out: io.Discard, Err: io.Discard}, r.version))
	r.addPages(pages, lab.Command(lab.Streams{Out: io.Discard, Err: io.Discard}, r.version))
	var files []file
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		files = append(files, file{"man1/" + name + ".1", 0o644, []byte(pages[name])})
	}
	return r.tarball(files)
}

// addPages adds the page of a command and of those below it.
func (r release) addPages(pages map[string]string, cmd *cobra.Command) {
	if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() {
		return
	}
	pages[pageName(cmd)] = r.page(cmd)
	for _, c := range cmd.Commands() {
		r.addPages(pages, c)
	}
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// page is a page in the form of man(7).
func (r release) page(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q 1 %q %q %q\n", strings.ToUpper(pageName(cmd)), r.made.Format("2006-01-02"),
		"MBCAS "+r.version, "MBCAS")
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(pageName(cmd)), roff(cmd.Short))
	b.WriteString(".SH SYNOPSIS\n" + preformatted(cmd.UseLine()))
	b.WriteString(".SH DESCRIPTION\n" + preformatted(cmp.Or(cmd.Long, cmd.Short)))
	flags(&b, "OPTIONS", cmd.NonInheritedFlags())
	flags(&b, "OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n" + preformatted(cmd.Example))
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, pageName(cmd.Parent()))
	}
	for _, c := range cmd.Commands() {
		if !c.Hidden && !c.IsAdditionalHelpTopicCommand() {
			others = append(others, pageName(c))
		}
	}
	if len(others) > 0 {
		b.WriteString(".SH SEE ALSO\n")
		for i, name := range others {
			fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(name), map[bool]string{true: " ,"}[i < len(others)-1])
		}
	}
	return b.String()
}

// flags is a section about the flags that are not hidden; none has no section.
func flags(b *strings.Builder, title string, set *pflag.FlagSet) {
	head := ".SH " + title + "\n"
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		takes, usage := pflag.UnquoteUsage(f)
		name := "\\-\\-" + roff(f.Name)
		if f.Shorthand != "" {
			name = "\\-" + roff(f.Shorthand) + ", " + name
		}
		if takes != "" {
			name += " " + roff(takes)
		}
		fmt.Fprintf(b, "%s.TP\n%s\n%s\n", head, name, roff(usage))
		head = ""
	})
}

// preformatted is a text whose lines stay as they are.
func preformatted(text string) string { return ".nf\n" + roff(strings.Trim(text, "\n")) + "\n.fi\n" }

var special = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// roff is a text in which nothing is a request or an escape of roff.
func roff(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if lines[i] = special.Replace(line); strings.HasPrefix(line, ".") {
			lines[i] = `\&` + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}
