package install

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/config"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/kube"
)

const mergePatch = types.MergePatchType

// registry has the images of the release that this plugin is of. The linker sets it.
var registry = "mbcas.io"

// settings are in what installations differ.
type settings struct {
	agent, controller string // images
	mode              kube.Mode
}

// settingsFor are those of a new installation.
func settingsFor(o Options) settings {
	at := cmp.Or(o.Registry, registry)
	return settings{
		agent: at + "/agent:" + o.Tag, controller: at + "/controller:" + o.Tag,
		mode: kube.Mode(cmp.Or(o.Mode, string(kube.ModeRecommend))),
	}
}

// version is the tag of the controller's image.
func (s settings) version() string {
	_, tag := splitImage(s.controller)
	return tag
}

// splitImage divides an image into its name and its tag or digest.
func splitImage(image string) (name, tag string) {
	parts := imageParts.FindStringSubmatch(image)
	return parts[1], parts[2]
}

var imageParts = regexp.MustCompile(`^(.*?)(?:[:@]([^/]*))?$`)

// release is the version of a release. One that git describes between releases is none.
var (
	release = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
	between = regexp.MustCompile(`-\d+-g[0-9a-f]+$|-dirty$`)
)

// devTag is the tag of images that are of no release.
const devTag = "dev"

// tagOf is the tag of the images that belong to a plugin of that version.
func tagOf(version string) string {
	if release.MatchString(version) && !between.MatchString(version) {
		return version
	}
	return devTag
}

// order is that in which kinds are applied: policies before the rights that they fence. Kinds that are not in it come
// before the last three. They are deleted in the opposite order, so rights end before their fences.
var order = []string{
	"Namespace", "CustomResourceDefinition", "ResourceQuota", "ServiceAccount", "ValidatingAdmissionPolicy",
	"ValidatingAdmissionPolicyBinding", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "",
	"CronJob", "DaemonSet", "Deployment",
}

func rank(o *unstructured.Unstructured) int {
	if i := slices.Index(order, o.GetKind()); i >= 0 {
		return i
	}
	return slices.Index(order, "")
}

// manifests are the objects of an installation in the order in which they are applied.
func manifests(s settings) ([]*unstructured.Unstructured, error) {
	objects, err := objectsOf("base")
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	for _, o := range objects {
		if err := s.apply(o); err != nil {
			return nil, fmt.Errorf("manifest of %s: %w", nameOf(o), err)
		}
	}
	return objects, nil
}

// objectsOf are the objects of a folder of config as they stand there.
func objectsOf(dir string) (objects []*unstructured.Unstructured, err error) {
	texts, err := config.Objects(dir)
	for _, text := range texts {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			return nil, fmt.Errorf("manifests of config/%s: %w", dir, err)
		}
		objects = append(objects, o)
	}
	return objects, err
}

// nameOf is how output and errors call an object.
func nameOf(o *unstructured.Unstructured) string {
	if o.GetNamespace() != "" && o.GetNamespace() != kube.SystemNamespace {
		return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
	}
	return o.GetKind() + " " + o.GetName()
}

// podPaths are where kinds have the spec of their pods.
var podPaths = map[string][]string{
	"Deployment": {"spec", "template", "spec"},
	"DaemonSet":  {"spec", "template", "spec"},
	"CronJob":    {"spec", "jobTemplate", "spec", "template", "spec"},
}

// apply sets the images and the mode in an object: those of the controller's Deployment and of its policy, as the
// component config/components/enforce does.
func (s settings) apply(o *unstructured.Unstructured) error {
	if o.GetKind() == "ValidatingAdmissionPolicy" && o.GetName() == cluster.ControllerName {
		return replace(o, []string{"spec", "variables"}, "byDefault", "expression", "'"+string(s.mode)+"'")
	}
	path, hasPods := podPaths[o.GetKind()]
	if !hasPods {
		return nil
	}
	containers := append(slices.Clone(path), "containers")
	container, image := "controller", s.controller
	switch o.GetKind() {
	case "DaemonSet":
		container, image = "agent", s.agent
	case "CronJob":
		container = "restore"
	}
	if err := replace(o, containers, container, "image", image); err != nil || o.GetKind() != "Deployment" {
		return err
	}
	c := named(o, containers, container)
	env := &unstructured.Unstructured{Object: c}
	return replace(env, []string{"env"}, modeVariable, "value", string(s.mode))
}

// modeVariable is the environment variable with the default mode of the controller.
const modeVariable = "MBCAS_MODE"

// named is the element of that name in a list of an object; nil if there is none.
func named(o *unstructured.Unstructured, list []string, name string) map[string]any {
	all, _, _ := unstructured.NestedFieldNoCopy(o.Object, list...)
	elements, _ := all.([]any)
	for _, e := range elements {
		if m, ok := e.(map[string]any); ok && m["name"] == name {
			return m
		}
	}
	return nil
}

// replace sets a field, which is there, of a named element of a list.
func replace(o *unstructured.Unstructured, list []string, name, field, to string) error {
	m := named(o, list, name)
	if _, ok := m[field]; !ok {
		return fmt.Errorf("%v has no %s with a field %s", list, name, field)
	}
	m[field] = to
	return nil
}
