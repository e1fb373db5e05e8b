package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/constraints"
)

// vpas knows the VerticalPodAutoscalers of this cluster. They are a custom resource, which may come and go. As long as it is not known
// whether there are any, any pod may be one of theirs.
type vpas struct {
	looked chan struct{} // closed when somebody has looked; nil: nobody will

	mu     sync.RWMutex
	state  vpaState
	reader client.Reader // a cache that has them all, while they are followed
	why    string        // they are not known
}

type vpaState int

const (
	vpasUnknown  vpaState = iota // nobody could tell yet, or they are there and cannot be read
	vpasNone                     // the cluster does not serve them
	vpasFollowed                 // they are all in a cache
)

// list is the VPAs of a namespace. unsure says why they are not known; "" where they are. It waits for the first look: a
// controller that has just started is to find the pods of VPAs as it left them.
func (v *vpas) list(ctx context.Context, namespace string) (found []constraints.VPA, unsure string, err error) {
	if v.looked != nil {
		select {
		case <-v.looked:
		case <-ctx.Done():
			return nil, "", fmt.Errorf("find out whether the cluster has VerticalPodAutoscalers: %w", ctx.Err())
		}
	}
	v.mu.RLock() // the cache is there for as long as it is held
	defer v.mu.RUnlock()
	switch v.state {
	case vpasNone:
		return nil, "", nil
	case vpasUnknown:
		return nil, "VerticalPodAutoscalers: " + v.why, nil
	case vpasFollowed:
	}
	list := vpaList()
	if err := v.reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, "", fmt.Errorf("list the VerticalPodAutoscalers of namespace %s: %w", namespace, err)
	}
	found = make([]constraints.VPA, len(list.Items))
	for i := range list.Items {
		found[i] = constraints.VPAOf(&list.Items[i])
	}
	return found, "", nil
}

func vpaList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(constraints.VPAKind.GroupVersion().WithKind(constraints.VPAKind.Kind + "List"))
	return list
}

// now is what is known at present.
func (v *vpas) now() vpaState {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.state
}

// set notes what is known from now on, and says whether it was known before: why goes with vpasUnknown, reader with vpasFollowed.
func (v *vpas) set(state vpaState, why string, reader client.Reader) (changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	changed = v.state != state || v.why != why
	v.state, v.why, v.reader = state, why, reader
	return changed
}

// vpasServed asks whether the cluster has VPAs.
func vpasServed(ctx context.Context, d podresize.Discovery) (bool, error) {
	switch list, err := d.ServerResourcesForGroupVersionWithContext(ctx, constraints.VPAKind.GroupVersion().String()); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("discover the resources of %s: %w", constraints.VPAKind.GroupVersion(), err)
	default:
		for _, resource := range list.APIResources {
			if resource.Kind == constraints.VPAKind.Kind {
				return true, nil
			}
		}
		return false, nil
	}
}

// noRight says that a right is missing, and what helps.
type noRight struct{ verb string }

func (e noRight) Error() string {
	return fmt.Sprintf("the controller may not %s verticalpodautoscalers of %s: its ClusterRole is that of an older release; apply the manifests (config/rbac) again",
		e.verb, constraints.VPAKind.Group)
}

// unanswered is err in words that stay the same from one try to the next, so that a status with them is written once.
func unanswered(err error) string {
	if right := (noRight{}); errors.As(err, &right) {
		return right.Error()
	}
	if reason := apierrors.ReasonForError(err); reason != "" {
		return "the API server says " + string(reason)
	}
	return "no answer of the API server"
}
