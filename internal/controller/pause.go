package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// readSwitch is what the switch says; nothing where it does not exist.
func readSwitch(ctx context.Context, c client.Reader, namespace string) (map[string]string, error) {
	cm := &corev1.ConfigMap{}
	err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: kube.SwitchName}, cm)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, kube.SwitchName, err)
	}
	return cm.Data, nil
}

// acknowledge answers a pause.
func (r *Reconciler) acknowledge(ctx context.Context) (ctrl.Result, error) {
	data, err := readSwitch(ctx, r.Client, r.Config.Namespace)
	if err != nil || data[kube.AcknowledgedKey] == data[kube.PausedKey] {
		return ctrl.Result{}, err
	}
	// Whatever takes off from here on sees the switch that we have seen.
	if r.Gate.flying.Load() > 0 {
		return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil
	}
	return ctrl.Result{}, setSwitch(ctx, r.Client, r.Config.Namespace, kube.AcknowledgedKey, data[kube.PausedKey])
}

func setSwitch(ctx context.Context, c client.Client, namespace, key, value string) error {
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name = namespace, kube.SwitchName
	raw, err := json.Marshal(map[string]any{"data": map[string]string{key: value}})
	if err != nil {
		return fmt.Errorf("switch %s: %w", key, err)
	}
	err = c.Patch(ctx, cm, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(kube.FieldManager))
	if apierrors.IsNotFound(err) {
		cm.Data = map[string]string{key: value}
		err = c.Create(ctx, cm, client.FieldOwner(kube.FieldManager))
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", namespace, kube.SwitchName, err)
	}
	return nil
}
