package kube

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server records in metadata.managedFields, in the same write that changes a limit, which
// manager wrote it. That record cannot be lost between a resize and a status write, so it tells a
// resize of MBCAS from an external change after any interruption. A limit that another manager
// wrote is never restored, whatever limits are recorded as declared.

// ancientManager is the name under which the API server merges the oldest of too many managers.
const ancientManager = "ancient-changes"

// WrittenByMBCAS are the containers whose CPU limit was certainly last written by MBCAS.
func WrittenByMBCAS(pod *corev1.Pod) map[string]bool {
	names := map[string]bool{}
	for _, m := range pod.ManagedFields {
		if isOwnResize(m) {
			_ = addCPULimits(m, names) // what cannot be read is no proof
		}
	}
	return names
}

// ResizedByMBCAS says whether MBCAS wrote a limit of the pod that no other client has changed since.
func ResizedByMBCAS(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.ManagedFields, isOwnResize)
}

// PossiblyWrittenByMBCAS are the containers whose CPU limit may have been last written by MBCAS:
// those of WrittenByMBCAS while managedFields are complete, else all with a limit. The limit of any
// other container is its owner's, or an external change.
func PossiblyWrittenByMBCAS(pod *corev1.Pod) map[string]bool {
	switch {
	case neverResized(pod):
		return nil
	case fieldsComplete(pod):
		return WrittenByMBCAS(pod)
	}
	all := map[string]bool{}
	for _, l := range Limits(pod) {
		all[l.Name] = true
	}
	return all
}

// ResizedByOthers is when another manager last resized a container whose CPU limit it wrote, in whole
// seconds of the API server's clock. A limit that another manager changed and then set back to what
// MBCAS believes it to be tells so in no other way.
func ResizedByOthers(pod *corev1.Pod) map[string]time.Time {
	at := map[string]time.Time{}
	for _, m := range pod.ManagedFields {
		names := map[string]bool{}
		if !isOthersResize(m) || m.Time == nil || !addCPULimits(m, names) {
			continue
		}
		for name := range names {
			if m.Time.After(at[name]) {
				at[name] = m.Time.Time
			}
		}
	}
	return at
}

// TrimManagedFields keeps of a pod's managedFields what this file reads, and drops the bulk. It may
// be applied twice.
func TrimManagedFields(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var kept []metav1.ManagedFieldsEntry
	for _, m := range entries {
		if names := map[string]bool{}; isOthersResize(m) && addCPULimits(m, names) && len(names) > 0 {
			kept = append(kept, m)
			continue
		}
		m.Time = nil
		switch {
		case isOwnResize(m), m.Manager == ancientManager:
			kept = append(kept, m)
		case m.Subresource == "" && (m.FieldsV1 == nil || ownsContainers(m)): // nil: trimmed before
			m.FieldsV1 = nil
			kept = append(kept, m)
		}
	}
	return slices.Clip(kept)
}

// isOwnResize says whether an entry records resizes of MBCAS. A server-side apply claims fields
// without changing them. MBCAS never applies, so such an entry is of another manager.
func isOwnResize(m metav1.ManagedFieldsEntry) bool {
	return m.Manager == FieldManager && m.Subresource == "resize" && m.Operation == metav1.ManagedFieldsOperationUpdate
}

// isOthersResize says whether an entry records resizes of another manager.
func isOthersResize(m metav1.ManagedFieldsEntry) bool {
	return m.Subresource == "resize" && m.Manager != ancientManager && !isOwnResize(m)
}

// addCPULimits adds the containers whose CPU limit an entry claims; false where it cannot be read.
func addCPULimits(m metav1.ManagedFieldsEntry, names map[string]bool) bool {
	var fields struct {
		Spec map[string]map[string]struct {
			Resources struct {
				Limits map[string]json.RawMessage `json:"f:limits"`
			} `json:"f:resources"`
		} `json:"f:spec"`
	}
	if m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}
	for _, list := range []string{"f:containers", "f:initContainers"} {
		for key, c := range fields.Spec[list] {
			if _, ok := c.Resources.Limits["f:cpu"]; ok {
				names[keyName(key)] = true
			}
		}
	}
	return true
}

// keyName is the name in a list key such as k:{"name":"app"}.
func keyName(key string) string {
	var k struct{ Name string }
	if raw, ok := bytes.CutPrefix([]byte(key), []byte("k:")); ok {
		_ = json.Unmarshal(raw, &k) // a key without a name matches no container
	}
	return k.Name
}

// neverResized says whether the pod itself proves that MBCAS never resized it: its spec was never
// changed, or its managedFields are complete without an entry of MBCAS.
func neverResized(pod *corev1.Pod) bool {
	return pod.Generation == 1 || fieldsComplete(pod) && !slices.ContainsFunc(pod.ManagedFields, isOwnResize)
}

// fieldsComplete says whether managedFields still name the pod's creator, no managers were merged,
// and the entries of MBCAS can be read. Fields that were wiped prove nothing.
func fieldsComplete(pod *corev1.Pod) bool {
	creator := false
	for _, m := range pod.ManagedFields {
		if m.Manager == ancientManager || isOwnResize(m) && !addCPULimits(m, map[string]bool{}) {
			return false
		}
		creator = creator || m.Subresource == "" && (m.FieldsV1 == nil || ownsContainers(m))
	}
	return creator
}

func ownsContainers(m metav1.ManagedFieldsEntry) bool {
	return bytes.Contains(m.FieldsV1.GetRawBytes(), []byte(`"f:containers"`))
}
