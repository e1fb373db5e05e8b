// Package autoscalers finds the autoscalers that MBCAS leaves pods to or works beside: the VerticalPodAutoscalers of a cluster,
// which are a custom resource that may come and go, and the pods of custom scale targets.
//
// What it promises, each a test of the same name:
//   - KeepsTheLastSelector: a selector that was read once is used while the API server does not answer, and goes only with its target.
//   - AsksOnce: a target that hangs costs one caller a few seconds; all others use the last answer, or wait for that caller.
//   - UnknownUntilListed: as long as VerticalPodAutoscalers cannot be listed, callers learn that they are not known.
package autoscalers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/constraints"
)

// VPAs knows the VerticalPodAutoscalers of the cluster. While it is not known whether there are any, any pod may belong to one.
type VPAs struct {
	found chan struct{} // closed after the first discovery; nil: none runs

	mu     sync.RWMutex
	state  VPAState
	reader client.Reader // a cache of all of them, while they are watched
	cause  string        // why they are not known
}

// VPAState is what is known of VerticalPodAutoscalers.
type VPAState int

const (
	// VPAsUnknown: the API server has not been asked, did not answer, or does not let the controller read them.
	VPAsUnknown VPAState = iota
	// NoVPAs: the cluster does not serve them.
	NoVPAs
	// VPAsWatched: all of them are in a cache.
	VPAsWatched
)

// List lists the VPAs of a namespace. unknown says why they are not known; "" if they are. It waits for the first discovery, so
// that a controller that has just started does not take the pods of a VPA for its own.
func (v *VPAs) List(ctx context.Context, namespace string) (list []constraints.VPA, unknown string, err error) {
	if v.found != nil {
		select {
		case <-v.found:
		case <-ctx.Done():
			return nil, "", fmt.Errorf("find out whether the cluster has VerticalPodAutoscalers: %w", ctx.Err())
		}
	}
	v.mu.RLock() // the cache exists for as long as the lock is held
	defer v.mu.RUnlock()
	switch v.state {
	case NoVPAs:
		return nil, "", nil
	case VPAsUnknown:
		return nil, "VerticalPodAutoscalers: " + v.cause, nil
	case VPAsWatched:
	}
	items := VPAList()
	if err := v.reader.List(ctx, items, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, "", fmt.Errorf("list the VerticalPodAutoscalers of namespace %s: %w", namespace, err)
	}
	list = make([]constraints.VPA, len(items.Items))
	for i := range items.Items {
		list[i] = constraints.VPAOf(&items.Items[i])
	}
	return list, "", nil
}

// VPAList is an empty list of VPAs.
func VPAList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(constraints.VPAKind.GroupVersion().WithKind(constraints.VPAKind.Kind + "List"))
	return list
}

// State is what is known at present.
func (v *VPAs) State() VPAState {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.state
}

// set says what is known from now on, and whether that is a change: cause goes with VPAsUnknown, reader with VPAsWatched.
func (v *VPAs) set(state VPAState, cause string, reader client.Reader) (changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	changed = v.state != state || v.cause != cause
	v.state, v.cause, v.reader = state, cause, reader
	return changed
}

// missingRight says which right the controller lacks, and how it gets it.
type missingRight struct{ verb string }

func (e missingRight) Error() string {
	return fmt.Sprintf("the controller may not %s verticalpodautoscalers of %s: its ClusterRole is that of an older release; "+
		"apply the manifests (config/rbac) again", e.verb, constraints.VPAKind.Group)
}

// Cause is err in words that stay the same from one attempt to the next, so that a status with them is written once.
func Cause(err error) string {
	if right := (missingRight{}); errors.As(err, &right) {
		return right.Error()
	}
	if reason := apierrors.ReasonForError(err); reason != "" {
		return "the API server says " + string(reason)
	}
	return "no answer of the API server"
}
