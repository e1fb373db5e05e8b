package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/lab/scenario"
)

func scenariosCommand(s Streams) *cobra.Command {
	var schema bool
	cmd := &cobra.Command{
		Use:   "scenarios [SCENARIO]",
		Short: "List the scenarios that ship, or print the file of one",
		Example: "  mbcas-lab scenarios\n" +
			"  mbcas-lab scenarios duel > mine.yaml           # begin a scenario of your own\n" +
			"  mbcas-lab scenarios --schema > schema.json     # for the editor",
		Args: checkArgs(0, 1, ""),
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case schema:
				text, err := scenario.Schema()
				if err != nil {
					return err
				}
				_, err = s.Out.Write(text)
				return err
			case len(args) == 1:
				text, err := scenario.Text(args[0])
				if err != nil {
					return UsageError{Err: err}
				}
				_, err = s.Out.Write(text)
				return err
			}
			_, err := fmt.Fprint(s.Out, scenarioTable(scenario.Catalogue()))
			return err
		},
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of scenario files")
	return cmd
}

func scenarioTable(list []*scenario.Scenario) *table {
	t := &table{header: []string{"SCENARIO", "CORES", "PODS", "LENGTH", "SHOWS"}}
	for _, s := range list {
		pods := 0
		for _, p := range s.Pods {
			pods += p.Replicas
		}
		shows, _, _ := strings.Cut(s.Description, ". ")
		t.add(s.Name, fmt.Sprint(s.Node.Cores), fmt.Sprint(pods), fmt.Sprintf("%.0fs", s.Length.Seconds()), strings.TrimSuffix(shows, "."))
	}
	return t
}

// findScenario is a scenario of the catalogue or of a file. Only what is wrong with a file's content
// is no usage error.
func findScenario(what string) (*scenario.Scenario, error) {
	s, err := scenario.Find(what)
	if found := (scenario.Problems)(nil); err != nil && !errors.As(err, &found) {
		return nil, UsageError{Err: err}
	}
	return s, err
}
