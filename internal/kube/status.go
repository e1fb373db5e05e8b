package kube

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"
)

// ForUID is a merge patch for this very object: its UID guards against an object of the same name that was created since.
func ForUID(patch []byte, uid types.UID) ([]byte, error) {
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return nil, err
	}
	fields["metadata"] = map[string]any{"uid": uid}
	return json.Marshal(fields)
}
