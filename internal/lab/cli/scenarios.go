package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/lab/scenario"
)

func scenariosCommand(s Streams) *cobra.Command {
	var traces string
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
				_, err := s.Out.Write(scenario.Schema)
				return err
			case len(args) == 1:
				text, err := scenario.Text(args[0])
				if err != nil {
					return UsageError{err}
				}
				_, err = s.Out.Write(text)
				return err
			}
			list := scenario.Catalogue()
			if traces != "" {
				list = append(list, scenario.Traced(traces)...)
			}
			_, err := fmt.Fprint(s.Out, scenarioTable(list))
			return err
		},
	}
	cmd.Flags().StringVar(&traces, "traces", "", "folder of recorded load; the scenarios that use it are listed as well")
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of scenario files")
	return cmd
}

func scenarioTable(list []*scenario.Scenario) *table {
	t := &table{header: []string{"SCENARIO", "CORES", "PODS", "LENGTH", "SHOWS"}, left: 5}
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
