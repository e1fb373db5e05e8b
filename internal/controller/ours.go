package controller

import (
	"bytes"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/internal/kube"
)

// The API server notes, in the same write that changes a limit, who wrote it (metadata.managedFields). That
// note cannot be lost between a resize and a record of it, so it tells our own change from
// somebody else's however we were interrupted.

// ancient is the name under which the API server folds the oldest of too many managers together.
const ancient = "ancient-changes"

// ours are the containers whose CPU limit was last written by us.
func ours(pod *corev1.Pod) map[string]bool {
	names := map[string]bool{}
	for _, m := range pod.ManagedFields {
		if !oursToo(m) || m.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Spec map[string]map[string]struct {
				Resources struct {
					Limits map[string]json.RawMessage `json:"f:limits"`
				} `json:"f:resources"`
			} `json:"f:spec"`
		}
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			continue // not in the form that we know, so no proof
		}
		for _, list := range []string{"f:containers", "f:initContainers"} {
			for key, c := range fields.Spec[list] {
				if _, ok := c.Resources.Limits["f:cpu"]; ok {
					names[keyName(key)] = true
				}
			}
		}
	}
	return names
}

// maybeOurs are the containers whose CPU limit may have been last written by us: all of them where
// the note does not tell.
func maybeOurs(pod *corev1.Pod) map[string]bool {
	switch {
	case untouched(pod):
		return nil
	case complete(pod):
		return ours(pod)
	}
	all := map[string]bool{}
	for _, l := range kube.Limits(pod) {
		all[l.Name] = true
	}
	return all
}

func oursToo(m metav1.ManagedFieldsEntry) bool {
	return m.Manager == kube.FieldManager && m.Subresource == "resize"
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
func untouched(pod *corev1.Pod) bool {
	return pod.Generation == 1 || complete(pod) && !slices.ContainsFunc(pod.ManagedFields, oursToo)
}

// complete says whether the note of who wrote what still names the pod's creator, and nobody was
// folded into a common entry. A note that was wiped proves nothing.
func complete(pod *corev1.Pod) bool {
	creator := false
	for _, m := range pod.ManagedFields {
		if m.Manager == ancient {
			return false
		}
		creator = creator || m.Subresource == "" && (m.FieldsV1 == nil || ownsContainers(m))
	}
	return creator
}

func ownsContainers(m metav1.ManagedFieldsEntry) bool {
	return bytes.Contains(m.FieldsV1.GetRawBytes(), []byte(`"f:containers"`))
}

// writers keeps of a pod's managedFields what the proofs need, and drops the bulk.
func writers(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var kept []metav1.ManagedFieldsEntry
	for _, m := range entries {
		switch {
		case oursToo(m), m.Manager == ancient:
			kept = append(kept, m)
		case m.Subresource == "" && (m.FieldsV1 == nil || ownsContainers(m)): // nil: trimmed before, as client-go may do it twice
			m.FieldsV1 = nil
			kept = append(kept, m)
		}
	}
	return slices.Clip(kept)
}
