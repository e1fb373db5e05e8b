package controller

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

// The ledger is a second record of the declared limits, one ConfigMap per node in our own namespace, so that
// neither a deleted PodAllocation nor a deleted CRD loses any.

// pruneFrom is how many entries of pods that are gone may gather before they are removed.
const pruneFrom = 20

// entry is one pod's line in the ledger; its key is the pod's UID.
type entry struct {
	Namespace string                    `json:"namespace"`
	Pod       string                    `json:"pod"`
	Limits    []v1alpha1.ContainerLimit `json:"limits"`
}

func ledgerName(node string) string { return kube.LedgerPrefix + node }

// readLedger is the entry of a pod; false where there is none that can be read.
func readLedger(cm *corev1.ConfigMap, uid types.UID) (entry, bool) {
	var e entry
	if cm == nil || json.Unmarshal([]byte(cm.Data[string(uid)]), &e) != nil || len(e.Limits) == 0 {
		return entry{}, false
	}
	return e, true
}

// ledgerPatch adds the records of tasks, and removes entries of pods that are gone when many have gathered.
func ledgerPatch(tasks []Task, cm *corev1.ConfigMap, exists map[types.UID]bool) (map[string]*string, error) {
	data := map[string]*string{}
	for _, t := range tasks {
		if t.Record == nil {
			continue
		}
		raw, err := json.Marshal(entry{t.Pod.Pod.Namespace, t.Pod.Pod.Name, t.Record})
		if err != nil {
			return nil, fmt.Errorf("ledger entry of pod %s/%s: %w", t.Pod.Pod.Namespace, t.Pod.Pod.Name, err)
		}
		line := string(raw)
		data[string(t.Pod.Pod.UID)] = &line
	}
	if cm == nil {
		return data, nil
	}
	var old []string
	for uid := range cm.Data {
		if !exists[types.UID(uid)] {
			old = append(old, uid)
		}
	}
	if len(old) >= pruneFrom {
		for _, uid := range old {
			data[uid] = nil
		}
	}
	return data, nil
}

// writeLedger writes the lines; one write per node, whatever the number of pods.
func writeLedger(ctx context.Context, c client.Client, namespace, node string, data map[string]*string) error {
	if len(data) == 0 {
		return nil
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ledgerName(node)}}
	raw, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return fmt.Errorf("ledger of node %s: %w", node, err)
	}
	err = c.Patch(ctx, cm, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(kube.FieldManager))
	if apierrors.IsNotFound(err) {
		cm.Labels = map[string]string{kube.LedgerLabel: "true", "app.kubernetes.io/part-of": "mbcas"}
		cm.Data = map[string]string{}
		for uid, line := range data {
			if line != nil {
				cm.Data[uid] = *line
			}
		}
		err = c.Create(ctx, cm, client.FieldOwner(kube.FieldManager))
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s, the record of declared limits: %w", namespace, ledgerName(node), err)
	}
	return nil
}

// recorded lists all entries of the ledger, in a fixed order.
func recorded(list []corev1.ConfigMap) (uids []types.UID, entries map[types.UID]entry) {
	entries = map[types.UID]entry{}
	for i := range list {
		for uid := range list[i].Data {
			if e, ok := readLedger(&list[i], types.UID(uid)); ok {
				entries[types.UID(uid)] = e
				uids = append(uids, types.UID(uid))
			}
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids), entries
}
