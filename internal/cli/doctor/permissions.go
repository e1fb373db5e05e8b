package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

// Permission is one right in all namespaces, and whether it is granted.
type Permission struct {
	Verb, Group, Resource, Subresource string
	For                                string
	Allowed                            bool
	// Reviewed is false if the API server did not respond.
	Reviewed bool
}

// userPermissions are what the commands need.
var userPermissions = []Permission{
	{Verb: "list", Resource: "pods", For: "list, usage, explain, resize, restore"},
	{Verb: "list", Group: v1alpha1.GroupVersion.Group, Resource: "podallocations",
		For: "list, usage, explain, restore"},
	{Verb: "patch", Resource: "pods", Subresource: "resize", For: "resize, restore"},
	{Verb: "patch", Resource: "namespaces", For: "mode"},
}

// controllerPermissions are those without which the controller does not work.
var controllerPermissions = []Permission{
	{Verb: "watch", Resource: "pods", For: "watching pods"},
	{Verb: "patch", Resource: "pods", Subresource: "resize", For: "resizing"},
	{Verb: "create", Group: v1alpha1.GroupVersion.Group, Resource: "podallocations", For: "creating allocations"},
	{Verb: "patch", Group: v1alpha1.GroupVersion.Group, Resource: "podallocations", Subresource: "status",
		For: "recording declared limits"},
}

// vpaPermissions are what it also needs in a cluster with VerticalPodAutoscalers.
var vpaPermissions = []Permission{
	{Verb: "list", Group: constraints.VPAKind.Group, Resource: "verticalpodautoscalers", For: "leaving pods to VPAs"},
	{Verb: "watch", Group: constraints.VPAKind.Group, Resource: "verticalpodautoscalers", For: "leaving pods to VPAs"},
}

// signalPermissions are what it also needs for DemandSignals: these, and the metrics that they
// name.
func signalPermissions(signals []v1alpha1.DemandSignal) []Permission {
	if len(signals) == 0 {
		return nil
	}
	group := v1alpha1.GroupVersion.Group
	needed := []Permission{
		{Verb: "list", Group: group, Resource: "demandsignals", For: "reading DemandSignals"},
		{Verb: "patch", Group: group, Resource: "demandsignals", Subresource: "status",
			For: "reporting on DemandSignals"},
	}
	verbs := map[string]string{} // by API group
	for i := range signals {
		m := kube.Metric{Type: signals[i].Spec.Metric.Type}
		verbs[m.Group()] = "get"
		if m.Type == v1alpha1.ExternalMetric {
			verbs[m.Group()] = "list"
		}
	}
	for _, group := range slices.Sorted(maps.Keys(verbs)) {
		needed = append(needed, Permission{
			Verb: verbs[group], Group: group, Resource: "*", For: "reading the metrics of DemandSignals",
		})
	}
	return needed
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

// allowedText lists the granted permissions.
func allowedText(list []Permission) string {
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
	account := cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default")
	return fmt.Sprintf("system:serviceaccount:%s:%s", d.Namespace, account)
}

// review fills Allowed: for the user of the plugin if user is "", else for a service account.
func (p *Permission) review(ctx context.Context, c client.Client, user string) error {
	attributes := &authorizationv1.ResourceAttributes{
		Verb: p.Verb, Group: p.Group, Resource: p.Resource, Subresource: p.Subresource,
	}
	self := &authorizationv1.SelfSubjectAccessReview{}
	review, status, whose := client.Object(self), &self.Status, "your permission"
	self.Spec.ResourceAttributes = attributes
	if user != "" {
		groups := []string{"system:authenticated", "system:serviceaccounts"}
		if parts := strings.Split(user, ":"); len(parts) == 4 {
			groups = append(groups, "system:serviceaccounts:"+parts[2])
		}
		other := &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: attributes},
		}
		review, status, whose = other, &other.Status, "the permission of "+user
	}
	if err := c.Create(ctx, review); err != nil {
		return fmt.Errorf("review %s to %s: %w", whose, p, err)
	}
	p.Allowed, p.Reviewed = status.Allowed, true
	return nil
}
