//go:build linux

package testbed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/sim"
)

// TestMain lets the test binary be the process of the bed.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type still struct{}

func (still) Turn(r *sim.Reading) ([]sim.Action, time.Duration) { return nil, r.Now + time.Hour }

func bed(t *testing.T) Bed {
	t.Helper()
	if err := Able(); err != nil {
		t.Skip(err)
	}
	return Bed{Self: []string{os.Args[0], "serve"}}
}

func left(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, dir := range []string{"", "cpu", "cpuacct", "cpu,cpuacct", "unified"} {
		paths, err := filepath.Glob(filepath.Join(root, dir, prefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, paths...)
	}
	return found
}

func TestLeavesNothing(t *testing.T) {
	b := bed(t)
	setup := Table(time.Second, 1)[3].Setup
	setup.Warm = 0
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Run(ctx, setup, still{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled run ends with %v", err)
	}
	broken := Bed{Self: []string{"/bin/false"}}
	if _, err := broken.Run(t.Context(), setup, still{}); err == nil {
		t.Error("a process that fails at once goes unnoticed")
	}
	if _, err := b.Run(t.Context(), setup, still{}); err != nil {
		t.Error(err)
	}
	if l := left(t); len(l) > 0 {
		t.Errorf("left behind: %v", l)
	}
}

func TestSameRequests(t *testing.T) {
	b := bed(t)
	s := Table(3*time.Second, 7)[0].Setup
	s.Warm = 0
	real, err := b.Run(t.Context(), s, still{})
	if err != nil {
		t.Fatal(err)
	}
	model := sim.Run(s, still{})
	if r, m := real.Pod("service"), model.Pod("service"); r.Arrived != m.Arrived || r.Useful+r.Backlog != m.Offered {
		t.Errorf("%d requests of %v for real, %d of %v in the simulator", r.Arrived, r.Useful+r.Backlog, m.Arrived, m.Offered)
	}
}
