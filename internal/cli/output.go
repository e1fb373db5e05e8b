package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// output is the value of -o; "" is the plain table.
type output string

const (
	asWide output = "wide"
	asJSON output = "json"
	asYAML output = "yaml"
	asCSV  output = "csv" // of report, which writes it
)

// outputFlag adds -o with the given forms.
func outputFlag(cmd *cobra.Command, o *output, forms ...output) {
	var names []string
	for _, form := range forms {
		names = append(names, string(form))
	}
	cmd.Flags().VarP(&outputValue{o, names}, "output", "o", "output form: "+strings.Join(names, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

type outputValue struct {
	*output
	forms []string
}

func (v *outputValue) String() string { return string(*v.output) }

func (v *outputValue) Type() string { return "form" }

func (v *outputValue) Set(s string) error {
	if !slices.Contains(v.forms, s) {
		return fmt.Errorf("want one of %s", strings.Join(v.forms, ", "))
	}
	*v.output = output(s)
	return nil
}

// write writes v in the form o: encoded, or as text.
func (o output) write(w io.Writer, v any, text func() string) error {
	var data []byte
	var err error
	switch o {
	case asJSON:
		data, err = json.MarshalIndent(v, "", "  ")
		data = append(data, '\n')
	case asYAML:
		data, err = yaml.Marshal(v)
	default:
		data = []byte(text())
	}
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}
