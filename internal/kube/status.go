package kube

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ForVersion is a merge patch for this very version of an object: a change by another writer since makes it a conflict.
func ForVersion(patch []byte, o metav1.Object) ([]byte, error) {
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return nil, err
	}
	meta, _ := fields["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["uid"], meta["resourceVersion"] = o.GetUID(), o.GetResourceVersion()
	fields["metadata"] = meta
	return json.Marshal(fields)
}

// ForUID is a merge patch for this very object: its UID guards against an object of the same name that was created since.
func ForUID(patch []byte, uid types.UID) ([]byte, error) {
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return nil, err
	}
	fields["metadata"] = map[string]any{"uid": uid}
	return json.Marshal(fields)
}
