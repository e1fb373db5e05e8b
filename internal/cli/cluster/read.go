package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// Selection says which pods to read: one by name, or those of a namespace ("" for all), a node and
// labels.
type Selection struct {
	Namespace, Pod, Node string
	Labels               labels.Selector
}

// Read reads pods, allocations, modes and settings. Without pods it fails; what else cannot be read
// is noted.
func Read(ctx context.Context, a *Access, sel Selection) (*snapshot.Snapshot, error) {
	s := &snapshot.Snapshot{Modes: map[string]kube.Mode{}, Objects: snapshot.ObjectsByNamespace{}, System: a.System}
	var err error
	if s.Pods, err = readPods(ctx, a.Client, sel); err != nil {
		return nil, err
	}
	s.Allocations, err = ReadAllocations(ctx, a.Client, sel.Namespace)
	if err != nil && !NotInstalled(err) {
		return nil, err
	}
	gone := removed(ctx, a)
	s.Removed = gone && a.System == kube.SystemNamespace
	switch {
	case err != nil:
		s.Note("MBCAS is not installed in this cluster: it has no PodAllocation resource. " +
			"See \"kubectl mbcas doctor\".")
	case gone && !s.Removed:
		s.Note("MBCAS is not in namespace %s, which has no controller and no agents: leave out --system-namespace.", a.System)
	case gone:
		s.Note("MBCAS is not installed: namespace %s has no controller and no agents. What PodAllocations say is from before. To "+
			"delete them: kubectl mbcas uninstall --keep-crds=false", a.System)
	}
	if err := readConstraints(ctx, a.Client, s, sel.Namespace == ""); err != nil && sel.Pod != "" {
		s.Note("What constrains the pod is unknown: %s.", format.OneLine(err.Error()))
	}
	if state, err := restore.ReadState(ctx, a.Client, a.System); err != nil {
		s.Note("Whether MBCAS is paused is unknown: %s.", format.OneLine(err.Error()))
	} else if stopped := state.Stopped(); stopped != "" {
		s.Note("%s.", stopped)
	} else if held := state.Held(); held != "" {
		s.Note("%s.", held)
	} else if state.Warning != "" {
		s.Note("%s (%s).", state.WarningMessage, state.Warning)
	}
	if err := readModes(ctx, a, s, sel.Namespace); err != nil && len(s.Pods) == 0 {
		return nil, err
	}
	readVPAs(ctx, a, s, sel.Namespace)
	return s, nil
}

// removed says whether MBCAS is known to be gone, with its CRDs left. What may not be read is not known.
func removed(ctx context.Context, a *Access) bool {
	ns, err := Get(ctx, a.Client, &corev1.Namespace{}, client.ObjectKey{Name: a.System})
	if err != nil || ns == nil {
		return err == nil
	}
	d, errController := Get(ctx, a.Client, &appsv1.Deployment{}, client.ObjectKey{Namespace: a.System, Name: ControllerName})
	ds, errAgent := Get(ctx, a.Client, &appsv1.DaemonSet{}, client.ObjectKey{Namespace: a.System, Name: AgentName})
	return errController == nil && errAgent == nil && d == nil && ds == nil
}

// readModes reads the mode of each namespace and the controller's settings, which hold the default
// mode. The error is that the namespace does not exist; what else cannot be read is noted.
func readModes(ctx context.Context, a *Access, s *snapshot.Snapshot, namespace string) error {
	namespaces, err := ReadNamespaces(ctx, a.Client, namespace)
	switch {
	case errors.Is(err, errNoNamespace):
		return err
	case err != nil:
		s.Note("The mode labels of namespaces are unknown: %s.", format.OneLine(err.Error()))
	}
	byDefault := false
	for _, ns := range namespaces {
		if _, labelled := ns.Labels[kube.ModeLabel]; labelled {
			s.Modes[ns.Name], _ = kube.ModeOf(ns.Labels, "")
		} else if !kube.AlwaysUnmanaged(ns.Name, a.System) {
			byDefault = true
		}
	}
	if s.Settings, err = ReadSettings(ctx, a); err != nil && byDefault && s.Allocations != nil {
		s.Note("The default mode is unknown: %s.", format.OneLine(err.Error()))
	}
	return nil
}

// ReadSettings reads the settings that the controller publishes.
func ReadSettings(ctx context.Context, a *Access) (kube.Settings, error) {
	key := client.ObjectKey{Namespace: a.System, Name: kube.SettingsName}
	cm, err := Get(ctx, a.Client, &corev1.ConfigMap{}, key)
	switch {
	case err != nil:
		return nil, err
	case cm == nil:
		return nil, fmt.Errorf("ConfigMap %s does not exist; a running controller creates it", key)
	}
	return kube.ReadSettings(cm)
}

func readPods(ctx context.Context, c client.Client, sel Selection) ([]corev1.Pod, error) {
	if sel.Pod != "" {
		var pod corev1.Pod
		err := c.Get(ctx, client.ObjectKey{Namespace: sel.Namespace, Name: sel.Pod}, &pod)
		if apierrors.IsNotFound(err) {
			return nil, noSuchPod(ctx, c, sel)
		}
		if err != nil {
			return nil, fmt.Errorf("read pod %s/%s: %w", sel.Namespace, sel.Pod, err)
		}
		return []corev1.Pod{pod}, nil
	}
	options := []client.ListOption{client.InNamespace(sel.Namespace)}
	if sel.Labels != nil {
		options = append(options, client.MatchingLabelsSelector{Selector: sel.Labels})
	}
	if sel.Node != "" {
		options = append(options, client.MatchingFields{"spec.nodeName": sel.Node})
	}
	var list corev1.PodList
	if err := c.List(ctx, &list, options...); err != nil {
		return nil, fmt.Errorf("list pods in %s: %w", format.Scope{Namespace: sel.Namespace}, err)
	}
	return list.Items, nil
}

// ErrNoPod is the error for a pod that does not exist, where none has a name that begins like it.
var ErrNoPod = errors.New("does not exist")

// noSuchPod is the error for a pod that does not exist, with the pods whose names begin like it.
func noSuchPod(ctx context.Context, c client.Client, sel Selection) error {
	var list corev1.PodList
	var near []string
	if c.List(ctx, &list, client.InNamespace(sel.Namespace)) == nil {
		for _, p := range list.Items {
			if strings.HasPrefix(p.Name, sel.Pod+"-") {
				near = append(near, p.Name)
			}
		}
	}
	if len(near) > 0 {
		return fmt.Errorf("pod %s/%s does not exist: did you mean %s?", sel.Namespace, sel.Pod, format.Few(near))
	}
	return fmt.Errorf("pod %s/%s %w: name another namespace with -n", sel.Namespace, sel.Pod, ErrNoPod)
}

// ReadAllocations reads the PodAllocations of a namespace, or all for "", by the UID of their pod.
func ReadAllocations(
	ctx context.Context, c client.Client, namespace string,
) (map[types.UID]*v1alpha1.PodAllocation, error) {
	var list v1alpha1.PodAllocationList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list podallocations in %s: %w", format.Scope{Namespace: namespace}, err)
	}
	byUID := make(map[types.UID]*v1alpha1.PodAllocation, len(list.Items))
	for i := range list.Items {
		byUID[list.Items[i].Spec.PodRef.UID] = &list.Items[i]
	}
	return byUID, nil
}

// ReadNodeConstraints reads the constraints of the pods of a node: of all namespaces, or, if their
// PodAllocations may not be listed, of the pods of the snapshot.
func ReadNodeConstraints(
	ctx context.Context, a *Access, s *snapshot.Snapshot, node string,
) (found []snapshot.PodConstraints) {
	add := func(pa *v1alpha1.PodAllocation) {
		if c := s.Constraints[pa.Spec.PodRef.UID]; c != nil && pa.Spec.NodeName == node {
			found = append(found, snapshot.PodConstraints{Namespace: pa.Namespace, Constraints: c})
		}
	}
	var list v1alpha1.PodAllocationList
	if err := a.Client.List(ctx, &list, client.MatchingFields{"spec.nodeName": node}); err == nil {
		for i := range list.Items {
			add(&list.Items[i])
		}
		return found
	}
	for _, pa := range s.Allocations {
		add(pa)
	}
	return found
}

// mostGets is how many NodeAllocations are read one by one. Beyond, one list of all costs less.
const mostGets = 50

// readConstraints reads the NodeAllocations of the nodes of the pods that were read, or of all nodes.
func readConstraints(ctx context.Context, c client.Client, s *snapshot.Snapshot, all bool) error {
	s.Constraints = map[types.UID]*v1alpha1.Constraints{}
	add := func(n *v1alpha1.NodeAllocation) {
		for i := range n.Spec.Pods {
			if p := &n.Spec.Pods[i]; p.Constraints != nil {
				s.Constraints[p.UID] = p.Constraints
			}
		}
	}
	nodes := managedNodes(s)
	if all || len(nodes) > mostGets {
		var list v1alpha1.NodeAllocationList
		if err := c.List(ctx, &list); err != nil {
			return fmt.Errorf("list nodeallocations: %w", err)
		}
		for i := range list.Items {
			add(&list.Items[i])
		}
		return nil
	}
	for _, name := range nodes {
		n, err := Get(ctx, c, &v1alpha1.NodeAllocation{}, client.ObjectKey{Name: name})
		if err != nil {
			return err
		}
		if n != nil {
			add(n)
		}
	}
	return nil
}

var errNoNamespace = errors.New("does not exist: see kubectl get namespaces")

// ReadNamespaces reads one namespace, or all for "".
func ReadNamespaces(ctx context.Context, c client.Client, name string) ([]corev1.Namespace, error) {
	if name == "" {
		var list corev1.NamespaceList
		if err := c.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("list namespaces: %w", err)
		}
		return list.Items, nil
	}
	var ns corev1.Namespace
	err := c.Get(ctx, client.ObjectKey{Name: name}, &ns)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("namespace %s %w", name, errNoNamespace)
	}
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return []corev1.Namespace{ns}, nil
}

// Get reads one object; nil without an error means that it does not exist.
func Get[T client.Object](ctx context.Context, c client.Client, into T, key client.ObjectKey) (T, error) {
	var none T
	err := c.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		kind, _ := c.GroupVersionKindFor(into)
		return none, fmt.Errorf("read %s %s: %w", kind.Kind, strings.TrimPrefix(key.String(), "/"), err)
	}
	return into, nil
}

// NotInstalled says whether the error means that the cluster does not serve the kind.
func NotInstalled(err error) bool {
	var group *discovery.ErrGroupDiscoveryFailed
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || errors.As(err, &group)
}
