package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/lab/baseline"
	"github.com/mbcas/mbcas/internal/lab/experiment"
)

// findPolicy finds one by its name.
func findPolicy(name string) (baseline.Policy, error) {
	var names []string
	for _, p := range experiment.Policies() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return baseline.Policy{}, usage("--policy %q: want one of %s", name, strings.Join(names, ", "))
}

func policiesCommand(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "policies",
		Short: "List the policies that set limits",
		Args:  checkArgs(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			t := &table{header: []string{"POLICY", "WHAT IT DOES"}}
			for _, p := range experiment.Policies() {
				t.add(p.Name, p.Description)
			}
			_, err := fmt.Fprint(s.Out, t)
			return err
		},
	}
}
