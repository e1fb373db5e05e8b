package doctor

import (
	"fmt"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/mbcas/mbcas/internal/cli/format"
)

// firstResize is the first version that serves pods/resize by default.
var firstResize = utilversion.MustParseGeneric("1.33.0")

func checkAPIServer(f *findings, s subject) {
	const server = "API server"
	if err := s.Unreadable["version"]; err != nil {
		f.fail(server, "does not respond: "+format.OneLine(err.Error()),
			"Check the kubeconfig, its context and the network.")
		return
	}
	v, err := utilversion.ParseGeneric(s.Version)
	switch {
	case err != nil:
		f.warn(server, fmt.Sprintf("Kubernetes %s: the version cannot be parsed", s.Version),
			"Nothing, as long as pods/resize is served.")
	case v.LessThan(firstResize):
		f.warn(server, fmt.Sprintf("Kubernetes %s: in-place resize is on by default from 1.33", s.Version),
			"Upgrade the cluster, or use MBCAS in recommend mode.")
	default:
		f.ok(server, "Kubernetes %s", s.Version)
	}
}

func checkResizeServed(f *findings, s subject) {
	const resize = "pods/resize"
	if s.Served.Yes {
		f.ok(resize, "%s", s.Served.Why)
		return
	}
	f.fail(resize, s.Served.Why,
		"Upgrade, or enable the feature gate InPlacePodVerticalScaling. Until then MBCAS decides and records, "+
			"and resizes nothing.")
}

func checkUserPermissions(f *findings, s subject) {
	const user = "you"
	if allowed := allowedText(s.UserPermissions); allowed != "" {
		f.ok(user, "may %s in all namespaces", allowed)
	}
	for _, p := range s.UserPermissions {
		if p.Reviewed && !p.Allowed {
			f.warn(user, fmt.Sprintf("may not %s in all namespaces, needed for: %s", p, p.For),
				"Ask for it where you need it; other commands work without.")
		}
	}
	if err := s.Unreadable["permissions"]; err != nil {
		f.unreadable("your permissions", err)
	}
}
