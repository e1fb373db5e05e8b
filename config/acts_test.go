package config_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

const us = "mbcas-controller" // the name under which the controller writes

var errMayNot = errors.New("may not")

// may asks whether somebody may do a thing that would need more than an API server. The resource may have a group after a dot.
func may(verb, resource, subresource, namespace string) act {
	return func(ctx context.Context, _ *stage, c client.Client) error {
		name, group, _ := strings.Cut(resource, ".")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: name, Subresource: subresource, Namespace: namespace},
		}}
		if err := c.Create(ctx, review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("%w %s %s/%s in %q", errMayNot, verb, resource, subresource, namespace)
		}
		return nil
	}
}

// decision is a spec that an agent may write, with parts replaced: old, new, old, new.
func decision(replace ...string) string {
	return strings.NewReplacer(replace...).Replace(`{"spec":{"desiredCPULimit":"500m","containers":[{"name":"app","cpuLimit":"500m"}],"decision":{
		"demand":"300m","usage":"300m","throttledPercent":0,"budget":100,"price":"0.000","floor":"110m","ceiling":"2000m",
		"boundBy":"Nothing","observedAt":"2026-01-01T00:00:00.000000Z"}}}`)
}

// write patches the PodAllocation of a pod.
func write(pod, body string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		return c.Patch(ctx, s.ref(pod), client.RawPatch(types.MergePatchType, []byte(body)))
	}
}

// decide writes a decision for a pod.
func decide(pod string, replace ...string) act { return write(pod, decision(replace...)) }

// smuggle writes something beside what may be written, and looks whether it was taken.
func smuggle(pod, body string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		pa := s.ref(pod)
		if err := c.Patch(ctx, pa, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			return err
		}
		if pa.Status.Phase == "" && pa.Status.Constraints == nil {
			return errNoEffect
		}
		return nil
	}
}

// status writes status fields of a PodAllocation.
func status(pod, fields string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		return c.Status().Patch(ctx, s.ref(pod), client.RawPatch(types.MergePatchType, []byte(`{"status":{`+fields+`}}`)))
	}
}

// ref is a pod's PodAllocation by name alone.
func (s *stage) ref(pod string) *v1alpha1.PodAllocation {
	pa := &v1alpha1.PodAllocation{}
	pa.Namespace, pa.Name = s.pods[pod].Namespace, string(s.pods[pod].UID)
	return pa
}

// allocate creates the PodAllocation of a pod that has none yet, changed by the edit.
func allocate(pod string, edit func(*v1alpha1.PodAllocation)) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		pa := s.allocation(pod)
		if edit != nil {
			edit(pa)
		}
		return c.Create(ctx, pa)
	}
}

// owned changes the owner of a PodAllocation.
func owned(edit func(*metav1.OwnerReference)) func(*v1alpha1.PodAllocation) {
	return func(pa *v1alpha1.PodAllocation) { edit(&pa.OwnerReferences[0]) }
}

func deallocate(pod string) act {
	return func(ctx context.Context, s *stage, c client.Client) error { return c.Delete(ctx, s.ref(pod)) }
}

// limit resizes one container of a pod, as the controller does.
func limit(pod, container, value string) act {
	if value != "null" {
		value = `"` + value + `"`
	}
	return resources(pod, container, `"limits":{"cpu":`+value+`}`)
}

// resources writes resources of one container of a pod through pods/resize.
func resources(pod, container, body string) act {
	list := "containers"
	if container == "setup" || container == "proxy" {
		list = "initContainers"
	}
	return through(pod, fmt.Sprintf(`%q:[{"name":%q,"resources":{%s}}]`, list, container, body), us)
}

// through writes a part of a pod's spec through pods/resize, under a name.
func through(pod, spec, manager string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		p := s.at(pod)
		return s.resize(ctx, c, p.Namespace, p.Name, spec, manager)
	}
}

// wide raises the limits of all 64 containers of a pod.
func wide(ctx context.Context, s *stage, c client.Client) error {
	var parts []string
	for _, c := range s.pods["shop/wide"].Spec.Containers {
		parts = append(parts, fmt.Sprintf(`{"name":%q,"resources":{"limits":{"cpu":"30m"}}}`, c.Name))
	}
	return through("shop/wide", `"containers":[`+strings.Join(parts, ",")+`]`, us)(ctx, s, c)
}

// forged is a note that says that the controller set the limit of the container app.
const forged = `[{"manager":"mbcas-controller","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","subresource":"resize",
	"fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:cpu":{}}}}}}}}]`

// note tries to replace the note of who wrote what of a pod, through pods/resize.
func note(entries string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		p := s.at("attic/web")
		body := `{"metadata":{"managedFields":` + entries + `}}`
		err := c.SubResource("resize").Patch(ctx, p, client.RawPatch(types.MergePatchType, []byte(body)), client.FieldOwner(us))
		if err == nil && len(p.ManagedFields) == 1 && p.ManagedFields[0].Subresource == "" {
			return errNoEffect // only its creator is in it
		}
		return err
	}
}

// noted does so while it changes the limit.
func noted(pod, entries string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		body := `[{"op":"replace","path":"/metadata/managedFields","value":` + entries + `},
			{"op":"replace","path":"/spec/containers/0/resources/limits/cpu","value":"300m"}]`
		return c.SubResource("resize").Patch(ctx, s.at(pod), client.RawPatch(types.JSONPatchType, []byte(body)), client.FieldOwner(us))
	}
}

// image tries to change an image through pods/resize.
func image(ctx context.Context, s *stage, c client.Client) error {
	p := s.at("shop/web")
	body := `{"spec":{"containers":[{"name":"app","image":"evil","resources":{"limits":{"cpu":"210m"}}}]}}`
	err := c.SubResource("resize").Patch(ctx, p, client.RawPatch(types.StrategicMergePatchType, []byte(body)), client.FieldOwner(us), client.DryRunAll)
	if err == nil && p.Spec.Containers[0].Image != "evil" {
		return errNoEffect
	}
	return err
}

// applied resizes by server-side apply.
func applied(pod, value string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		p := s.at(pod)
		return s.apply(ctx, c, p.Namespace, p.Name, value)
	}
}

// edit patches a pod itself.
func edit(pod, body string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		return c.Patch(ctx, s.at(pod), client.RawPatch(types.StrategicMergePatchType, []byte(body)))
	}
}

// connect opens a way into a pod. There is nobody at its other end, so whatever admission lets through has succeeded.
func connect(pod, subresource string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		err := c.SubResource(subresource).Create(ctx, s.at(pod), s.at(pod)) // nobody reads the body
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return err
		}
		return nil
	}
}

// demandSignal is a DemandSignal for the pods of the Deployment web.
func demandSignal(namespace, name string) *v1alpha1.DemandSignal {
	aim := resource.MustParse("200m")
	d := &v1alpha1.DemandSignal{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	d.Spec = v1alpha1.DemandSignalSpec{
		TargetRef: v1alpha1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MinPercent: 100, MaxPercent: 200,
		Metric: v1alpha1.SignalMetric{Type: v1alpha1.ExternalMetric, External: &v1alpha1.ExternalSignal{
			Metric: v1alpha1.MetricID{Name: "p99"}, Target: v1alpha1.SignalObjective{Type: "Value", Value: &aim},
		}},
	}
	return d
}

// ask creates a DemandSignal in the namespace shop, changed by the edit.
func ask(edit func(*v1alpha1.DemandSignal)) act {
	return func(ctx context.Context, _ *stage, c client.Client) error {
		d := demandSignal("shop", "new")
		if edit != nil {
			edit(d)
		}
		return c.Create(ctx, d)
	}
}

// askElse patches the DemandSignal that is there.
func askElse(body string) act {
	return func(ctx context.Context, _ *stage, c client.Client) error {
		return c.Patch(ctx, demandSignal("shop", "latency"), client.RawPatch(types.MergePatchType, []byte(body)))
	}
}

// claim writes its status.
func claim(body string) act {
	return func(ctx context.Context, _ *stage, c client.Client) error {
		return c.Status().Patch(ctx, demandSignal("shop", "latency"), client.RawPatch(types.MergePatchType, []byte(`{"status":{`+body+`}}`)))
	}
}

func destroy(pod string) act {
	return func(ctx context.Context, s *stage, c client.Client) error { return c.Delete(ctx, s.at(pod)) }
}

func evict(pod string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		p := s.at(pod)
		return c.SubResource("eviction").Create(ctx, p, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}})
	}
}

// label sets a label of a namespace.
func label(namespace, value string) act {
	return func(ctx context.Context, _ *stage, c client.Client) error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		return c.Patch(ctx, ns, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"mbcas.io/mode":"`+value+`"}}}`)))
	}
}

// store writes a ConfigMap, whether it is there or not.
func store(namespace, name string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"ca.crt": "x"}})
	}
}

func lease(namespace, name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// beat creates a Lease of mbcas-system.
func beat(name string) act { return beatIn(system, name) }

func beatIn(namespace, name string) act {
	return func(ctx context.Context, _ *stage, c client.Client) error {
		return c.Create(ctx, lease(namespace, name))
	}
}

// renew takes over a Lease of mbcas-system that is there.
func renew(name string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		l := lease(system, name)
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(l), l); err != nil {
			return err
		}
		me := "me"
		l.Spec.HolderIdentity = &me
		return c.Update(ctx, l)
	}
}

func lapse(name string) act {
	return func(ctx context.Context, _ *stage, c client.Client) error { return c.Delete(ctx, lease(system, name)) }
}

// event sends an event about a pod in somebody's name.
func event(pod, from string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		p := s.pods[pod]
		return c.Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, GenerateName: "e-"}, EventTime: metav1.NowMicro(), Type: "Normal",
			Reason: "Killing", Action: "Kill", Note: "so it says", ReportingController: from, ReportingInstance: from,
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		})
	}
}

// oldEvent is the same in the core group.
func oldEvent(namespace, from string) act {
	return func(ctx context.Context, _ *stage, c client.Client) error {
		return c.Create(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "e-"}, Type: "Normal", Reason: "Killing",
			ReportingController: from, ReportingInstance: from, Source: corev1.EventSource{Component: from},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "p"},
		})
	}
}

// impersonated asks who one is while pretending to be somebody; the answer does not matter.
func impersonated(account client.ObjectKey) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		return may("impersonate", "serviceaccounts", "", account.Namespace)(ctx, s, c)
	}
}

// token asks for a token of an account, bound to a pod or to none.
func token(account client.ObjectKey, pod string) act {
	return func(ctx context.Context, s *stage, c client.Client) error {
		who := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}
		request := &authenticationv1.TokenRequest{}
		if pod != "" {
			request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: s.pods[pod].Name, UID: s.pods[pod].UID}
		}
		return c.SubResource("token").Create(ctx, who, request)
	}
}

// run creates a pod under an account.
func run(namespace, account string) act {
	return func(ctx context.Context, _ *stage, c client.Client) error {
		p := apiserver.Pod(namespace, "intruder", apiserver.Container("sh", "10m", ""))
		p.Spec.ServiceAccountName = account
		return c.Create(ctx, p)
	}
}

func milliBytes(mebi int64) *resource.Quantity {
	return resource.NewQuantity(mebi<<20, resource.BinarySI)
}
