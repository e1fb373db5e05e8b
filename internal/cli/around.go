package cli

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

// around is what surrounds the pods of one namespace, as far as it was read.
type around struct {
	constraints.Neighbourhood
	// hidden are the targets whose pods are not known, each with what stands in the way.
	hidden map[kube.Target]error
}

// surroundings are those of each namespace.
type surroundings map[string]*around

// of is what surrounds the pods of a namespace; it may be written to.
func (s surroundings) of(namespace string) *around {
	if s[namespace] == nil {
		s[namespace] = &around{
			Neighbourhood: constraints.Neighbourhood{Selectors: map[kube.Target]labels.Selector{}}, hidden: map[kube.Target]error{},
		}
	}
	return s[namespace]
}

// vpa names the VerticalPodAutoscaler to which the pod's CPU is left; "" for none.
func (s surroundings) vpa(pod *corev1.Pod) string {
	if s[pod.Namespace] == nil {
		return ""
	}
	name, _ := s[pod.Namespace].VPA(pod)
	return name
}

// addVPAs lists the VerticalPodAutoscalers of a namespace, or of all for ""; a cluster that does not know them has none.
func (s surroundings) addVPAs(ctx context.Context, c client.Client, namespace string) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(constraints.VPAKind.GroupVersion().WithKind(constraints.VPAKind.Kind + "List"))
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		if notInstalled(err) {
			return nil
		}
		return fmt.Errorf("list verticalpodautoscalers: %w", err)
	}
	for i := range list.Items {
		v := constraints.VPAOf(&list.Items[i])
		n := s.of(v.Namespace)
		n.VPAs = append(n.VPAs, v)
		if v.Mode != "Off" {
			n.find(ctx, c, v.Namespace, v.Target)
		}
	}
	return nil
}

// find finds the pods of a target that are not known by their owners.
func (n *around) find(ctx context.Context, c client.Client, namespace string, t kube.Target) {
	if t.Owned() || n.Selectors[t] != nil || n.hidden[t] != nil {
		return
	}
	selector, err := readSelector(ctx, c, namespace, t)
	if err != nil {
		n.hidden[t] = err
		return
	}
	n.Selectors[t] = selector
}

// readSelector asks the scale subresource of a target for the labels of its pods, as the controller and autoscalers do. A target
// that does not exist has no pods.
func readSelector(ctx context.Context, c client.Client, namespace string, t kube.Target) (labels.Selector, error) {
	o, scale, err := kube.ScaleOf(namespace, t)
	if err != nil {
		return nil, fmt.Errorf("its target %s: %w", t, err)
	}
	switch err := c.SubResource("scale").Get(ctx, o, scale); {
	case apierrors.IsNotFound(err) || notInstalled(err):
		return labels.Nothing(), nil
	case err != nil:
		return nil, fmt.Errorf("read the scale of %s %s/%s: %w", t.Kind, namespace, t.Name, err)
	}
	return kube.SelectorOf(scale)
}
