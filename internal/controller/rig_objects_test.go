package controller

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// ownedPod runs a pod of one container as Deployments make them.
func (r *rig) ownedPod(deployment, name, request, limit string) *corev1.Pod {
	r.Helper()
	pod := apiserver.Pod(r.namespace, name, apiserver.Container("app", request, limit))
	pod.Labels = map[string]string{"app": deployment, "pod-template-hash": "abc"}
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: deployment + "-abc", UID: types.UID("rs-" + deployment), Controller: &yes}}
	return r.kubelet.Run(r, pod)
}

// decide publishes a decision that holds the pod at a limit, as the market does when CPU is scarce.
func (r *rig) decide(pod *corev1.Pod, bound v1alpha1.BoundBy, limits ...v1alpha1.ContainerLimit) {
	r.Helper()
	r.publish(pod, "0.500", limits...)
	pa := r.stored(pod)
	before := pa.DeepCopy()
	pa.Spec.Decision.BoundBy, pa.Spec.Decision.ObservedAt = bound, metav1.NowMicro()
	r.must(r.Client.Patch(r.Context(), pa, client.MergeFrom(before)))
}

// managed runs until the pod has an allocation and stands at a limit.
func (r *rig) at(pod *corev1.Pod, limit int) {
	r.Helper()
	r.hear()
	r.allocation(pod, "made", func(pa *v1alpha1.PodAllocation) bool { return len(pa.Status.DeclaredLimits) > 0 })
	r.publish(pod, "0.000", app(milli(limit)))
	r.allocation(pod, "applied", stands(v1alpha1.PhaseApplied, reasons.Settled))
}

func (r *rig) annotate(o client.Object, key, value string) {
	r.Helper()
	patch := `{"metadata":{"annotations":{"` + key + `":"` + value + `"}}}`
	r.must(r.Client.Patch(r.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// custom is a definition of a custom resource that takes anything.
func custom(plural, group, kind string, scale bool) *apiextensionsv1.CustomResourceDefinition {
	yes := true
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = plural + "." + group
	crd.Annotations = map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"}
	crd.Spec.Group, crd.Spec.Scope = group, apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, Singular: strings.ToLower(kind)}
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
	version := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: "v1", Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything},
		}},
	}
	if scale {
		selector := ".status.selector"
		version.Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{
			SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: &selector,
		}
	}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version}
	return crd
}

// install installs a definition until the test ends, and returns what removes it.
func install(r *rig, crd *apiextensionsv1.CustomResourceDefinition) (remove func()) {
	r.Helper()
	_, err := envtest.InstallCRDs(r.Config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}, MaxTime: time.Minute})
	r.must(err)
	scheme := runtime.NewScheme()
	r.must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(r.Config, client.Options{Scheme: scheme})
	r.must(err)
	remove = func() {
		r.Helper()
		if err := c.Delete(r.T.Context(), crd); client.IgnoreNotFound(err) != nil {
			r.Error(err)
		}
	}
	r.Cleanup(func() {
		if err := envtest.UninstallCRDs(r.Config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}}); err != nil {
			r.Error(err)
		}
		// The next test may count on its absence, or install it again: what is being deleted takes that for an update, and then goes.
		r.until(crd.Name+" is removed", func() (bool, any) {
			err := c.Get(context.Background(), client.ObjectKeyFromObject(crd), crd.DeepCopy())
			return apierrors.IsNotFound(err), err
		})
	})
	return remove
}

// settlesAt publishes a limit and reconciles until it is in force.
func (l *life) settlesAt(pod *corev1.Pod, limit int) {
	l.Helper()
	l.until("allocation", func() (bool, any) { return l.look(pod) != nil, nil })
	l.publish(pod, "0.000", app(milli(limit)))
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
}

// told counts the events with a reason that were sent so far.
func (l *life) told(reason reasons.Reason) (n int) {
	sent := l.Events.(*events.FakeRecorder).Events
	for range len(sent) {
		if strings.Contains(<-sent, " "+string(reason)+" ") {
			n++
		}
	}
	return n
}

// becomes reconciles until the allocation is as wanted, and returns it.
func (l *life) becomes(pod *corev1.Pod, is func(*v1alpha1.PodAllocation) bool) *v1alpha1.PodAllocation {
	l.Helper()
	var pa *v1alpha1.PodAllocation
	l.until("allocation of "+pod.Name, func() (bool, any) {
		pa = l.look(pod)
		return pa != nil && is(pa), pa
	})
	return pa
}
