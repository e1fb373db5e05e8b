package kube

import (
	"bytes"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server notes, in the same write that changes a limit, who wrote it (metadata.managedFields). That
// note cannot be lost between a resize and a record of it, so it tells our own change from
// somebody else's however we were interrupted. Whoever undoes a limit asks it first: a limit that
// somebody else wrote is never undone, whatever a record says was declared before.

// ancient is the name under which the API server folds the oldest of too many managers together.
const ancientManager = "ancient-changes"

// Ours are the containers whose CPU limit was certainly last written by MBCAS.
func WrittenByMBCAS(pod *corev1.Pod) map[string]bool {
	names := map[string]bool{}
	for _, m := range pod.ManagedFields {
		if isOwnResize(m) {
			_ = addCPULimits(m, names) // what cannot be read is no proof
		}
	}
	return names
}

// MaybeOurs are the containers whose CPU limit may have been last written by MBCAS: those of Ours while
// the note is complete, and all with a limit where the note does not tell. A container that is not among
// them has a limit of its owner's, or of somebody else.
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

// Writers keeps of a pod's managedFields what Ours and MaybeOurs need, and drops the bulk. It may be applied twice.
func TrimManagedFields(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var kept []metav1.ManagedFieldsEntry
	for _, m := range entries {
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

// oursToo says whether an entry tells of our own resizes. A server-side apply lays claim to fields without changing them, and we never
// apply, so such an entry is somebody else's.
func isOwnResize(m metav1.ManagedFieldsEntry) bool {
	return m.Manager == FieldManager && m.Subresource == "resize" && m.Operation == metav1.ManagedFieldsOperationUpdate
}

// written adds the containers whose CPU limit an entry claims; false where it cannot be read.
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
		_ = json.Unmarshal(raw, &k) // a key without a name is no container of ours
	}
	return k.Name
}

// untouched says whether the pod proves by itself that we never resized it: its spec was never
// changed, or the note of who wrote it is complete and does not name us.
func neverResized(pod *corev1.Pod) bool {
	return pod.Generation == 1 || fieldsComplete(pod) && !slices.ContainsFunc(pod.ManagedFields, isOwnResize)
}

// complete says whether the note of who wrote what still names the pod's creator, nobody was folded into
// a common entry, and our own entries can be read. A note that was wiped proves nothing.
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
