package kube

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StatusPatch changes the status and nothing else, of this very object: its UID guards against an object of the same name that was
// created since, while another writer may change the spec at the same time.
func StatusPatch(kind string, from, to client.Object) (client.Patch, error) {
	fail := func(err error) (client.Patch, error) {
		return nil, fmt.Errorf("status of %s %s/%s: %w", kind, from.GetNamespace(), from.GetName(), err)
	}
	data, err := client.MergeFrom(from).Data(to)
	if err != nil {
		return fail(err)
	}
	var patch map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		return fail(err)
	}
	patch["metadata"] = map[string]any{"uid": from.GetUID()}
	if data, err = json.Marshal(patch); err != nil {
		return fail(err)
	}
	return client.RawPatch(types.MergePatchType, data), nil
}
