package kube

import (
	"encoding/json"
	"hash/fnv"

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

// ErrContested says that another writer has changed an object since this one wrote it.
var ErrContested error = contested{}

type contested struct{}

func (contested) Error() string {
	return "another controller changes what this one writes: are there two installations?"
}

// Lasting: only a setting ends it.
func (contested) Lasting() bool { return true }

// Stamp says what a part of an object was; zero: that is not known.
type Stamp struct {
	uid types.UID
	sum uint64
}

// StampOf is that of an object with this part.
func StampOf(o metav1.Object, part any) Stamp {
	sum := fnv.New64a()
	_ = json.NewEncoder(sum).Encode(part) // what came as JSON
	return Stamp{o.GetUID(), sum.Sum64()}
}

// Contested says whether that part of the object is another one now.
func (s Stamp) Contested(now Stamp) bool { return s.uid == now.uid && s.sum != 0 && s.sum != now.sum }
