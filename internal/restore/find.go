package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// Finder finds the declared limits of a pod.
type Finder struct {
	// Live reads from the API server itself.
	Live      client.Reader
	Namespace string // of the ledgers
	// templates keeps what was read, for one goroutine; nil: each template is read again.
	templates map[templateKey]map[string]cpu.Milli
}

// templateKey is an owner and, of those that have revisions, the one that a pod names.
type templateKey struct {
	owner    types.UID
	revision string
}

// Records are what caches show of the records of a pod.
type Records struct {
	Allocation *v1alpha1.PodAllocation // nil: none
	Ledger     *corev1.ConfigMap       // of its node; nil: none
}

// Found are declared limits; nil: they are unknown. Allocation is the pod's PodAllocation, if it was read from the API server itself.
type Found struct {
	Limits     []v1alpha1.ContainerLimit
	Allocation *v1alpha1.PodAllocation
}

// Find finds the declared limits: those that are recorded, else those that the pod itself proves, else those of its owner's template.
// A limit that MBCAS may have set is never taken for a declared one. Caches may be behind: where they show no record of a pod that may
// have one, or two that differ, the records are read from the API server itself.
func (f Finder) Find(ctx context.Context, pod *corev1.Pod, cached Records) (Found, error) {
	recorded, inLedger := cached.limits(pod.UID)
	limits, doubtful := kube.Limits(pod), kube.PossiblyWrittenByMBCAS(pod)
	switch {
	case recorded != nil && (inLedger == nil || kube.SameLimits(recorded, inLedger)):
		return Found{Limits: recorded}, nil
	case recorded == nil && inLedger == nil && len(doubtful) == 0:
		return Found{Limits: limits}, nil
	}
	live, err := f.read(ctx, pod)
	if err != nil {
		return Found{}, err
	}
	found := Found{Allocation: live.Allocation}
	if recorded, inLedger = live.limits(pod.UID); recorded == nil {
		recorded = inLedger
	}
	switch {
	case recorded != nil:
		found.Limits = recorded
	case len(doubtful) == 0:
		found.Limits = limits
	default:
		found.Limits, err = f.ofTemplate(ctx, pod, limits, doubtful)
	}
	return found, err
}

// limits are the declared limits in the PodAllocation and in the ledger; nil: none.
func (r Records) limits(uid types.UID) (allocation, ledger []v1alpha1.ContainerLimit) {
	if r.Allocation != nil && len(r.Allocation.Status.DeclaredLimits) > 0 {
		allocation = r.Allocation.Status.DeclaredLimits
	}
	e, _ := ReadEntry(r.Ledger, uid)
	return allocation, e.Limits
}

// read reads the records of a pod from the API server itself.
func (f Finder) read(ctx context.Context, pod *corev1.Pod) (r Records, err error) {
	pa, ledger := &v1alpha1.PodAllocation{}, &corev1.ConfigMap{}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: string(pod.UID)}
	switch err := f.Live.Get(ctx, key, pa); {
	case err == nil && pa.Spec.PodRef.UID == pod.UID:
		r.Allocation = pa
	case err != nil && client.IgnoreNotFound(err) != nil && !kube.NotServed(err):
		return Records{}, fmt.Errorf("read PodAllocation %s: %w", key, err)
	}
	key = types.NamespacedName{Namespace: f.Namespace, Name: LedgerName(pod.Spec.NodeName)}
	switch err := f.Live.Get(ctx, key, ledger); {
	case err == nil:
		r.Ledger = ledger
	case client.IgnoreNotFound(err) != nil:
		return Records{}, fmt.Errorf("read ConfigMap %s, the record of declared limits: %w", key, err)
	}
	return r, nil
}

// ofTemplate are the limits, the doubtful ones as in the template of the pod's owner; nil where that has none of them.
func (f Finder) ofTemplate(
	ctx context.Context, pod *corev1.Pod, limits []v1alpha1.ContainerLimit, doubtful map[string]bool,
) ([]v1alpha1.ContainerLimit, error) {
	template, err := f.template(ctx, pod)
	if err != nil {
		return nil, err
	}
	for i, l := range limits {
		if !doubtful[l.Name] {
			continue
		}
		if limits[i].CPULimit = template[l.Name]; template[l.Name] == 0 {
			return nil, nil
		}
	}
	return limits, nil
}

// template is the CPU limit of each container in the template that the pod was made from; empty
// where there is none.
func (f Finder) template(ctx context.Context, pod *corev1.Pod) (map[string]cpu.Milli, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil, nil
	}
	key := templateKey{owner.UID, pod.Labels[appsv1.ControllerRevisionHashLabelKey]}
	if limits, known := f.templates[key]; known {
		return limits, nil
	}
	limits, err := f.readTemplate(ctx, pod, owner)
	if err == nil && f.templates != nil {
		f.templates[key] = limits
	}
	return limits, err
}

func (f Finder) readTemplate(
	ctx context.Context, pod *corev1.Pod, owner *metav1.OwnerReference,
) (map[string]cpu.Milli, error) {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}
	var spec corev1.PodSpec
	var uid types.UID
	var err error
	switch owner.Kind {
	case "ReplicaSet":
		o := &appsv1.ReplicaSet{}
		err = f.Live.Get(ctx, key, o)
		spec, uid = o.Spec.Template.Spec, o.UID
	case "Job":
		o := &batchv1.Job{}
		err = f.Live.Get(ctx, key, o)
		spec, uid = o.Spec.Template.Spec, o.UID
	case "StatefulSet", "DaemonSet":
		// Their template may be newer than the pod; the revision that the pod names is not.
		o := &appsv1.ControllerRevision{}
		key.Name = revision(pod, owner.Name)
		if err = f.Live.Get(ctx, key, o); err == nil {
			var patch struct {
				Spec struct{ Template corev1.PodTemplateSpec }
			}
			err = json.Unmarshal(o.Data.Raw, &patch)
			spec = patch.Spec.Template.Spec
		}
		if c := metav1.GetControllerOf(o); c != nil {
			uid = c.UID
		}
	default:
		return nil, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the template of pod %s/%s, %s %s: %w", pod.Namespace, pod.Name, owner.Kind, key.Name, err)
	}
	if err != nil || uid != owner.UID {
		return nil, nil
	}
	return kube.ByName(kube.Limits(&corev1.Pod{Spec: spec})), nil
}

// revision is the name of the ControllerRevision of a pod: StatefulSets label pods with the
// whole name, DaemonSets with its last part.
func revision(pod *corev1.Pod, owner string) string {
	label := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	if strings.HasPrefix(label, owner+"-") {
		return label
	}
	return owner + "-" + label
}
