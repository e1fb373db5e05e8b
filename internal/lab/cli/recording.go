package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/lab/incident"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/whatif"
)

// openRecording reads a recording. Of a damaged file what comes before the damage is read, and a warning is written.
func openRecording(s Streams, path string) (*record.Recording, error) {
	rec, damage, err := record.OpenFile(path)
	if damage != nil {
		fmt.Fprintf(s.Err, "%v; what comes before is read\n", damage)
	}
	return rec, err
}

const needsRecording = "a recording: see \"kubectl mbcas record\""

func replayCommand(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "replay FILE",
		Short: "Run the rounds of a recording again, and compare the results",
		Long: "Run all rounds of a recording again, and compare each result with the one of the agent: limits, what binds them,\n" +
			"what is published. The same version of MBCAS gives the same results on each machine and architecture.",
		Example: "  mbcas-lab replay node-1-20261121T120000.mbcas",
		Args:    checkArgs(1, 1, needsRecording),
		RunE: func(_ *cobra.Command, args []string) error {
			rec, err := openRecording(s, args[0])
			if err != nil {
				return err
			}
			text, err := replay.Compare(rec)
			fmt.Fprint(s.Out, text)
			return err
		},
	}
}

func whatIfCommand(s Streams) *cobra.Command {
	var flags whatif.Flags
	var played bool
	cmd := &cobra.Command{
		Use:   "what-if FILE",
		Short: "Decide on a recording with other settings, and compare the limits",
		Long: "Run the rounds of a recording with another reserve, other priorities or requests, or without MBCAS, and compare the\n" +
			"limits that the market would have decided. The counters stay as recorded. PODS is NAMESPACE/NAME, with * for any\n" +
			"characters.\n\n" +
			"With --played the simulator plays the load of the recording instead, with the settings in force and changed, and shows\n" +
			"what the pods would have used, with the error with which it reproduces the recording.",
		Example: "  mbcas-lab what-if node-1.mbcas --reserve 0.05\n" +
			"  mbcas-lab what-if node-1.mbcas --priority 'shop/cart-*=100000' --max-cpu 'batch/*=1'\n" +
			"  mbcas-lab what-if node-1.mbcas --played --off",
		Args: checkArgs(1, 1, needsRecording),
		RunE: func(_ *cobra.Command, args []string) error {
			change, err := flags.Change()
			if err != nil {
				return UsageError{Err: err}
			}
			rec, err := openRecording(s, args[0])
			if err != nil {
				return err
			}
			if played {
				return playedWhatIf(s, rec, change)
			}
			return decided(s, rec, change)
		},
	}
	flags.Bind(cmd.Flags())
	cmd.Flags().BoolVar(&played, "played", false, "play the load of the recording in the simulator, and tell its error")
	return cmd
}

// decided prints what the market would have decided on the recorded counters.
func decided(s Streams, rec *record.Recording, change whatif.Change) error {
	c, err := whatif.Decide(rec, change)
	if err == nil && len(change.Pods) > 0 && c.Matched == 0 {
		err = whatif.ErrNoPod
	}
	if err == nil {
		_, err = fmt.Fprint(s.Out, c.Text())
	}
	return err
}

// playedWhatIf prints what the pods would have used, as the simulator has it.
func playedWhatIf(s Streams, rec *record.Recording, change whatif.Change) error {
	p, err := incident.Play(rec, change)
	if err == nil && len(change.Pods) > 0 && p.Matched == 0 {
		err = whatif.ErrNoPod
	}
	if err == nil {
		_, err = fmt.Fprint(s.Out, p.Text())
	}
	return err
}

func scenarioCommand(s Streams) *cobra.Command {
	var from, out string
	cmd := &cobra.Command{
		Use:   "scenario --from FILE",
		Short: "Make a scenario of a recording",
		Long: "Make a scenario of a recording: of each pod its usage by second, or its estimated demand where it was throttled\n" +
			"or waited for a CPU. A pod that was so for most of the time uses all that it gets. The longest time of the\n" +
			"recording without a gap is taken.",
		Example: "  mbcas-lab scenario --from node-1.mbcas --out incident\n" +
			"  mbcas-lab sim incident/scenario.yaml --policy static",
		Args: checkArgs(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			if from == "" {
				return usage("--from is missing: name %s", needsRecording)
			}
			rec, err := openRecording(s, from)
			if err != nil {
				return err
			}
			i, err := incident.Of(rec)
			if err != nil {
				return err
			}
			return writeScenario(s, i, cmp.Or(out, strings.TrimSuffix(filepath.Base(from), filepath.Ext(from))))
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "`file` with the recording")
	cmd.Flags().StringVar(&out, "out", "", "new `folder` for scenario.yaml and the traces (default: the recording's name)")
	return cmd
}

// writeScenario writes the files into a new folder.
func writeScenario(s Streams, i *incident.Incident, dir string) error {
	if _, err := i.Scenario(); err != nil { // what cannot be read is not written
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("--out: %w; name a folder that does not exist", err)
	}
	for name, data := range i.Files() {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	path := filepath.Join(dir, incident.ScenarioFile)
	_, err := fmt.Fprintf(s.Out, "%s: %d pods for %v from %s; %.0f%% of their demand is an estimate.\nNext: mbcas-lab sim %s\n",
		path, len(i.Pods), time.Duration(i.Seconds)*time.Second, i.From.UTC().Format("2006-01-02 15:04:05 UTC"), 100*i.Estimated, path)
	return err
}

// recordedScenario is the scenario of a recording, and the error with which the simulator reproduces that.
func recordedScenario(s Streams, path string) (*scenario.Scenario, string, error) {
	rec, err := openRecording(s, path)
	if err != nil {
		return nil, "", err
	}
	i, err := incident.Of(rec)
	if err != nil {
		return nil, "", err
	}
	played, err := incident.Play(rec, whatif.Change{})
	if err != nil {
		return nil, "", err
	}
	sc, err := i.Scenario()
	return sc, fmt.Sprintf("Load of node %s from %s on. Error: with the settings in force %v.\n", i.Node,
		i.From.UTC().Format("2006-01-02 15:04:05 UTC"), played.Error), err
}
