//go:build linux

package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/kernelrun"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestFidelityReports: against a kernel that is the simulator with costlier requests, the report
// names the figures that differ, and differences are no error; a kernel that fails later leaves the
// report of what came before.
func TestFidelityReports(t *testing.T) {
	const length = 4 * time.Second
	left := 1000
	kernel := func(_ context.Context, s sim.Setup, p sim.Policy) (kernelrun.Result, error) {
		if left--; left < 0 {
			return kernelrun.Result{}, errors.New("the cgroup is gone")
		}
		s.Pods = append([]sim.PodSpec(nil), s.Pods...)
		s.Pods[0].Requests.ServiceTime *= 2
		return kernelrun.Result{Result: sim.Run(s, p)}, nil
	}
	var out, log bytes.Buffer
	dir := t.TempDir()
	must.Succeed(t, runFidelity(t.Context(), Streams{&out, &log}, length, dir, kernel))
	for _, name := range []string{"fidelity.txt", "fidelity.csv"} {
		text := content(t, dir, name)
		for _, want := range []string{"alone", "p99, ms", "MBCAS, service steps up and down"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %q", name, want)
			}
		}
	}
	if text := out.String(); !strings.Contains(text, "NO\n") || !strings.Contains(text, "yes\n") || !strings.Contains(text, "0 disturbed runs") {
		t.Errorf("the report does not say what differs:\n%s", text)
	}
	out.Reset()
	left = 10
	if err := runFidelity(t.Context(), Streams{&out, &log}, length, "", kernel); err == nil || !strings.Contains(out.String(), "alone") {
		t.Errorf("error %v, and the report\n%s", err, out.String())
	}
}
