package atlength

import (
	"flag"
	"testing"
)

// TestSeeds: properties take the same cases in each run, unless they run at length.
func TestSeeds(t *testing.T) {
	want := Of("1", "0")
	if f := flag.Lookup("rapid.seed"); f == nil || f.Value.String() != want {
		t.Errorf("%+v, want %s", f, want)
	}
}
