package doctor

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/constraints"
)

// Permission is one right, what it is for, and whether it was granted.
type Permission struct {
	Verb, Group, Resource, Subresource string
	Namespace                          string
	For                                string
	Allowed                            bool
	// Asked is false when the API server did not answer.
	Asked bool
}

// yourPermissions are what the commands need.
var yourPermissions = []Permission{
	{Verb: "list", Resource: "pods", For: "list, usage, explain, resize, restore"},
	{Verb: "list", Group: v1alpha1.GroupVersion.Group, Resource: "podallocations", For: "list, usage, explain, restore"},
	{Verb: "patch", Resource: "pods", Subresource: "resize", For: "resize, restore"},
	{Verb: "patch", Resource: "namespaces", For: "mode"},
}

// accountPermissions are what the controller cannot do without.
var accountPermissions = []Permission{
	{Verb: "watch", Resource: "pods", For: "seeing pods"},
	{Verb: "patch", Resource: "pods", Subresource: "resize", For: "resizing"},
	{Verb: "create", Group: v1alpha1.GroupVersion.Group, Resource: "podallocations", For: "making allocations"},
	{Verb: "patch", Group: v1alpha1.GroupVersion.Group, Resource: "podallocations", Subresource: "status", For: "recording declared limits"},
}

// vpaPermissions are what it needs besides where there are VerticalPodAutoscalers.
var vpaPermissions = []Permission{
	{Verb: "list", Group: constraints.VPAKind.Group, Resource: "verticalpodautoscalers", For: "leaving pods to VPAs"},
	{Verb: "watch", Group: constraints.VPAKind.Group, Resource: "verticalpodautoscalers", For: "leaving pods to VPAs"},
}

func (p Permission) String() string {
	resource := p.Resource
	if resource == "*" {
		resource = "everything of " + p.Group
	}
	if p.Subresource != "" {
		resource += "/" + p.Subresource
	}
	return p.Verb + " " + resource
}

// allowed lists the rights that were granted.
func allowed(list []Permission) string {
	var granted []string
	for _, p := range list {
		if p.Allowed {
			granted = append(granted, p.String())
		}
	}
	return strings.Join(granted, ", ")
}

// accountName is the user name of the controller's service account.
func accountName(d *appsv1.Deployment) string {
	account := d.Spec.Template.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	return fmt.Sprintf("system:serviceaccount:%s:%s", d.Namespace, account)
}

// ask fills Allowed: for the person who asks when user is "", else for a service account.
func (p *Permission) ask(ctx context.Context, c client.Client, user string) error {
	attributes := &authorizationv1.ResourceAttributes{
		Verb: p.Verb, Group: p.Group, Resource: p.Resource, Subresource: p.Subresource, Namespace: p.Namespace,
	}
	if user == "" {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
		if err := c.Create(ctx, review); err != nil {
			return fmt.Errorf("ask for permission to %s: %w", p, err)
		}
		p.Allowed, p.Asked = review.Status.Allowed, true
		return nil
	}
	groups := []string{"system:authenticated", "system:serviceaccounts"}
	if parts := strings.Split(user, ":"); len(parts) == 4 {
		groups = append(groups, "system:serviceaccounts:"+parts[2])
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: attributes}}
	if err := c.Create(ctx, review); err != nil {
		return fmt.Errorf("ask for permission of %s to %s: %w", user, p, err)
	}
	p.Allowed, p.Asked = review.Status.Allowed, true
	return nil
}
