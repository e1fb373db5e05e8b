package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/resize"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

func pauseCommand(s Streams, f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "pause [REASON]",
		Short: "Stop all resizes in the whole cluster",
		Long: "Stop all resizes in the whole cluster. Limits stay as they are; decisions are still recorded.\n" +
			"\"kubectl mbcas resume\" ends the pause. To return to declared limits, use restore.",
		Example: "  kubectl mbcas pause \"incident 4711\"",
		RunE: f.run(func(ctx context.Context, a *cluster.Access, args []string) error {
			value := strings.Join(args, " ")
			if value == "" || value == "false" {
				value = "true"
			}
			if err := restore.Pause(ctx, a.Client, a.System, kube.PluginFieldManager, value); err != nil {
				return err
			}
			fmt.Fprintln(s.Out, "paused: no new resize starts")
			answer, err := waitForPause(ctx, a, value)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(s.Out, answer)
			return err
		}),
	}
}

func resumeCommand(s Streams, f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "End a pause",
		Long:  "End a pause, and a hold of decisions because harm has spread. Harm from before does not count again.",
		Args:  noArgs,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, _ []string) error {
			state, err := restore.ReadState(ctx, a.Client, a.System)
			if err != nil {
				return err
			}
			if !state.Paused() && state.HarmHold == "" {
				_, err := fmt.Fprintln(s.Out, "not paused")
				return err
			}
			if err := restore.Resume(ctx, a.Client, a.System, kube.PluginFieldManager, a.ServerNow()); err != nil {
				return err
			}
			var was []string
			if state.Paused() {
				was = append(was, "it was paused: "+state.Pause)
			}
			if state.HarmHold != "" {
				was = append(was, "decisions were held: "+state.HarmHold)
			}
			_, err = fmt.Fprintf(s.Out, "resumed (%s)\n", strings.Join(was, "; "))
			return err
		}),
	}
}

// waitForPause waits until the pause has taken effect, and says how.
func waitForPause(ctx context.Context, a *cluster.Access, value string) (string, error) {
	w := restore.Waiter{Client: a.Client, Namespace: a.System, Now: a.Now, Interval: resize.PollInterval}
	switch answer, holder, err := w.Wait(ctx, value); {
	case err != nil:
		return "", err
	case answer == restore.NoController:
		return fmt.Sprintf("no controller runs in namespace %s; one that starts finds the pause", a.System), nil
	case answer == restore.DeadController:
		return fmt.Sprintf("no controller renews its Lease any more (last: %s); one that starts finds the pause", holder), nil
	default:
		return "the controller has acknowledged it: no resize is in flight", nil
	}
}
