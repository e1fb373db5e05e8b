package whatif

import (
	"os"
	"strings"
	"testing"
)

// TestFlagNames: the page names in its questions and commands the settings that commands have, and no others. It cannot
// read the constants: its script is no Go, and its parameters are those of a URL.
func TestFlagNames(t *testing.T) {
	var flags recorder
	(&Flags{}).Bind(&flags)
	if want := len(podFlags) + 3; len(flags.names) != want {
		t.Errorf("the flags are %v, want %d", flags.names, want)
	}
	for _, file := range []string{"../page/figures/figures.go", "../page/web/whatif.js"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range flags.names {
			if !strings.Contains(string(text), `"`+name+`"`) && !strings.Contains(string(text), "query."+name+" =") {
				t.Errorf("%s does not name %s", file, name)
			}
		}
	}
	script, err := os.ReadFile("../page/web/whatif.js")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(script), "\n  { flag: \""); n != len(podFlags) {
		t.Errorf("the page has %d changes of pods, the commands %d", n, len(podFlags))
	}
}

// recorder is a FlagSet that keeps names.
type recorder struct{ names []string }

func (r *recorder) Float64Var(_ *float64, name string, _ float64, _ string) {
	r.names = append(r.names, name)
}
func (r *recorder) StringVar(_ *string, name, _, _ string)         { r.names = append(r.names, name) }
func (r *recorder) BoolVar(_ *bool, name string, _ bool, _ string) { r.names = append(r.names, name) }
func (r *recorder) StringArrayVar(_ *[]string, name string, _ []string, _ string) {
	r.names = append(r.names, name)
}
func (r *recorder) Changed(string) bool { return false }
