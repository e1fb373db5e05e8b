package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// pauseWait is how long pause waits for the controller's answer: longer than a Lease lasts that nobody renews.
const pauseWait = 20 * time.Second

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
			answer, err := a.acknowledged(ctx, value)
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
	err = a.Client.Patch(ctx, cm, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(kube.PluginFieldManager))
	if apierrors.IsNotFound(err) {
		cm.Data = map[string]string{kube.PausedKey: value}
		err = a.Client.Create(ctx, cm, client.FieldOwner(kube.PluginFieldManager))
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", a.System, kube.SwitchName, err)
	}
	return nil
}

// acknowledged waits until the controller has answered the switch, and says what came of it. A controller that has died
// needs not answer; one that lives and does not may still be resizing.
func (a *Access) acknowledged(ctx context.Context, value string) (string, error) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	var leader kube.Leader
	for end := a.Now().Add(pauseWait); a.Now().Before(end); {
		cm, err := get(ctx, a.Client, "ConfigMap", &corev1.ConfigMap{}, a.System, kube.SwitchName)
		if err == nil && cm != nil && cm.Data[kube.AcknowledgedKey] == value {
			return "the controller has acknowledged it: no resize is on its way any more", nil
		}
		lease, err := get(ctx, a.Client, "Lease", &coordinationv1.Lease{}, a.System, kube.LeaderLease)
		if err == nil { // who may not read it takes the controller for alive
			switch leader.See(lease, a.Now()) {
			case kube.NoLeader:
				return fmt.Sprintf("no controller leads (Lease %s/%s); one that starts finds the pause", a.System, kube.LeaderLease), nil
			case kube.LapsedLeader:
				return fmt.Sprintf("the controller %s does not renew its Lease any more; one that starts finds the pause", leader.Holder()), nil
			case kube.LivingLeader:
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("interrupted: the switch is set, and the controller has not acknowledged it yet: %w", ctx.Err())
		}
	}
	return "", fmt.Errorf("the switch is set, but the controller has not acknowledged it in %v and may still be resizing: look at its log (kubectl -n %s logs deployment/%s), "+
		"or stop it (kubectl -n %s scale deployment/%s --replicas=0)", pauseWait, a.System, controllerName, a.System, controllerName)
}
