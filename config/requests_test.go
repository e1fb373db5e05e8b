package config_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

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

const manager = "mbcas-controller" // the name under which the controller writes

var (
	errNotAllowed = errors.New("not allowed")
	// errNoEffect is for what the API server accepts and does not do.
	errNoEffect = errors.New("it was accepted, and had no effect")
)

// call is one request on its way: as the client of one user.
type call struct {
	ctx context.Context
	*environment
	as client.Client
}

// send makes a request. object makes what it is about, anew each time.
type (
	send   func(call) error
	object func(*environment) client.Object
)

func create(o object) send {
	return func(r call) error { return r.as.Create(r.ctx, o(r.environment)) }
}

func remove(o object) send {
	return func(r call) error { return r.as.Delete(r.ctx, o(r.environment)) }
}

// change is a patch of an object or of a subresource of it.
type change struct {
	object
	subresource string
	kind        types.PatchType // default: a merge patch
	body        string
	opts        []client.SubResourcePatchOption
	unchanged   func(client.Object) bool // says of the answer that the patch had no effect
}

func (p change) send(r call) error {
	target, patch := p.object(r.environment), client.RawPatch(cmp.Or(p.kind, types.MergePatchType), []byte(p.body))
	var err error
	if p.subresource == "" {
		err = r.as.Patch(r.ctx, target, patch)
	} else {
		err = r.as.SubResource(p.subresource).Patch(r.ctx, target, patch, p.opts...)
	}
	if err == nil && p.unchanged != nil && p.unchanged(target) {
		return errNoEffect
	}
	return err
}

func patch(o object, body string) send { return change{object: o, body: body}.send }

func patchStatus(o object, fields string) send {
	return change{object: o, subresource: "status", body: `{"status":{` + fields + `}}`}.send
}

// resize patches a pod through pods/resize.
func resize(key string, kind types.PatchType, body string, opts ...client.SubResourcePatchOption) change {
	opts = append([]client.SubResourcePatchOption{client.FieldOwner(manager)}, opts...)
	return change{object: pod(key), subresource: "resize", kind: kind, body: body, opts: opts}
}

// resizeAs changes a part of a pod's spec through pods/resize, under a name.
func resizeAs(manager, key, spec string) send {
	return resize(key, types.StrategicMergePatchType, `{"spec":{`+spec+`}}`, client.FieldOwner(manager)).send
}

// limit resizes one container of a pod, as the controller does; null removes the limit.
func limit(key, container, value string) send {
	if value != "null" {
		value = `"` + value + `"`
	}
	return resources(key, container, `"limits":{"cpu":`+value+`}`)
}

// ownLimit resizes a pod's own limits, as the controller does.
func ownLimit(key, limits string) send {
	return resizeAs(manager, key, `"resources":{"limits":{`+limits+`}}`)
}

func resources(key, container, body string) send {
	return resizeAs(manager, key, containers(container, body))
}

// containers is the part of a pod's spec that gives one container those resources.
func containers(name, body string) string {
	list := "containers"
	if name == "setup" || name == "proxy" {
		list = "initContainers"
	}
	return fmt.Sprintf(`%q:[{"name":%q,"resources":{%s}}]`, list, name, body)
}

// apply is a server-side apply of a pod's limit.
func apply(key, limit string) send {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{%s}}`,
		split(key).Name, containers("app", fmt.Sprintf(`"limits":{"cpu":%q}`, limit)))
	return resize(key, types.ApplyPatchType, body, client.ForceOwnership).send
}

// resizeAll raises the limits of all 64 containers of a pod.
func resizeAll(r call) error {
	var parts []string
	for _, c := range r.pods["shop/wide"].Spec.Containers {
		parts = append(parts, fmt.Sprintf(`{"name":%q,"resources":{"limits":{"cpu":"30m"}}}`, c.Name))
	}
	return resizeAs(manager, "shop/wide", `"containers":[`+strings.Join(parts, ",")+`]`)(r)
}

// forgedFields say that the controller set the limit of the container app.
const forgedFields = `[{"manager":"mbcas-controller","operation":"Update","apiVersion":"v1",
	"time":"2026-01-01T00:00:00Z","subresource":"resize","fieldsType":"FieldsV1",
	"fieldsV1":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:cpu":{}}}}}}}}]`

// writeFields tries to replace the managedFields of a pod of which only its creator wrote anything.
func writeFields(entries string) send {
	c := resize("attic/web", types.MergePatchType, `{"metadata":{"managedFields":`+entries+`}}`)
	c.unchanged = func(o client.Object) bool {
		fields := o.GetManagedFields()
		return len(fields) == 1 && fields[0].Subresource == ""
	}
	return c.send
}

// writeFieldsAndLimit does so while it changes the limit.
func writeFieldsAndLimit(key, entries string) send {
	return resize(key, types.JSONPatchType, `[{"op":"replace","path":"/metadata/managedFields","value":`+entries+`},
		{"op":"replace","path":"/spec/containers/0/resources/limits/cpu","value":"300m"}]`).send
}

// evilImage is a change of the image in a pod's spec.
const evilImage = `{"spec":{"containers":[{"name":"app","image":"evil"}]}}`

func changeImage(key string) send {
	return change{object: pod(key), kind: types.StrategicMergePatchType, body: evilImage}.send
}

// resizeImage tries the same through pods/resize, together with a change of the limit, which takes effect.
func resizeImage(key string) send {
	body := `{"spec":{"containers":[{"name":"app","image":"evil","resources":{"limits":{"cpu":"300m"}}}]}}`
	c := resize(key, types.StrategicMergePatchType, body, client.DryRunAll)
	c.unchanged = func(o client.Object) bool {
		app := o.(*corev1.Pod).Spec.Containers[0]
		return app.Image != "evil" && app.Resources.Limits.Cpu().MilliValue() == 300
	}
	return c.send
}

// connect opens a connection to a pod. Nothing is at its other end, so what admission lets through has succeeded.
func connect(key, subresource string) send {
	return func(r call) error {
		p := pod(key)(r.environment)
		err := r.as.SubResource(subresource).Create(r.ctx, p, p) // nothing reads the body
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return err
		}
		return nil
	}
}

func evict(key string) send {
	return func(r call) error {
		p := pod(key)(r.environment)
		return r.as.SubResource("eviction").Create(r.ctx, p, &policyv1.Eviction{ObjectMeta: meta(split(key))})
	}
}

// token asks for a token of an account, bound to a pod or to none.
func token(account client.ObjectKey, key string) send {
	return func(r call) error {
		_, err := apiserver.Token(r.ctx, r.as, account, r.pods[key])
		return err
	}
}

// label sets the mode of a namespace.
func label(namespace, mode string) send {
	return patch(func(*environment) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	}, `{"metadata":{"labels":{"mbcas.io/mode":"`+mode+`"}}}`)
}

// renew takes over a Lease of mbcas-system that is there.
func renew(name string) send { return renewWith(name, func(*coordinationv1.Lease) {}) }

// renewWith does so, and changes more of the Lease.
func renewWith(name string, change func(*coordinationv1.Lease)) send {
	return func(r call) error {
		l := &coordinationv1.Lease{}
		if err := r.Client.Get(r.ctx, client.ObjectKey{Namespace: system, Name: name}, l); err != nil {
			return err
		}
		holder := "me"
		l.Spec.HolderIdentity = &holder
		change(l)
		return r.as.Update(r.ctx, l)
	}
}

// may asks whether something is allowed that would need more than an API server. The resource may have a
// subresource after a slash, or a group after a dot.
func may(verb, resource, namespace string) send {
	return func(r call) error {
		name, subresource, _ := strings.Cut(resource, "/")
		name, group, _ := strings.Cut(name, ".")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: group, Resource: name, Subresource: subresource, Namespace: namespace,
			},
		}}
		if err := r.as.Create(r.ctx, review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("%w: %s %s in %q", errNotAllowed, verb, resource, namespace)
		}
		return nil
	}
}

func split(key string) client.ObjectKey {
	namespace, name, _ := strings.Cut(key, "/")
	return client.ObjectKey{Namespace: namespace, Name: name}
}

func meta(key client.ObjectKey) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
}

// pod is one of the environment's pods, by namespace and name alone.
func pod(key string) object {
	return func(*environment) client.Object { return &corev1.Pod{ObjectMeta: meta(split(key))} }
}

// newPod runs under an account.
func newPod(namespace, account string) object {
	return func(*environment) client.Object {
		p := apiserver.Pod(namespace, "intruder", apiserver.Container("sh", "10m", ""))
		p.Spec.ServiceAccountName = account
		return p
	}
}

// allocation is the PodAllocation of a pod, by name alone.
func allocation(key string) object {
	return func(e *environment) client.Object {
		return &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{
			Namespace: e.pods[key].Namespace, Name: string(e.pods[key].UID),
		}}
	}
}

// newAllocation is the PodAllocation of a pod as the controller makes it, changed by the edit.
func newAllocation(key string, edit func(*v1alpha1.PodAllocation)) object {
	return func(e *environment) client.Object {
		p, pa := e.pods[key], allocation(key)(e).(*v1alpha1.PodAllocation)
		pa.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}}
		pa.Spec = v1alpha1.PodAllocationSpec{NodeName: p.Spec.NodeName, PodRef: v1alpha1.PodRef{Name: p.Name, UID: p.UID}}
		if edit != nil {
			edit(pa)
		}
		return pa
	}
}

// nodeAllocation is that of a node as the controller makes it, changed by the edit.
func nodeAllocation(node string, edit func(*metav1.OwnerReference)) object {
	return func(*environment) client.Object {
		n := &v1alpha1.NodeAllocation{ObjectMeta: metav1.ObjectMeta{Name: node}}
		n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: "u"}}
		if edit != nil {
			edit(&n.OwnerReferences[0])
		}
		return n
	}
}

// constrain lowers the ceiling of a pod in a NodeAllocation.
const constrain = `{"spec":{"pods":[{"uid":"u","allocationUID":"a","declaredLimits":[{"name":"app","cpuLimit":"500m"}],
	"constraints":{"ceiling":"500m"}}]}}`

// decide writes a valid decision for a pod.
func decide(key string) send {
	return patch(allocation(key), `{"spec":{"desiredCPULimit":"500m","containers":[{"name":"app","cpuLimit":"500m"}],
		"decision":{"demand":"300m","usage":"300m","throttledPercent":0,"budget":100,"price":"0.000","floor":"110m",
		"ceiling":"2000m","boundBy":"Nothing","observedAt":"2026-01-01T00:00:00.000000Z"}}}`)
}

// patchBeside writes something beside what the user may write of a PodAllocation.
func patchBeside(key, body string) send {
	return change{object: allocation(key), body: body, unchanged: func(o client.Object) bool {
		return o.(*v1alpha1.PodAllocation).Status.Phase == ""
	}}.send
}

// demandSignal is one for the pods of the Deployment web in the namespace shop.
func demandSignal(name string) object {
	return func(*environment) client.Object {
		target := resource.MustParse("200m")
		d := &v1alpha1.DemandSignal{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		d.Spec.TargetRef = v1alpha1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
		d.Spec.Metric = v1alpha1.SignalMetric{Type: v1alpha1.ExternalMetric, External: &v1alpha1.MetricTarget{
			Metric: v1alpha1.MetricID{Name: "p99"}, Target: v1alpha1.SignalObjective{Type: "Value", Value: &target},
		}}
		return d
	}
}

func configMap(namespace, name string) object {
	return func(*environment) client.Object {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"ca.crt": "x"},
		}
	}
}

func lease(namespace, name string) object {
	return func(*environment) client.Object {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
}

// says is the agent's Lease of node-1 with more in its metadata.
func says(annotations, labels map[string]string) object {
	return func(*environment) client.Object {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: system, Name: "mbcas-agent-node-1", Annotations: annotations, Labels: labels,
		}}
	}
}

// event is one about a pod, as that reporter sends it.
func event(key, reporter string) object {
	return func(e *environment) client.Object {
		p := e.pods[key]
		return &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, GenerateName: "e-"}, EventTime: metav1.NowMicro(),
			Type: "Normal", Reason: "Killing", Action: "Kill", ReportingController: reporter, ReportingInstance: reporter,
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		}
	}
}

// coreEvent is the same in the core group.
func coreEvent(namespace, reporter string) object {
	return func(*environment) client.Object {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "e-"}, Type: "Normal", Reason: "Killing",
			ReportingController: reporter, ReportingInstance: reporter, Source: corev1.EventSource{Component: reporter},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "p"},
		}
	}
}
