//go:build linux

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/lab/fidelity"
	"github.com/mbcas/mbcas/internal/lab/kernelrun"
)

func fidelityCommand(s Streams) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "fidelity",
		Short: "Measure how closely the simulator agrees with this machine's kernel",
		Long: "Run a service beside a batch pod under fixed limits, and both under MBCAS, with real processes in cgroups of this machine\n" +
			"and in the simulator, and report usage, throttling, latency and limits of both. It takes root, Perl and 11 minutes on a\n" +
			"machine without other work; a run that other work disturbs is repeated. Figures that differ do not fail the command.",
		Example: "  mbcas-lab fidelity --out out/fidelity",
		Args:    checkArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := kernelrun.Supported(); err != nil {
				return err
			}
			return runFidelity(cmd.Context(), s, fidelity.Length, out, kernelrun.Run)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "folder into which the report is written as fidelity.txt and fidelity.csv")
	return cmd
}

// runFidelity reports what was measured also where the measurement ends early.
func runFidelity(ctx context.Context, s Streams, length time.Duration, out string, kernel fidelity.Kernel) error {
	if err := createOut(out); err != nil {
		return err
	}
	report, failed := fidelity.Measure(ctx, length, kernel, func(format string, args ...any) {
		fmt.Fprintf(s.Err, format+"\n", args...)
	})
	if len(report.Figures) == 0 {
		return failed
	}
	text := fidelityText(report)
	if _, err := io.WriteString(s.Out, text); err != nil || out == "" {
		return errors.Join(failed, err)
	}
	return errors.Join(failed,
		os.WriteFile(filepath.Join(out, "fidelity.txt"), []byte(text), 0o644),
		writeCSV(filepath.Join(out, "fidelity.csv"), fidelityRows(report)))
}

func fidelityText(r fidelity.Report) string {
	t := &table{header: []string{"RUN", "POD", "MEASURE", "KERNEL", "SIMULATED", "AGREES"}}
	for _, f := range r.Figures {
		agrees := "yes"
		if !f.Agrees {
			agrees = "NO"
		}
		t.add(f.Run, f.Pod, f.Measure, interval(f.Kernel), interval(f.Simulated), agrees)
	}
	return fmt.Sprintf("%s\n%d of %d figures agree; %d disturbed runs were repeated.\n",
		t, len(r.Figures)-r.Differing(), len(r.Figures), r.Disturbed)
}

func interval(i fidelity.Interval) string {
	if i.Low == i.High {
		return fmt.Sprintf("%.3g", i.Low)
	}
	return fmt.Sprintf("%.3g-%.3g", i.Low, i.High)
}

func fidelityRows(r fidelity.Report) [][]string {
	rows := [][]string{{"run", "pod", "measure", "kernel-low", "kernel-high", "simulated-low", "simulated-high", "agrees"}}
	for _, f := range r.Figures {
		rows = append(rows, []string{
			f.Run, f.Pod, f.Measure, figure(f.Kernel.Low), figure(f.Kernel.High), figure(f.Simulated.Low), figure(f.Simulated.High), fmt.Sprint(f.Agrees),
		})
	}
	return rows
}
