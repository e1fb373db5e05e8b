//go:build linux

package cli

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestRealRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"real --length 2s":  "--length 2s: want more than the warm-up of the table, 2s",
		"real --length 1ns": "--length 1ns: want more than the warm-up of the table, 2s",
		"real --length -1s": "--length -1s: want more than 0",
	} {
		if _, err := lab(t, strings.Fields(args)...); !isUsage(err) || err.Error() != want {
			t.Errorf("%q: got %v, want the usage error %s", args, err, want)
		}
	}
}

// TestRealPrintsNoEmptyTable: the first run fails on any machine, as it is for one core more.
func TestRealPrintsNoEmptyTable(t *testing.T) {
	text := strings.NewReplacer("nodes: 2\n", "", "cores: 2", fmt.Sprint("cores: ", runtime.NumCPU()+1)).Replace(small)
	if out, err := lab(t, "real", written(t, "small.yaml", text)); err == nil || strings.Contains(out, "OTHERS") {
		t.Errorf("it says %v and\n%s", err, out)
	}
}
