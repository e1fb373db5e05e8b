package main

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwait "k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/mbcas/mbcas/internal/kube"
)

// settingsPublisher writes the effective settings of the leader into ConfigMap mbcas-settings once,
// so that kubectl mbcas shows what this installation uses.
type settingsPublisher struct {
	Client    client.Client
	Namespace string
	Settings  kube.Settings
	Log       *slog.Logger
}

// settingsBackoff spaces the attempts: 1 s, doubled up to a minute, with jitter, without an end.
var settingsBackoff = apiwait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Cap: time.Minute, Steps: 1 << 30}

// NeedLeaderElection has only the leader publish: a standby may have other settings.
func (*settingsPublisher) NeedLeaderElection() bool { return true }

// Start writes the ConfigMap and ends. A write that fails is tried again until it succeeds or the
// controller stops; resizes do not wait for it.
func (p *settingsPublisher) Start(ctx context.Context) error {
	data, err := p.Settings.Data()
	if err != nil {
		return err
	}
	err = settingsBackoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: kube.SettingsName}}
		_, err := controllerutil.CreateOrPatch(ctx, p.Client, cm, func() error {
			cm.Data = data
			return nil
		})
		if err != nil {
			p.Log.Error("settings not published; trying again", "configmap", kube.SettingsName, "err", err)
		}
		return err == nil, nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
