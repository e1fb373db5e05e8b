package controller

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/mbcas/mbcas/internal/kube"
)

// SettingsPublisher writes the effective settings of the leader into ConfigMap mbcas-settings once,
// so that kubectl mbcas shows what this installation uses.
type SettingsPublisher struct {
	Client    client.Client
	Namespace string
	Settings  kube.Settings
	Log       *slog.Logger
}

// settingsBackoff spaces the attempts: 1 s, doubled up to a minute, with jitter, without an end.
var settingsBackoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Cap: time.Minute, Steps: 1 << 30}

// NeedLeaderElection has only the leader publish: a standby may have other settings.
func (*SettingsPublisher) NeedLeaderElection() bool { return true }

// Start writes the ConfigMap and ends. A write that fails is tried again until it succeeds or the
// controller stops; resizes do not wait for it.
func (p *SettingsPublisher) Start(ctx context.Context) error {
	data, err := p.Settings.Data()
	if err != nil {
		return err
	}
	err = settingsBackoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		err := p.write(ctx, data)
		if err != nil {
			p.Log.Error("settings not published; trying again", "err", err)
		}
		return err == nil, nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (p *SettingsPublisher) write(ctx context.Context, data map[string]string) error {
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name = p.Namespace, kube.SettingsName
	_, err := controllerutil.CreateOrPatch(ctx, p.Client, cm, func() error {
		cm.Data = data
		return nil
	})
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", p.Namespace, kube.SettingsName, err)
	}
	return nil
}
