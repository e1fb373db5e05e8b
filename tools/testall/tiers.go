package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// The tiers. Each includes the first.
const (
	tierTest = "test" // every package, the API server, one end-to-end path
	tierAll  = "all"  // every suite
	tierCI   = "ci"   // the checks, the tier test, and the suites that a change can affect
)

// always are the suites of the tiers test and ci.
var always = []string{"unit", "path"}

// unknownChange are the further suites of the tier ci where nothing tells what changed.
var unknownChange = []string{"fuzz", "simulations", "virtual", "platform"}

// choose returns the suites to run, in order.
func (r *repo) choose(ctx context.Context, o options) ([]suite, error) {
	all := r.suites()
	if o.only != "" {
		i := slices.IndexFunc(all, func(s suite) bool { return s.name == o.only })
		if i < 0 {
			return nil, fmt.Errorf("no suite %q; there are %s", o.only, names(all))
		}
		return all[i : i+1], nil
	}
	switch o.tier {
	case tierTest:
		return tier(all, always, nil), nil
	case tierAll:
		return tier(all, strings.Fields(names(all)), []string{"check"}), nil
	case tierCI:
		base, files, ok := r.changes(ctx)
		if !ok {
			fmt.Fprintf(r.out, "no commit to compare with: %v run beside make test\n", unknownChange)
			return ci(all, unknownChange), nil
		}
		wanted := affected(all, files)
		fmt.Fprintf(r.out, "%d files changed since %s; they can affect: %s\n",
			len(files), base, strings.Join(wanted, ", "))
		return ci(all, wanted), nil
	}
	return nil, fmt.Errorf("no tier %q; there are %s, %s and %s", o.tier, tierTest, tierAll, tierCI)
}

// tier returns the named suites in their order, without those that are left out.
func tier(all []suite, named, without []string) (chosen []suite) {
	for _, s := range all {
		if slices.Contains(named, s.name) && !slices.Contains(without, s.name) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// ci returns the checks, the tier test, and what else is wanted and fits.
func ci(all []suite, wanted []string) []suite {
	chosen := tier(all, slices.Concat([]string{"check"}, always, wanted), nil)
	for i := range chosen {
		chosen[i].optional = !slices.Contains(always, chosen[i].name) && chosen[i].name != "check"
	}
	return chosen
}

// affected are the names of the suites that a change of the files can affect.
func affected(all []suite, files []string) (wanted []string) {
	for _, s := range all {
		if slices.ContainsFunc(files, func(file string) bool {
			return slices.ContainsFunc(s.covers, func(prefix string) bool { return strings.HasPrefix(file, prefix) })
		}) {
			wanted = append(wanted, s.name)
		}
	}
	return wanted
}

// changes are the files that differ from the main branch, or from the last tag where there is none. ok is
// false where neither is known or nothing differs, as on a fresh clone of the main branch.
func (r *repo) changes(ctx context.Context) (base string, files []string, ok bool) {
	git := func(args ...string) (string, error) { return r.output(exec.CommandContext(ctx, "git", args...)) }
	base, err := git("merge-base", "HEAD", "origin/main")
	if err != nil {
		base, err = git("describe", "--tags", "--abbrev=0")
	}
	if err != nil {
		return "", nil, false
	}
	list, err := git("diff", "--name-only", "--no-renames", base)
	files = strings.Fields(list)
	return base, files, err == nil && len(files) > 0
}

func names(all []suite) string {
	var list []string
	for _, s := range all {
		list = append(list, s.name)
	}
	return strings.Join(list, " ")
}
