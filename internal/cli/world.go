package cli

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
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// World is what the commands read of a cluster before they say anything.
type World struct {
	Pods        []corev1.Pod
	Allocations map[types.UID]*v1alpha1.PodAllocation
	// Modes holds the mode of each namespace that could be read.
	Modes map[string]kube.Mode
	// Default is the installation's mode for namespaces without a label; "" where it is not known.
	Default kube.Mode
	// Around knows which pods are left to a VerticalPodAutoscaler.
	Around surroundings
	// Live holds the figures of each node's last round, Markets the nodes themselves, as far as agents answered.
	Live    map[types.UID]*Figures
	Markets []Market
	// Stopped says why MBCAS resizes no pod of the cluster at present; "" if it does.
	Stopped string
	// Notes say what could not be read and is therefore guessed or missing.
	Notes []string
}

// Mode is the mode of a namespace; "" where it is not known.
func (w *World) Mode(namespace string) kube.Mode {
	if m, ok := w.Modes[namespace]; ok {
		return m
	}
	return w.Default
}

func (w *World) note(format string, args ...any) {
	w.Notes = append(w.Notes, fmt.Sprintf(format, args...))
}

// selection says which pods are looked at.
type selection struct {
	namespace, pod, node string
	labels               labels.Selector
}

// gather reads pods, allocations and modes. Only pods are indispensable; everything else is noted when it is
// missing.
func gather(ctx context.Context, a *Access, sel selection) (*World, error) {
	w := &World{Modes: map[string]kube.Mode{}, Around: surroundings{}}
	var err error
	if w.Pods, err = readPods(ctx, a.Client, sel); err != nil {
		return nil, err
	}
	if w.Allocations, err = readAllocations(ctx, a.Client, sel.namespace); err != nil {
		if !notInstalled(err) {
			return nil, err
		}
		w.note("MBCAS is not installed in this cluster: it has no PodAllocation resource. See \"kubectl mbcas doctor\".")
	}
	if err := w.readModes(ctx, a, sel.namespace); err != nil && len(w.Pods) == 0 {
		return nil, err
	}
	w.readVPAs(ctx, a, sel.namespace)
	if state, err := restore.ReadState(ctx, a.Client, a.System); err != nil {
		w.note("Whether MBCAS is paused is not known: %s.", oneLine(err.Error()))
	} else if w.Stopped = state.Stopped(); w.Stopped != "" {
		w.note("%s.", w.Stopped)
	}
	return w, nil
}

// readVPAs finds the VerticalPodAutoscalers of a namespace, or of all for "", and notes which of them may have pods that
// are not known.
func (w *World) readVPAs(ctx context.Context, a *Access, namespace string) {
	if len(w.Pods) == 0 {
		return
	}
	if err := w.Around.addVPAs(ctx, a.Client, namespace); err != nil {
		w.note("Whether pods are left to a VerticalPodAutoscaler is not known: %s.", oneLine(err.Error()))
	}
	for _, name := range slices.Sorted(maps.Keys(w.Around)) {
		n := w.Around[name]
		for _, v := range n.VPAs {
			if err := n.hidden[v.Target]; err != nil {
				w.note("Which pods are left to VerticalPodAutoscaler %s/%s is not known: %s.", name, v.Name, oneLine(err.Error()))
			}
		}
	}
}

// readModes reads the mode of each namespace, and the installation's where a namespace has none of its own.
// The error is that the namespace does not exist; whatever else cannot be read is noted.
func (w *World) readModes(ctx context.Context, a *Access, namespace string) error {
	namespaces, err := readNamespaces(ctx, a.Client, namespace)
	switch {
	case errors.Is(err, errNoNamespace):
		return err
	case err != nil:
		w.note("Whether namespaces have a mode of their own is not known: %s.", oneLine(err.Error()))
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
	if w.Default, err = readDefaultMode(ctx, a.Client, a.System); err != nil && w.Allocations != nil {
		w.note("The installation's default mode is not known: %s.", oneLine(err.Error()))
	}
	return nil
}

func readPods(ctx context.Context, c client.Client, sel selection) ([]corev1.Pod, error) {
	if sel.pod != "" {
		var pod corev1.Pod
		err := c.Get(ctx, client.ObjectKey{Namespace: sel.namespace, Name: sel.pod}, &pod)
		if apierrors.IsNotFound(err) {
			return nil, missing(ctx, c, sel)
		}
		if err != nil {
			return nil, fmt.Errorf("read pod %s/%s: %w", sel.namespace, sel.pod, err)
		}
		return []corev1.Pod{pod}, nil
	}
	options := []client.ListOption{client.InNamespace(sel.namespace)}
	if sel.labels != nil {
		options = append(options, client.MatchingLabelsSelector{Selector: sel.labels})
	}
	if sel.node != "" {
		options = append(options, client.MatchingFields{"spec.nodeName": sel.node})
	}
	var list corev1.PodList
	if err := c.List(ctx, &list, options...); err != nil {
		return nil, fmt.Errorf("list pods in %s: %w", namespaceText(sel.namespace), err)
	}
	return list.Items, nil
}

// missing says that a pod does not exist, and which one may be meant.
func missing(ctx context.Context, c client.Client, sel selection) error {
	var list corev1.PodList
	var near []string
	if c.List(ctx, &list, client.InNamespace(sel.namespace)) == nil {
		for _, p := range list.Items {
			if strings.HasPrefix(p.Name, sel.pod+"-") {
				near = append(near, p.Name)
			}
		}
	}
	if len(near) > 0 {
		return fmt.Errorf("pod %s/%s does not exist: did you mean %s?", sel.namespace, sel.pod, few(near))
	}
	return fmt.Errorf("pod %s/%s does not exist: name another namespace with -n", sel.namespace, sel.pod)
}

func readAllocations(ctx context.Context, c client.Client, namespace string) (map[types.UID]*v1alpha1.PodAllocation, error) {
	var list v1alpha1.PodAllocationList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list podallocations in %s: %w", namespaceText(namespace), err)
	}
	byUID := make(map[types.UID]*v1alpha1.PodAllocation, len(list.Items))
	for i := range list.Items {
		byUID[list.Items[i].Spec.PodRef.UID] = &list.Items[i]
	}
	return byUID, nil
}

// notInstalled says whether the error means that the cluster does not know PodAllocations.
func notInstalled(err error) bool {
	var group *discovery.ErrGroupDiscoveryFailed
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || errors.As(err, &group)
}

// readDefaultMode reads the controller's --mode flag from its Deployment.
func readDefaultMode(ctx context.Context, c client.Client, system string) (kube.Mode, error) {
	var d appsv1.Deployment
	key := client.ObjectKey{Namespace: system, Name: controllerName}
	if err := c.Get(ctx, key, &d); err != nil {
		return "", fmt.Errorf("read deployment %s: %w", key, err)
	}
	return modeFlag(&d), nil
}

// modeFlag is the value of --mode in the controller's arguments, which may name a variable of its
// environment; recommend, the controller's own default, where there is none.
func modeFlag(d *appsv1.Deployment) kube.Mode {
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

// readNamespaces reads one namespace, or all for "".
func readNamespaces(ctx context.Context, c client.Client, name string) ([]corev1.Namespace, error) {
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
