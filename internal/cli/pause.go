package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// pauseWait is how long pause waits for the controller's answer.
const pauseWait = 15 * time.Second

func pauseCommand(s Streams, f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "pause [REASON]",
		Short: "Stop all resizes in the whole cluster at once",
		Long: "Stop all resizes in the whole cluster at once. Limits stay where they are; decisions are still recorded.\n" +
			"\"kubectl mbcas resume\" goes on. To get declared limits back, use restore.",
		Example: "  kubectl mbcas pause \"incident 4711\"",
		RunE: f.run(func(ctx context.Context, a *Access, args []string) error {
			value := strings.Join(args, " ")
			if value == "" || value == "false" {
				value = "true"
			}
			if err := a.setSwitch(ctx, value); err != nil {
				return err
			}
			fmt.Fprintln(s.Out, "paused: no resize starts from now on")
			if err := a.acknowledged(ctx, value); err != nil {
				fmt.Fprintf(s.Err, "warning: %v\n", err)
				return nil
			}
			_, err := fmt.Fprintln(s.Out, "the controller has acknowledged it: no resize is on its way any more")
			return err
		}),
	}
}

func resumeCommand(s Streams, f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "Go on after a pause",
		Args:  noArgs,
		RunE: f.run(func(ctx context.Context, a *Access, _ []string) error {
			reason, paused, err := a.paused(ctx)
			if err != nil {
				return err
			}
			if !paused {
				_, err := fmt.Fprintln(s.Out, "not paused")
				return err
			}
			if err := a.setSwitch(ctx, "false"); err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.Out, "resumed (it was paused: %s)\n", reason)
			return err
		}),
	}
}

// paused says whether the installation is paused, and what for.
func (a *Access) paused(ctx context.Context) (reason string, yes bool, err error) {
	cm, err := get(ctx, a.Client, "ConfigMap", &corev1.ConfigMap{}, a.System, kube.SwitchName)
	if cm == nil || err != nil {
		return "", false, err
	}
	return cm.Data[kube.PausedKey], kube.Paused(cm.Data), nil
}

func (a *Access) setSwitch(ctx context.Context, value string) error {
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name = a.System, kube.SwitchName
	raw, err := json.Marshal(map[string]any{"data": map[string]any{kube.PausedKey: value, kube.AcknowledgedKey: nil}})
	if err != nil {
		return err
	}
	err = a.Client.Patch(ctx, cm, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(kube.HandFieldManager))
	if apierrors.IsNotFound(err) {
		cm.Data = map[string]string{kube.PausedKey: value}
		err = a.Client.Create(ctx, cm, client.FieldOwner(kube.HandFieldManager))
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", a.System, kube.SwitchName, err)
	}
	return nil
}

// acknowledged waits until the controller has answered the switch.
func (a *Access) acknowledged(ctx context.Context, value string) error {
	ctx, cancel := context.WithTimeout(ctx, pauseWait)
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		cm, err := get(ctx, a.Client, "ConfigMap", &corev1.ConfigMap{}, a.System, kube.SwitchName)
		if err == nil && cm != nil && cm.Data[kube.AcknowledgedKey] == value {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the controller has not acknowledged it in %v: look at it with \"kubectl mbcas doctor\"", pauseWait)
		}
	}
}
