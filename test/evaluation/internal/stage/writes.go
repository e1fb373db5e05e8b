//go:build linux

package stage

import (
	"slices"
	"strings"

	"github.com/mbcas/mbcas/test/evaluation/internal/results"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/cluster"
)

// accounts are the beginnings of the names of users that are parts of a policy.
var accounts = []struct{ begin, part string }{
	{"system:serviceaccount:" + cluster.System + ":", results.WritesMBCAS},
	{"system:serviceaccount:kube-system:vpa-", results.WritesVPA},
	{"system:serviceaccount:kube-system:horizontal-pod-autoscaler", results.WritesHPA},
}

// writing are the verbs of requests that change something.
var writing = []string{"create", "update", "patch", "delete", "deletecollection"}

// count counts an accepted write: one of a part of a policy anywhere, and each one in the cell's namespace.
func count(c *results.Control, namespace string, e audit.Event) {
	if e.DryRun() || e.ResponseStatus.Code >= 300 || !slices.Contains(writing, e.Verb) {
		return
	}
	part, in := results.WritesCluster, e.ObjectRef.Namespace == namespace
	for _, x := range accounts {
		if strings.HasPrefix(e.User.Username, x.begin) {
			part = x.part
		}
	}
	if !in && part == results.WritesCluster {
		return
	}
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	if c.Writes == nil {
		c.Writes = map[string]map[string]int{}
	}
	if c.Writes[part] == nil {
		c.Writes[part] = map[string]int{}
	}
	c.Writes[part][resource]++
	switch {
	case !in:
	case e.Of("resize"):
		c.Resizes++
		c.PodWrites++
	case e.Of("eviction"):
		c.Evictions++
		c.PodWrites++
	case e.Of(""):
		c.PodWrites++
	}
}
