// Package memapi is an API server in memory, for tests that run thousands of histories. It answers
// the requests that MBCAS makes as the real one does (TestAnswersAsTheRealOne holds it to that):
// resourceVersions, UIDs, generations, subresources, managedFields of resizes, ResourceQuotas, and
// the texts of refusals. What it does not know it answers with 501. It is one goroutine's at a time.
package memapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// Kind is one kind of object.
type Kind struct {
	schema.GroupVersionKind
	Resource   string
	Namespaced bool
	// counted: changes of the spec are counted in metadata.generation.
	counted bool
	object  reflect.Type
}

// kinds are those that MBCAS reads and writes.
var kinds = []Kind{
	kind(&corev1.Pod{}, corev1.SchemeGroupVersion, "pods", true),
	kind(&corev1.Node{}, corev1.SchemeGroupVersion, "nodes", false),
	kind(&corev1.Namespace{}, corev1.SchemeGroupVersion, "namespaces", false),
	kind(&corev1.ConfigMap{}, corev1.SchemeGroupVersion, "configmaps", true),
	kind(&corev1.LimitRange{}, corev1.SchemeGroupVersion, "limitranges", true),
	kind(&corev1.ResourceQuota{}, corev1.SchemeGroupVersion, "resourcequotas", true),
	kind(&coordinationv1.Lease{}, coordinationv1.SchemeGroupVersion, "leases", true),
	kind(&policyv1.PodDisruptionBudget{}, policyv1.SchemeGroupVersion, "poddisruptionbudgets", true),
	kind(&autoscalingv2.HorizontalPodAutoscaler{}, autoscalingv2.SchemeGroupVersion, "horizontalpodautoscalers", true),
	kind(&appsv1.ReplicaSet{}, appsv1.SchemeGroupVersion, "replicasets", true),
	kind(&v1alpha1.PodAllocation{}, v1alpha1.GroupVersion, "podallocations", true),
	kind(&v1alpha1.NodeAllocation{}, v1alpha1.GroupVersion, "nodeallocations", false),
	kind(&v1alpha1.DemandSignal{}, v1alpha1.GroupVersion, "demandsignals", true),
}

func kind(o client.Object, gv schema.GroupVersion, resource string, namespaced bool) Kind {
	t := reflect.TypeOf(o).Elem()
	counted := resource == "pods" || resource == "replicasets" || resource == "poddisruptionbudgets" || gv == v1alpha1.GroupVersion
	return Kind{gv.WithKind(t.Name()), resource, namespaced, counted, t}
}

func (k Kind) new() client.Object { return reflect.New(k.object).Interface().(client.Object) }

func (k Kind) resource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// kindOf is the kind of an object.
func kindOf(o runtime.Object) (Kind, bool) {
	t := reflect.TypeOf(o).Elem()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.object == t })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// Scheme knows the kinds.
var Scheme = newScheme()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}

// Mapper maps the kinds to their resources.
func Mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, k := range kinds {
		scope := meta.RESTScopeRoot
		if k.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		m.AddSpecific(k.GroupVersionKind, k.GroupVersion().WithResource(k.Resource), k.GroupVersion().WithResource(k.Resource), scope)
	}
	return m
}

// Config is how clients reach the server, through transport, which leads to it in the end. The
// actor is the name under which the server notes their requests.
func Config(transport http.RoundTripper, actor string) *rest.Config {
	return &rest.Config{
		Host: "http://memapi", Transport: transport, UserAgent: actor, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}
}

type key struct {
	resource string
	types.NamespacedName
}

// Event is one stored change.
type Event struct {
	At            time.Time
	Actor         string
	Verb          string // create, update, patch, delete
	Resource, Sub string
	Key           types.NamespacedName
	Before, After client.Object // nil: none
	// UID and Version are the preconditions of the request; "" for none.
	UID     types.UID
	Version string
	// Revision is that of the store after the change.
	Revision int64
}

// Server is the server. The zero value is not ready: see New.
type Server struct {
	Now func() time.Time
	// Admit is asked about a resize that would be stored, last of all; nil: all are admitted. It may
	// change the pod, as mutating webhooks do.
	Admit func(before, after *corev1.Pod) *apierrors.StatusError
	// Stored is told of every change; nil: nothing is.
	Stored func(Event)

	objects map[key]client.Object // never changed once stored
	number  map[string]int        // of the objects of each resource
	log     []Event
	version int64
	uids    int
	writers map[types.UID]map[string]writer // of each pod, by container

	compacted int64 // the last version that Compact has forgotten
	watching  sync.Mutex
	watchers  map[*watcher]bool
}

// New is a server without objects.
func New(now func() time.Time) *Server {
	return &Server{Now: now, objects: map[key]client.Object{}, number: map[string]int{}, writers: map[types.UID]map[string]writer{}}
}

// Get is a stored object, which nothing may change; nil where there is none.
func Get[T client.Object](s *Server, namespace, name string) (o T) {
	k, _ := kindOf(o)
	stored, ok := s.objects[key{k.Resource, types.NamespacedName{Namespace: namespace, Name: name}}]
	if ok {
		o = stored.(T)
	}
	return o
}

// All are the stored objects of a kind, by namespace and name.
func All[T client.Object](s *Server) (list []T) {
	var o T
	k, _ := kindOf(o)
	if s.number[k.Resource] == 0 {
		return nil
	}
	for id, stored := range s.objects {
		if id.resource == k.Resource {
			list = append(list, stored.(T))
		}
	}
	slices.SortFunc(list, func(a, b T) int { return order(a, b) })
	return list
}

func order(a, b client.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// Count is the number of stored objects of a resource.
func (s *Server) Count(resource string) int { return s.number[resource] }

// Create stores an object in the name of an actor.
func (s *Server) Create(actor string, o client.Object) error {
	k, ok := kindOf(o)
	if !ok {
		return fmt.Errorf("no kind %T", o)
	}
	_, err := s.create(write{actor: actor, manager: actor, kind: k, verb: "create"}, o.DeepCopyObject().(client.Object))
	return asError(err)
}

// Change changes a stored object in the name of an actor, with all its parts. It says whether there is one.
func Change[T client.Object](s *Server, actor, namespace, name string, change func(T)) bool {
	var none T
	k, _ := kindOf(none)
	current, ok := s.objects[key{k.Resource, types.NamespacedName{Namespace: namespace, Name: name}}]
	if !ok {
		return false
	}
	next := current.DeepCopyObject().(T)
	change(next)
	w := write{actor: actor, manager: actor, kind: k, verb: "update"}
	s.store(w, current, next)
	return true
}

// Delete deletes an object in the name of an actor, if there is one.
func (s *Server) Delete(actor string, o client.Object) {
	k, _ := kindOf(o)
	w := write{actor: actor, kind: k, verb: "delete", name: client.ObjectKeyFromObject(o)}
	if current, ok := s.objects[w.key()]; ok {
		s.remove(w, current)
	}
}

// Length is the number of changes so far.
func (s *Server) Length() int { return len(s.log) }

// Log are the changes from one on.
func (s *Server) Log(from int) []Event { return s.log[from:] }

// write is one request that changes something.
type write struct {
	actor, manager string
	kind           Kind
	verb, sub      string
	name           types.NamespacedName
	uid            types.UID
	version        string
	dry            bool
}

func (w write) key() key { return key{w.kind.Resource, w.name} }

func (s *Server) next() string {
	s.version++
	return strconv.FormatInt(s.version, 10)
}

func (s *Server) create(w write, o client.Object) (client.Object, *apierrors.StatusError) {
	w.name = client.ObjectKeyFromObject(o)
	if _, ok := s.objects[w.key()]; ok {
		return nil, apierrors.NewAlreadyExists(w.kind.resource(), w.name.Name)
	}
	if ns := w.name.Namespace; ns != "" && s.objects[key{"namespaces", types.NamespacedName{Name: ns}}] == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), ns)
	}
	s.uids++
	o.SetUID(types.UID(fmt.Sprintf("%06d00-0000-4000-8000-000000000000", s.uids)))
	o.SetCreationTimestamp(metav1.NewTime(s.Now().Truncate(time.Second)))
	if w.kind.counted {
		o.SetGeneration(1)
	}
	if pa, ok := o.(*v1alpha1.PodAllocation); ok && w.sub == "" && w.actor != w.manager {
		pa.Status = v1alpha1.PodAllocationStatus{}
	}
	if pod, ok := o.(*corev1.Pod); ok {
		s.writers[pod.UID] = map[string]writer{}
		s.setManagers(pod, nil)
	}
	if w.dry {
		return o, nil
	}
	s.put(w, nil, o)
	return o, nil
}

// put stores an object.
func (s *Server) put(w write, before, o client.Object) {
	o.SetResourceVersion(s.next())
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if before == nil {
		s.number[w.kind.Resource]++
	}
	s.objects[w.key()] = o
	s.note(w, before, o)
}

func (s *Server) note(w write, before, after client.Object) {
	e := Event{
		At: s.Now(), Actor: w.actor, Verb: w.verb, Resource: w.kind.Resource, Sub: w.sub, Key: w.name,
		Before: before, After: after, UID: w.uid, Version: w.version, Revision: s.version,
	}
	s.log = append(s.log, e)
	s.tell(e)
	if s.Stored != nil {
		s.Stored(e)
	}
}

func (s *Server) remove(w write, current client.Object) {
	s.next()
	delete(s.objects, w.key())
	s.number[w.kind.Resource]--
	s.note(w, current, nil)
	if w.kind.Resource == "pods" {
		delete(s.writers, current.GetUID())
	}
}

// store stores a changed object, unless nothing has changed.
func (s *Server) store(w write, current, next client.Object) client.Object {
	w.name = client.ObjectKeyFromObject(current)
	next.SetManagedFields(current.GetManagedFields())
	next.SetGeneration(current.GetGeneration())
	next.SetResourceVersion(current.GetResourceVersion())
	next.SetCreationTimestamp(current.GetCreationTimestamp())
	next.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as it is stored
	if equality.Semantic.DeepEqual(current, next) {
		return current
	}
	if w.kind.counted && !equality.Semantic.DeepEqual(part(current, "Spec"), part(next, "Spec")) {
		next.SetGeneration(current.GetGeneration() + 1)
	}
	if pod, ok := next.(*corev1.Pod); ok {
		s.noteManagers(w, current.(*corev1.Pod), pod)
	}
	if w.dry {
		return next
	}
	s.put(w, current, next)
	return next
}

// part is a field of an object, or nil.
func part(o client.Object, name string) any {
	f := reflect.ValueOf(o).Elem().FieldByName(name)
	if !f.IsValid() {
		return nil
	}
	return f.Interface()
}

// setPart copies a field from another object, if there is one of that name.
func setPart(to, from client.Object, name string) {
	if f := reflect.ValueOf(to).Elem().FieldByName(name); f.IsValid() {
		f.Set(reflect.ValueOf(from.DeepCopyObject()).Elem().FieldByName(name))
	}
}

func asError(e *apierrors.StatusError) error {
	if e == nil {
		return nil
	}
	return e
}

// encode is an object as the server sends it.
func encode(k Kind, o client.Object) ([]byte, error) {
	o = o.DeepCopyObject().(client.Object)
	o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return json.Marshal(o)
}
