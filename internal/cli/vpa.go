package cli

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scaler is a VerticalPodAutoscaler, as far as it matters here.
type Scaler struct {
	Namespace, Name string
	// Target is the workload as "Deployment/web".
	Target string
	// Mode is updatePolicy.updateMode; Auto where unset.
	Mode string
}

// readVPAs lists the VPAs; a cluster that does not know them has none.
func readVPAs(ctx context.Context, c client.Client) ([]Scaler, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscalerList"})
	if err := c.List(ctx, list); err != nil {
		if notInstalled(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("list verticalpodautoscalers: %w", err)
	}
	var scalers []Scaler
	for _, item := range list.Items {
		kind, _, _ := unstructured.NestedString(item.Object, "spec", "targetRef", "kind")
		name, _, _ := unstructured.NestedString(item.Object, "spec", "targetRef", "name")
		mode, _, _ := unstructured.NestedString(item.Object, "spec", "updatePolicy", "updateMode")
		if mode == "" {
			mode = "Auto"
		}
		scalers = append(scalers, Scaler{item.GetNamespace(), item.GetName(), kind + "/" + name, mode})
	}
	return scalers, nil
}
