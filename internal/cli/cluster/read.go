package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// readNodeAllocations are the PodAllocations of a node: of all namespaces, or, where those may not be listed, those of w.
func ReadNodeAllocations(ctx context.Context, a *Access, w *snapshot.Snapshot, node string) (found []*v1alpha1.PodAllocation) {
	var list v1alpha1.PodAllocationList
	if err := a.Client.List(ctx, &list, client.MatchingFields{"spec.nodeName": node}); err == nil {
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
		return found
	}
	for _, pa := range w.Allocations {
		if pa.Spec.NodeName == node {
			found = append(found, pa)
		}
	}
	return found
}

// Get reads one object, what in words; nil without an error means that there is none.
func Get[T client.Object](ctx context.Context, c client.Client, what string, into T, namespace, name string) (T, error) {
	var none T
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read %s %s: %w", what, name, err)
	}
	return into, nil
}

// Selection says which pods are looked at.
type Selection struct {
	Namespace, Pod, Node string
	Labels               labels.Selector
}

// Read reads pods, allocations and modes. Only pods are indispensable; everything else is noted when it is
// missing.
func Read(ctx context.Context, a *Access, sel Selection) (*snapshot.Snapshot, error) {
	w := &snapshot.Snapshot{Modes: map[string]kube.Mode{}, Objects: snapshot.ObjectsByNamespace{}, System: a.System}
	var err error
	if w.Pods, err = readPods(ctx, a.Client, sel); err != nil {
		return nil, err
	}
	if w.Allocations, err = ReadAllocations(ctx, a.Client, sel.Namespace); err != nil {
		if !NotInstalled(err) {
			return nil, err
		}
		w.Note("MBCAS is not installed in this cluster: it has no PodAllocation resource. See \"kubectl mbcas doctor\".")
	}
	if err := readModes(ctx, a, w, sel.Namespace); err != nil && len(w.Pods) == 0 {
		return nil, err
	}
	readVPAs(ctx, a, w, sel.Namespace)
	if state, err := restore.ReadState(ctx, a.Client, a.System); err != nil {
		w.Note("Whether MBCAS is paused is not known: %s.", format.OneLine(err.Error()))
	} else if w.Stopped = state.Stopped(); w.Stopped != "" {
		w.Note("%s.", w.Stopped)
	}
	return w, nil
}

// readVPAs finds the VerticalPodAutoscalers of a namespace, or of all for "", and notes which of them may have pods that
// are not known.
func readVPAs(ctx context.Context, a *Access, w *snapshot.Snapshot, namespace string) {
	if len(w.Pods) == 0 {
		return
	}
	if err := AddVPAs(ctx, a.Client, w.Objects, namespace); err != nil {
		w.Note("Whether pods are left to a VerticalPodAutoscaler is not known: %s.", format.OneLine(err.Error()))
	}
	for _, name := range slices.Sorted(maps.Keys(w.Objects)) {
		n := w.Objects[name]
		for _, v := range n.VPAs {
			if err := n.Unresolved[v.Target]; err != nil {
				w.Note("Which pods are left to VerticalPodAutoscaler %s/%s is not known: %s.", name, v.Name, format.OneLine(err.Error()))
			}
		}
	}
}

// readModes reads the mode of each namespace, and the installation's where a namespace has none of its own.
// The error is that the namespace does not exist; whatever else cannot be read is noted.
func readModes(ctx context.Context, a *Access, w *snapshot.Snapshot, namespace string) error {
	namespaces, err := ReadNamespaces(ctx, a.Client, namespace)
	switch {
	case errors.Is(err, errNoNamespace):
		return err
	case err != nil:
		w.Note("Whether namespaces have a mode of their own is not known: %s.", format.OneLine(err.Error()))
	}
	var unlabelled []string
	for _, ns := range namespaces {
		if _, labelled := ns.Labels[kube.ModeLabel]; labelled {
			w.Modes[ns.Name], _ = kube.ModeOf(ns.Labels, "")
		} else if !kube.AlwaysOut(ns.Name, a.System) {
			unlabelled = append(unlabelled, ns.Name)
		}
	}
	if len(unlabelled) == 0 {
		return nil
	}
	if w.DefaultMode, err = ReadDefaultMode(ctx, a.Client, a.System); err != nil && w.Allocations != nil {
		w.Note("The installation's default mode is not known: %s.", format.OneLine(err.Error()))
	}
	return nil
}

func readPods(ctx context.Context, c client.Client, sel Selection) ([]corev1.Pod, error) {
	if sel.Pod != "" {
		var pod corev1.Pod
		err := c.Get(ctx, client.ObjectKey{Namespace: sel.Namespace, Name: sel.Pod}, &pod)
		if apierrors.IsNotFound(err) {
			return nil, missing(ctx, c, sel)
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
		return nil, fmt.Errorf("list pods in %s: %w", format.NamespaceScope(sel.Namespace), err)
	}
	return list.Items, nil
}

// missing says that a pod does not exist, and which one may be meant.
func missing(ctx context.Context, c client.Client, sel Selection) error {
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
	return fmt.Errorf("pod %s/%s does not exist: name another namespace with -n", sel.Namespace, sel.Pod)
}

func ReadAllocations(ctx context.Context, c client.Client, namespace string) (map[types.UID]*v1alpha1.PodAllocation, error) {
	var list v1alpha1.PodAllocationList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list podallocations in %s: %w", format.NamespaceScope(namespace), err)
	}
	byUID := make(map[types.UID]*v1alpha1.PodAllocation, len(list.Items))
	for i := range list.Items {
		byUID[list.Items[i].Spec.PodRef.UID] = &list.Items[i]
	}
	return byUID, nil
}

// NotInstalled says whether the error means that the cluster does not know PodAllocations.
func NotInstalled(err error) bool {
	var group *discovery.ErrGroupDiscoveryFailed
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || errors.As(err, &group)
}

// ReadDefaultMode reads the controller's --mode flag from its Deployment.
func ReadDefaultMode(ctx context.Context, c client.Client, system string) (kube.Mode, error) {
	var d appsv1.Deployment
	key := client.ObjectKey{Namespace: system, Name: ControllerName}
	if err := c.Get(ctx, key, &d); err != nil {
		return "", fmt.Errorf("read deployment %s: %w", key, err)
	}
	return ModeFlag(&d), nil
}

// ModeFlag is the value of --mode in the controller's arguments, which may name a variable of its
// environment; recommend, the controller's own default, where there is none.
func ModeFlag(d *appsv1.Deployment) kube.Mode {
	for _, c := range d.Spec.Template.Spec.Containers {
		words := slices.Concat(c.Command, c.Args)
		for i, word := range words {
			flag, value, ok := strings.Cut(word, "=")
			if flag != "--mode" && flag != "-mode" {
				continue
			}
			if !ok && i+1 < len(words) {
				value = words[i+1]
			}
			for _, e := range c.Env {
				value = strings.ReplaceAll(value, "$("+e.Name+")", e.Value)
			}
			if m, ok := kube.ParseMode(value); ok {
				return m
			}
		}
	}
	return kube.ModeRecommend
}

var errNoNamespace = errors.New("does not exist")

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
