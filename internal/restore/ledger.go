package restore

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// The ledger is a second record of the declared limits: one ConfigMap per node, in the namespace of the installation, so that
// neither a deleted PodAllocation nor a deleted CRD loses any.

// pruneFrom is the number of entries of pods that no longer exist from which they are removed.
const pruneFrom = 20

// Entry is the record of one pod. Its key is the pod's UID.
type Entry struct {
	Namespace string                    `json:"namespace"`
	Pod       string                    `json:"pod"`
	Limits    []v1alpha1.ContainerLimit `json:"limits"`
}

// LedgerName is the name of a node's ledger.
func LedgerName(node string) string { return kube.LedgerPrefix + node }

// ReadEntry is the entry of a pod; false if the ledger, which may be nil, has none that can be read.
func ReadEntry(ledger *corev1.ConfigMap, uid types.UID) (Entry, bool) {
	var e Entry
	if ledger == nil || json.Unmarshal([]byte(ledger.Data[string(uid)]), &e) != nil || len(e.Limits) == 0 {
		return Entry{}, false
	}
	return e, true
}

// ReadLedgers lists the entries of all nodes.
func ReadLedgers(ctx context.Context, c client.Reader, namespace string) (map[types.UID]Entry, error) {
	entries := map[types.UID]Entry{}
	for more := ""; ; {
		var page corev1.ConfigMapList
		err := c.List(ctx, &page, client.InNamespace(namespace), client.HasLabels{kube.LedgerLabel}, client.Limit(pageSize), client.Continue(more))
		if err != nil {
			return entries, fmt.Errorf("list the records of declared limits, ConfigMaps of namespace %s: %w", namespace, err)
		}
		for i := range page.Items {
			for uid := range page.Items[i].Data {
				if e, ok := ReadEntry(&page.Items[i], types.UID(uid)); ok {
					entries[types.UID(uid)] = e
				}
			}
		}
		if more = page.Continue; more == "" {
			return entries, nil
		}
	}
}

// WriteLedger adds entries to the ledger of a node in one write, and removes those of pods that no longer exist once there are many.
// ledger is the one that was read; nil: the node has none.
func WriteLedger(
	ctx context.Context, c client.Client, key types.NamespacedName,
	add map[types.UID]Entry, ledger *corev1.ConfigMap, exists map[types.UID]bool,
) error {
	data := map[string]string{}
	for uid, e := range add {
		line, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("record the declared limits of pod %s/%s: %w", e.Namespace, e.Pod, err)
		}
		data[string(uid)] = string(line)
	}
	for _, uid := range outdated(ledger, exists) {
		data[uid] = ""
	}
	if len(data) == 0 {
		return nil
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	cm.Labels = map[string]string{kube.LedgerLabel: "true", "app.kubernetes.io/part-of": "mbcas"}
	if err := writeData(ctx, c, cm, kube.FieldManager, data); err != nil {
		return fmt.Errorf("write ConfigMap %s, the record of declared limits: %w", key, err)
	}
	return nil
}

// writeData sets keys of a ConfigMap; an empty value removes the key. Without anything to set it does not create the ConfigMap.
func writeData(ctx context.Context, c client.Client, cm *corev1.ConfigMap, manager string, data map[string]string) error {
	patch, created := map[string]any{}, map[string]string{}
	for key, value := range data {
		patch[key] = nil
		if value != "" {
			patch[key], created[key] = value, value
		}
	}
	raw, err := json.Marshal(map[string]any{"data": patch})
	if err != nil {
		return err
	}
	patched := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name}}
	err = c.Patch(ctx, patched, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(manager))
	if apierrors.IsNotFound(err) && len(created) > 0 {
		cm.Data = created
		return c.Create(ctx, cm, client.FieldOwner(manager))
	}
	return client.IgnoreNotFound(err)
}

// outdated are the keys of pods that no longer exist, if there are at least pruneFrom.
func outdated(ledger *corev1.ConfigMap, exists map[types.UID]bool) []string {
	if ledger == nil {
		return nil
	}
	var keys []string
	for uid := range ledger.Data {
		if !exists[types.UID(uid)] {
			keys = append(keys, uid)
		}
	}
	if len(keys) < pruneFrom {
		return nil
	}
	return keys
}
