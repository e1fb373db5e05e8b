package controller

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
	"github.com/mbcas/mbcas/internal/restore"
)

// declared finds the declared limits: those that are remembered or recorded, else those that the
// pod itself proves, else those of its owner's template. A limit that MBCAS may have set is never
// taken for a declared one; where nothing is left, known is false.
func (r *Reconciler) declared(
	ctx context.Context, pod *corev1.Pod, rec record, pa *v1alpha1.PodAllocation, ledger *corev1.ConfigMap,
) (limits []v1alpha1.ContainerLimit, known bool, err error) {
	if len(rec.declared) > 0 {
		return rec.declared, true, nil
	}
	if pa != nil && len(pa.Status.DeclaredLimits) > 0 {
		return pa.Status.DeclaredLimits, true, nil
	}
	if e, ok := restore.ReadEntry(ledger, pod.UID); ok {
		return e.Limits, true, nil
	}
	limits, doubtful := kube.Limits(pod), kube.PossiblyWrittenByMBCAS(pod)
	if len(doubtful) == 0 {
		return limits, len(limits) > 0, nil
	}
	template, err := r.template(ctx, pod)
	if err != nil {
		return nil, false, err
	}
	for i, l := range limits {
		if !doubtful[l.Name] {
			continue
		}
		if limits[i].CPULimit = template[l.Name]; template[l.Name] == 0 {
			return nil, false, nil
		}
	}
	return limits, true, nil
}

// template is the CPU limit of each container in the template that the pod was made from; empty
// where there is none.
func (r *Reconciler) template(ctx context.Context, pod *corev1.Pod) (map[string]cpu.Milli, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil, nil
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}
	var spec corev1.PodSpec
	var uid types.UID
	var err error
	switch owner.Kind {
	case "ReplicaSet":
		o := &appsv1.ReplicaSet{}
		err = r.Live.Get(ctx, key, o)
		spec, uid = o.Spec.Template.Spec, o.UID
	case "Job":
		o := &batchv1.Job{}
		err = r.Live.Get(ctx, key, o)
		spec, uid = o.Spec.Template.Spec, o.UID
	case "StatefulSet", "DaemonSet":
		// Their template may be newer than the pod; the revision that the pod names is not.
		o := &appsv1.ControllerRevision{}
		key.Name = revision(pod, owner.Name)
		if err = r.Live.Get(ctx, key, o); err == nil {
			spec, err = revised(o)
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

func revised(o *appsv1.ControllerRevision) (corev1.PodSpec, error) {
	var patch struct {
		Spec struct{ Template corev1.PodTemplateSpec }
	}
	if err := json.Unmarshal(o.Data.Raw, &patch); err != nil {
		return corev1.PodSpec{}, fmt.Errorf("template in ControllerRevision %s/%s: %w", o.Namespace, o.Name, err)
	}
	return patch.Spec.Template.Spec, nil
}
