package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

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
func LedgerName(node string) string { return kube.NameOfNode(kube.LedgerPrefix, node) }

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

// NodeLedger is the ledger of one node.
type NodeLedger struct {
	Namespace, Node string
	// NodeUID is that of the Node, which owns the ledger: they are deleted together. "": not known.
	NodeUID types.UID
	// Stored is the ledger as it was read; nil: there is none.
	Stored *corev1.ConfigMap
}

// Write adds entries in one write, and removes those of pods that no longer exist once there are many. It returns the ledger as it is
// stored then. It fails with a conflict where the ledger is not the one that was read: another controller may know better.
func (l NodeLedger) Write(
	ctx context.Context, c client.Client, add map[types.UID]Entry, exists map[types.UID]bool,
) (*corev1.ConfigMap, error) {
	data := map[string]any{}
	for uid, e := range add {
		line, err := json.Marshal(e)
		if err != nil {
			return l.Stored, fmt.Errorf("record the declared limits of pod %s/%s: %w", e.Namespace, e.Pod, err)
		}
		data[string(uid)] = string(line)
	}
	for _, uid := range outdated(l.Stored, exists) {
		data[uid] = nil
	}
	if len(data) == 0 {
		return l.Stored, nil
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: LedgerName(l.Node)}}
	var err error
	if l.Stored == nil {
		cm.Labels = map[string]string{kube.LedgerLabel: "true", "app.kubernetes.io/part-of": "mbcas"}
		cm.OwnerReferences, cm.Data = l.owner(), map[string]string{}
		for uid, line := range data {
			cm.Data[uid] = line.(string)
		}
		err = c.Create(ctx, cm, client.FieldOwner(kube.FieldManager))
	} else {
		err = l.patch(ctx, c, cm, map[string]any{"data": data})
	}
	if err != nil {
		return l.Stored, fmt.Errorf("write ConfigMap %s/%s, the record of declared limits: %w", l.Namespace, cm.Name, err)
	}
	return cm, nil
}

// Adopt makes the Node the owner of a ledger from before its time. Some clusters allow that only to an account that may delete
// ConfigMaps; the ledger is as good without.
func (l NodeLedger) Adopt(ctx context.Context, c client.Client) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: LedgerName(l.Node)}}
	err := l.patch(ctx, c, cm, map[string]any{"metadata": map[string]any{"ownerReferences": l.owner()}})
	if err != nil {
		return l.Stored, fmt.Errorf("make node %s the owner of ConfigMap %s/%s: %w", l.Node, l.Namespace, cm.Name, err)
	}
	return cm, nil
}

// Orphaned says whether the ledger exists and the Node does not own it.
func (l NodeLedger) Orphaned() bool {
	return l.Stored != nil && l.NodeUID != "" && !slices.ContainsFunc(l.Stored.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.UID == l.NodeUID
	})
}

func (l NodeLedger) owner() []metav1.OwnerReference {
	if l.NodeUID == "" {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: l.Node, UID: l.NodeUID}}
}

// patch patches the ledger that was read, and no later one.
func (l NodeLedger) patch(ctx context.Context, c client.Client, cm *corev1.ConfigMap, patch map[string]any) error {
	raw, err := json.Marshal(patch)
	if err == nil {
		raw, err = kube.ForVersion(raw, l.Stored)
	}
	if err != nil {
		return err
	}
	return c.Patch(ctx, cm, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(kube.FieldManager))
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
	if err == nil && cm.ResourceVersion != "" {
		raw, err = kube.ForVersion(raw, cm)
	}
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
