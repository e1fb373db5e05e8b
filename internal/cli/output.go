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
	plain  output = ""
	asWide output = "wide"
	asJSON output = "json"
	asYAML output = "yaml"
)

// outputFlag adds -o with the given forms.
func outputFlag(cmd *cobra.Command, o *output, forms ...output) {
	cmd.Flags().VarP(&outputValue{o, forms}, "output", "o", "output form: "+join(forms))
	names := strings.Split(join(forms), ", ")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

func join(forms []output) string {
	names := make([]string, len(forms))
	for i, f := range forms {
		names[i] = string(f)
	}
	return strings.Join(names, ", ")
}

type outputValue struct {
	o     *output
	forms []output
}

func (v *outputValue) String() string { return string(*v.o) }

func (v *outputValue) Type() string { return "form" }

func (v *outputValue) Set(s string) error {
	if !slices.Contains(v.forms, output(s)) {
		return fmt.Errorf("want one of %s", join(v.forms))
	}
	*v.o = output(s)
	return nil
}

// encode writes v in the form o; it reports false for forms that are text.
func encode(w io.Writer, o output, v any) (bool, error) {
	var data []byte
	var err error
	switch o {
	case asJSON:
		data, err = json.MarshalIndent(v, "", "  ")
		data = append(data, '\n')
	case asYAML:
		data, err = yaml.Marshal(v)
	default:
		return false, nil
	}
	if err == nil {
		_, err = w.Write(data)
	}
	return true, err
}
