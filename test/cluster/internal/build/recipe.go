package build

import (
	"fmt"
	"strings"
)

// Recipe says what is made from the pins of one go.mod.
type Recipe struct {
	// Prefix begins the name of the set's folder in the cache, for people that look
	// there.
	Prefix string

	// Modules must be pinned. The version of the first one is stamped into the
	// programs; the build's message names them all.
	Modules []string

	// Programs are built in this order.
	Programs []Program

	// Names are more names of the program Called, which asks by which it was called.
	Called string
	Names  []string

	// Files are copied out of the first of Modules, by their paths in it, to stand
	// beside the programs under their last element.
	Files []string

	// Tags are the go command's, for sources that leave parts out.
	Tags []string

	// Stamps are the linker's -X settings for the version of the first module.
	Stamps func(version string) []string

	// Lasts is how long the first build takes, for people.
	Lasts string
}

// Program is one program of a recipe.
type Program struct {
	Name    string
	Package string
}

// Modules of the Kubernetes recipe.
const (
	KubernetesModule = "k8s.io/kubernetes"
	EtcdModule       = "go.etcd.io/etcd/server/v3"
)

// Kubernetes is the recipe of the cluster itself. Its program kube is several in
// one; envtest looks for the programs by their own names.
var Kubernetes = Recipe{
	Modules: []string{KubernetesModule, EtcdModule},
	Programs: []Program{
		{Name: "etcd", Package: "./etcd"},
		{Name: "pause", Package: "./pause"},
		{Name: "kube", Package: "./kube"},
	},
	Called: "kube",
	Names:  []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"},
	Stamps: stampKubernetes,
	Lasts:  "5 to 10 minutes",
}

// stampKubernetes stamps the version: without it the programs say v0.0.0 and
// refuse to work together.
func stampKubernetes(version string) []string {
	major, minor := "1", ""
	if p := strings.Split(strings.TrimPrefix(version, "v"), "."); len(p) == 3 {
		major, minor = p[0], p[1]
	}
	const pkg = "k8s.io/component-base/version."
	return []string{
		pkg + "gitVersion=" + version, pkg + "gitMajor=" + major, pkg + "gitMinor=" + minor, pkg + "gitTreeState=clean",
	}
}

// flags are the go command's, for the version of the recipe's first module.
func (r Recipe) flags(version string) []string {
	ld := []string{"-s -w"}
	if r.Stamps != nil {
		for _, s := range r.Stamps(version) {
			ld = append(ld, "-X "+s)
		}
	}
	flags := []string{"-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags=" + strings.Join(ld, " ")}
	if len(r.Tags) > 0 {
		flags = append(flags, "-tags="+strings.Join(r.Tags, ","))
	}
	return flags
}

// what names the modules and their versions.
func (r Recipe) what(versions map[string]string) string {
	var parts []string
	for _, m := range r.Modules {
		parts = append(parts, fmt.Sprintf("%s %s", m, versions[m]))
	}
	return strings.Join(parts, " and ")
}
