package podresize

import (
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Answer is yes or no, with a sentence that tells an operator what to do about a no.
type Answer struct {
	Yes bool
	Why string
}

// Discovery is the part of a discovery client that Served needs; do not give it a cached one.
type Discovery interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// Served reports whether the API server has pods/resize with the verb patch. It uses discovery, not the
// version: providers set feature gates, and one API server of several may be older.
func Served(ctx context.Context, d Discovery) (Answer, error) {
	list, err := d.ServerResourcesForGroupVersionWithContext(ctx, "v1")
	if err != nil {
		return Answer{}, fmt.Errorf("discover the resources of v1: %w", err)
	}
	for _, r := range list.APIResources {
		if r.Name != "pods/resize" {
			continue
		}
		if slices.Contains(r.Verbs, "patch") {
			return Answer{true, "the API server serves pods/resize"}, nil
		}
		return Answer{false, fmt.Sprintf("the API server serves pods/resize, but not the verb patch (only %v)", r.Verbs)}, nil
	}
	return Answer{false, "the API server does not serve pods/resize: it needs Kubernetes 1.33 or newer, or 1.32 with the feature gate InPlacePodVerticalScaling"}, nil
}

// Creator is the part of a client that Allowed needs; a client.Client is one.
type Creator interface {
	Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error
}

// Allowed reports whether the client's user may patch pods/resize in the namespace; "" stands for all
// namespaces.
func Allowed(ctx context.Context, c Creator, namespace string) (Answer, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: "patch", Version: "v1", Resource: "pods", Subresource: "resize",
		},
	}}
	where := "in all namespaces"
	if namespace != "" {
		where = "in namespace " + namespace
	}
	switch err := c.Create(ctx, review); {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return Answer{false, fmt.Sprintf("a SelfSubjectAccessReview is not allowed %s: %v", where, err)}, nil
	case err != nil:
		return Answer{}, fmt.Errorf("ask whether pods/resize may be patched %s: %w", where, err)
	}
	if review.Status.Allowed {
		return Answer{true, "patching pods/resize is allowed " + where}, nil
	}
	why := fmt.Sprintf("RBAC does not allow to patch pods/resize %s: bind a role with apiGroups [\"\"], resources [\"pods/resize\"], verbs [\"patch\"]", where)
	if review.Status.Reason != "" {
		why += " (" + review.Status.Reason + ")"
	}
	if e := review.Status.EvaluationError; e != "" {
		why += " (evaluation error: " + e + ")"
	}
	return Answer{false, why}, nil
}
