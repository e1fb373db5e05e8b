package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/lab/baseline"
	"github.com/mbcas/mbcas/internal/lab/experiment"
	"github.com/mbcas/mbcas/internal/lab/report"
	"github.com/mbcas/mbcas/internal/lab/scenario"
)

// compareOptions are the flags of the command.
type compareOptions struct {
	scenarios, policies []string
	seeds               int
	quick               bool
	out                 string
}

// quickLength is how much of each scenario --quick plays: its warm-up and as much again, or this if
// it is more.
const quickLength = 90 * time.Second

func compareCommand(s Streams) *cobra.Command {
	var c compareOptions
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Run scenarios under all policies and write the results",
		Long: "Run every scenario under every policy, with several seeds, on all CPUs, and write\n" +
			"  results.txt   one line per run in the Go benchmark format, for benchstat\n" +
			"  results.csv   the same as a table\n" +
			"  report.html   tables and pictures on one page that needs nothing else\n" +
			"The figures depend on the scenarios, policies and seeds alone. Ctrl-C ends early and keeps completed runs.",
		Example: "  mbcas-lab compare\n" +
			"  mbcas-lab compare --quick\n" +
			"  mbcas-lab compare --scenario duel --policy mbcas --policy static --seeds 10\n" +
			"  benchstat -ignore /seed -row /scenario -col /policy out/compare/results.txt",
		Args: checkArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.quick && !cmd.Flags().Changed("seeds") {
				c.seeds = 1
			}
			return c.run(cmd.Context(), s)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.scenarios, "scenario", nil, "a scenario of the catalogue, a file of one, or a file of recorded load, as in load.csv=0.7 with its scale; may be given again (default: the catalogue)")
	f.StringArrayVar(&c.policies, "policy", nil, "a policy; may be given again (default: all)")
	f.IntVar(&c.seeds, "seeds", 3, "how many times each scenario runs, each time with other load")
	f.BoolVar(&c.quick, "quick", false, fmt.Sprintf("one seed unless --seeds is given, and %v of each scenario, or twice its warm-up where that is longer", quickLength))
	f.StringVar(&c.out, "out", filepath.Join("out", "compare"), "the folder to write to")
	return cmd
}

// run runs, measures and writes.
func (c compareOptions) run(ctx context.Context, s Streams) error {
	if c.seeds < 1 {
		return usage("--seeds is %d: want at least 1", c.seeds)
	}
	if c.out == "" {
		return usage("--out is empty: name the folder to write to, or leave the flag out")
	}
	chosen, err := choosePolicies(c.policies)
	if err != nil {
		return err
	}
	scenarios, err := chooseScenarios(c.scenarios)
	if err != nil {
		return err
	}
	if err := createOut(c.out); err != nil {
		return err
	}
	plan := plan{scenarios: scenarios, policies: chosen, seeds: c.seeds}
	if c.quick {
		plan.length = quickLength
	}
	began := time.Now()
	r := plan.run(ctx, newProgress(s.Err, "runs"))
	if len(r.Summaries) == 0 {
		return errors.New("stopped before any run was done; nothing was written")
	}
	if err := writeAll(c.out, r); err != nil {
		return err
	}
	var said strings.Builder
	fmt.Fprintf(&said, "%d runs of %d scenarios under %d policies in %v\n", len(r.Summaries), len(scenarios), len(chosen), time.Since(began).Round(time.Second))
	for _, f := range files {
		fmt.Fprintf(&said, "  %s\n", filepath.Join(c.out, f.name))
	}
	_, err = io.WriteString(s.Out, said.String())
	if r.Missing > 0 {
		err = errors.Join(fmt.Errorf("stopped: %d of %d runs were not done, and the files hold the others", r.Missing, r.Missing+len(r.Summaries)), err)
	}
	return err
}

// files are the output.
var files = []struct {
	name  string
	write func(io.Writer, experiment.Results) error
}{{"results.txt", experiment.WriteLines}, {"results.csv", experiment.WriteCSV}, {"report.html", report.Write}}

func writeAll(dir string, r experiment.Results) error {
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		out, err := os.Create(path)
		if err != nil {
			return err
		}
		if err := errors.Join(f.write(out, r), out.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// choosePolicies are the named policies, or all, each once and in the order of reports.
func choosePolicies(names []string) ([]baseline.Policy, error) {
	all := experiment.Policies()
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		if _, err := findPolicy(name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(all, func(p baseline.Policy) bool { return !slices.Contains(names, p.Name) }), nil
}

// chooseScenarios are the named scenarios, or the catalogue, with their references. A name like a
// path is a file.
func chooseScenarios(names []string) ([]*scenario.Scenario, error) {
	if len(names) == 0 {
		return scenario.Catalogue(), nil
	}
	var chosen []*scenario.Scenario
	from := map[string]string{} // the argument that named it
	for _, name := range names {
		s, err := findScenario(name)
		if err != nil {
			return nil, err
		}
		switch before, taken := from[s.Name]; {
		case !taken:
			chosen, from[s.Name] = append(chosen, s), name
		case before != name:
			return nil, usage("--scenario %s and --scenario %s both have the name %q: rename one", before, name, s.Name)
		}
	}
	for _, s := range chosen {
		if _, there := from[s.Reference]; there || s.Reference == "" {
			continue
		}
		reference, err := scenario.Find(s.Reference)
		if err != nil {
			return nil, usage("scenario %s: its reference %q is not in the catalogue; add its file with --scenario", s.Name, s.Reference)
		}
		chosen, from[s.Reference] = append(chosen, reference), s.Reference
	}
	return chosen, nil
}

func policyNames(policies []baseline.Policy) []experiment.Named {
	var names []experiment.Named
	for _, p := range policies {
		names = append(names, experiment.Named{Name: p.Name, Description: p.Description})
	}
	return names
}

func scenarioNames(scenarios []*scenario.Scenario) []experiment.Named {
	var names []experiment.Named
	for _, s := range scenarios {
		names = append(names, experiment.Named{Name: s.Name, Description: s.Description})
	}
	return names
}
