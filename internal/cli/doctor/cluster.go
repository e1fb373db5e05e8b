package doctor

import (
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
)

// Judge judges what examine saw. It is pure: the same checkup and time give the same findings.
func Judge(c *Facts, now time.Time) []Finding {
	list := diagnoseCluster(c)
	if c.Version == "" {
		return list
	}
	list = append(list, diagnoseInstall(c)...)
	list = append(list, diagnoseNodes(c, now)...)
	list = append(list, diagnoseNamespaces(c)...)
	return append(list, diagnosePods(c)...)
}

// Kubernetes versions that matter: pods/resize is beta and on from 1.33.
var firstResize = utilversion.MustParseGeneric("1.33.0")

func diagnoseCluster(c *Facts) []Finding {
	f := &findings{check: "cluster"}
	if err := c.Unread["version"]; err != nil {
		f.fail("API server", "does not answer: "+format.OneLine(err.Error()), "Check the kubeconfig, its context and the network.")
		return f.list
	}
	v, err := utilversion.ParseGeneric(c.Version)
	switch {
	case err != nil:
		f.warn("API server", fmt.Sprintf("Kubernetes %s: the version cannot be read", c.Version), "Nothing, as long as pods/resize is served.")
	case v.LessThan(firstResize):
		f.warn("API server", "Kubernetes "+c.Version+": in-place resize is on by default from 1.33", "Upgrade the cluster, or use MBCAS in recommend mode.")
	default:
		f.ok("API server", "Kubernetes %s", c.Version)
	}
	switch err := c.Unread["resize"]; {
	case err != nil:
		f.unread("pods/resize", err)
	case c.Served.Yes:
		f.ok("pods/resize", "%s", c.Served.Why)
	default:
		f.fail("pods/resize", c.Served.Why, "Upgrade, or enable the feature gate; until then MBCAS decides and records, and resizes nothing.")
	}
	return append(f.list, diagnoseRights(c)...)
}

func diagnoseRights(c *Facts) []Finding {
	f := &findings{check: "cluster"}
	if may := allowed(c.UserPermissions); may != "" {
		f.ok("you", "may %s in all namespaces", may)
	}
	for _, p := range c.UserPermissions {
		if p.Asked && !p.Allowed {
			f.warn("you", fmt.Sprintf("may not %s in all namespaces, needed for: %s", p, p.For), "Ask for it where you need it; other commands work without.")
		}
	}
	if err := c.Unread["permissions"]; err != nil {
		f.unread("you", err)
	}
	return f.list
}

func diagnoseCRD(f *findings, c *Facts) (installed bool) {
	const subject = "PodAllocation CRD"
	if err := c.Unread["crd"]; err != nil {
		f.unread(subject, err)
		return true
	}
	if c.CRD == nil {
		f.fail(subject, "is not installed", "Install MBCAS: kubectl apply -k config/base")
		return false
	}
	served := false
	for _, v := range c.CRD.Spec.Versions {
		served = served || (v.Name == v1alpha1.GroupVersion.Version && v.Served)
	}
	established := false
	for _, cond := range c.CRD.Status.Conditions {
		established = established || (cond.Type == apiextensionsv1.Established && cond.Status == apiextensionsv1.ConditionTrue)
	}
	switch {
	case !served:
		f.fail(subject, "does not serve version "+v1alpha1.GroupVersion.Version, "Install the CRD that belongs to this version of the plugin.")
	case !established:
		f.fail(subject, "is not established yet", "Wait some seconds; then look at: kubectl describe crd "+cluster.CRDName)
	default:
		f.ok(subject, "%s is served", v1alpha1.GroupVersion)
	}
	return true
}
