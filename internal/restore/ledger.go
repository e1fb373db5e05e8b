package restore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

const (
	// pruneFrom is the number of entries that are not needed from which they are removed.
	pruneFrom = 20
	// mostBytes bounds the entries of a node. The API server takes 1 MiB in a ConfigMap, and an entry of 64
	// containers with long names has 6.6 KiB.
	mostBytes = 900 << 10
)

// ErrFull is why a pod is not recorded for which the ledger of its node has no room.
var ErrFull = errors.New("the ledger of the node is full: opt out pods with many containers, or move them to another node")

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

// Has says whether the ledger has these limits of a pod.
func (l NodeLedger) Has(pod types.UID, limits []v1alpha1.ContainerLimit) bool {
	e, _ := ReadEntry(l.Stored, pod)
	return kube.SameLimits(e.Limits, limits)
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

// Write adds entries in one write, and removes those that are not needed once there are many, or no room. It returns the ledger as it is
// stored then; where there is no room for all, without the largest of them. It fails with a conflict where the ledger is
// not the one that was read: another controller may know better.
func (l NodeLedger) Write(
	ctx context.Context, c client.Client, add map[types.UID]Entry, needed map[types.UID]bool,
) (*corev1.ConfigMap, error) {
	lines := map[string]string{}
	for uid, e := range add {
		line, err := json.Marshal(e)
		if err != nil {
			return l.Stored, fmt.Errorf("record the declared limits of pod %s/%s: %w", e.Namespace, e.Pod, err)
		}
		lines[string(uid)] = string(line)
	}
	data := l.fitting(lines, needed)
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

// fitting are those of the new entries for which there is room, the smallest first, and nil for those that are removed.
func (l NodeLedger) fitting(lines map[string]string, needed map[types.UID]bool) map[string]any {
	var stored map[string]string
	if l.Stored != nil {
		stored = l.Stored.Data
	}
	size := func(of map[string]string, uid string) int {
		if line, ok := of[uid]; ok {
			return len(uid) + len(line)
		}
		return 0
	}
	more := func(uid string) int { return size(lines, uid) - size(stored, uid) }
	total, ended := 0, []string{}
	for uid := range stored {
		total += size(stored, uid)
		if lines[uid] == "" && !needed[types.UID(uid)] {
			ended = append(ended, uid)
		}
	}
	for uid := range lines {
		total += more(uid)
	}
	data := map[string]any{}
	if len(ended) >= pruneFrom || total > mostBytes {
		for _, uid := range ended {
			data[uid] = nil
			total -= size(stored, uid)
		}
	}
	for _, uid := range slices.SortedFunc(maps.Keys(lines), func(a, b string) int {
		return cmp.Or(cmp.Compare(more(b), more(a)), cmp.Compare(a, b))
	}) {
		if total > mostBytes && more(uid) > 0 {
			total -= more(uid)
			continue
		}
		data[uid] = lines[uid]
	}
	return data
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
