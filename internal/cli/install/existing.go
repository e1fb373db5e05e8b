package install

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/kube"
)

// installation is what the cluster has of the objects of the manifests.
type installation struct {
	live map[string]*unstructured.Unstructured // by nameOf
	// stale are objects of another version that this one does not have.
	stale []*unstructured.Unstructured
	// deleting is the first of them that is being deleted; nil: none.
	deleting *unstructured.Unstructured
	// helm: they are of the Helm chart. release is that to which they belong; "" where another tool rendered them.
	helm    bool
	release string
}

// components are the parts of config that users add themselves, and that an uninstallation removes.
var components = []string{"components/plugin-users", "components/default-limits", "components/secure-metrics/roles"}

// everything is what an installation may have: the objects of the manifests, and those of the components.
func everything() ([]*unstructured.Unstructured, error) {
	objects, err := objectsOf("base")
	if err != nil {
		return nil, err
	}
	for _, dir := range components {
		more, err := objectsOf(dir)
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

// read reads what is installed.
func (r *run) read(ctx context.Context) (*installation, error) {
	objects, err := everything()
	if err != nil {
		return nil, err
	}
	now := &installation{live: map[string]*unstructured.Unstructured{}}
	for _, o := range objects {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(o.GroupVersionKind())
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(o), u)
		switch {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			continue
		case err != nil:
			return nil, explained("read", o, err)
		}
		now.live[nameOf(o)] = u
		if now.deleting == nil && u.GetDeletionTimestamp() != nil {
			now.deleting = u
		}
		// The CRDs outlive a release, with its labels.
		if u.GetLabels()["app.kubernetes.io/managed-by"] == "Helm" && u.GetKind() != crdKind {
			now.helm, now.release = true, cmp.Or(now.release, u.GetAnnotations()["meta.helm.sh/release-name"])
		}
	}
	now.stale, err = r.stale(ctx, objects)
	return now, err
}

const crdKind = "CustomResourceDefinition"

// installed says whether there is an installation. The Deployment is applied last: without it, an installation was
// interrupted, and can be repeated.
func (i *installation) installed() bool { return i.controller() != nil }

func (i *installation) controller() *unstructured.Unstructured {
	return i.live["Deployment "+cluster.ControllerName]
}

// container is that of the pods of a workload.
func (i *installation) container(workload, name string) map[string]any {
	kind, _, _ := strings.Cut(workload, " ")
	if o := i.live[workload]; o != nil {
		return named(o, append(append([]string{}, podPaths[kind]...), "containers"), name)
	}
	return nil
}

func (i *installation) image(workload, container string) string {
	image, _ := i.container(workload, container)["image"].(string)
	return image
}

// weightsRecord is where mbcas-weights keeps original values on the disk of each node; "": it is not installed.
func (i *installation) weightsRecord() string {
	agents := i.live["DaemonSet "+cluster.AgentName]
	if agents == nil {
		return ""
	}
	volume := &unstructured.Unstructured{Object: named(agents, append(slices.Clone(podPaths["DaemonSet"]), "volumes"), "weights-record")}
	folder, _, _ := unstructured.NestedString(volume.Object, "hostPath", "path")
	return folder
}

// version is the tag of the controller's image.
func (i *installation) version() string {
	_, tag := splitImage(i.image("Deployment "+cluster.ControllerName, "controller"))
	return tag
}

// mode is the default mode of the controller.
func (i *installation) mode() kube.Mode {
	c := &unstructured.Unstructured{Object: i.container("Deployment "+cluster.ControllerName, "controller")}
	mode, _ := named(c, []string{"env"}, modeVariable)["value"].(string)
	return kube.Mode(mode)
}

// settings are those after an upgrade: what the options leave open stays as it is.
func (i *installation) settings(o Options) settings {
	s := settingsFor(o)
	if o.Mode == "" && i.mode() != "" {
		s.mode = i.mode()
	}
	if o.Registry != "" {
		return s
	}
	keep := func(image, installed string) string {
		_, tag := splitImage(image)
		if name, _ := splitImage(installed); name != "" {
			return name + ":" + tag
		}
		return image
	}
	s.agent = keep(s.agent, i.image("DaemonSet "+cluster.AgentName, "agent"))
	s.controller = keep(s.controller, i.image("Deployment "+cluster.ControllerName, "controller"))
	return s
}

// checkSkew refuses to skip a minor version, up or down: objects are read and written by the version before and after
// one step, and by no other. Versions that are none cannot be compared, and are not refused.
func checkSkew(from, to string) error {
	a, errA := utilversion.ParseSemantic(from)
	b, errB := utilversion.ParseSemantic(to)
	if errA != nil || errB != nil {
		return nil //nolint:nilerr // a tag such as dev is no version
	}
	up, verb, next := int(b.Minor())-int(a.Minor()), "an upgrade", int(a.Minor())+1
	if b.LessThan(a) {
		verb, next = "a downgrade", int(a.Minor())-1
	}
	if a.Major() == b.Major() && up >= -1 && up <= 1 {
		return nil
	}
	step := "go version by version"
	if a.Major() == b.Major() {
		step = "first go to v" + strconv.Itoa(int(a.Major())) + "." + strconv.Itoa(next)
	}
	return fmt.Errorf("%s from %s to %s skips a minor version, and their objects may not fit; %s, with the plugin of "+
		"that version", verb, from, to, step)
}
