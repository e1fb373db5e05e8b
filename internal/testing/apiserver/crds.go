package apiserver

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// CustomResource is a definition of a custom resource that takes anything.
func CustomResource(plural, group, kind string, scale bool) *apiextensionsv1.CustomResourceDefinition {
	yes := true
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = plural + "." + group
	crd.Annotations = map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"}
	crd.Spec.Group, crd.Spec.Scope = group, apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, Singular: strings.ToLower(kind)}
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
	version := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: "v1", Served: true, Storage: true,
		Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", XPreserveUnknownFields: &yes,
			Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything},
		}},
	}
	if scale {
		selector := ".status.selector"
		version.Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{
			SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: &selector,
		}
	}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version}
	return crd
}

// ExternalMetric serves an external metric through the API server itself: a custom resource whose plural is the
// metric's name, and whose objects are its series.
func ExternalMetric(plural string) *apiextensionsv1.CustomResourceDefinition {
	crd := CustomResource(plural, "external.metrics.k8s.io", "ExternalMetricValue", false)
	yes := true
	crd.Spec.Versions[0].Name, crd.Spec.Versions[0].Subresources = "v1beta1", nil
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
	return crd
}
