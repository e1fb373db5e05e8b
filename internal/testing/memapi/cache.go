package memapi

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// Cache is what the informers of a process show: for each kind the objects up to some change, which
// may be long ago.
type Cache struct {
	server *Server
	trim   func(any) (any, error)
	seen   map[string]int // of each resource: how many changes of the log
	items  map[string]map[types.NamespacedName]client.Object
	// by are the same by namespace and by node.
	by map[index]map[types.NamespacedName]client.Object
}

// index is a namespace or a node of the objects of a resource.
type index struct{ resource, namespace, node string }

func indexesOf(resource string, o client.Object) (list []index) {
	if ns := o.GetNamespace(); ns != "" {
		list = append(list, index{resource: resource, namespace: ns})
	}
	if resource == "pods" || resource == "podallocations" {
		list = append(list, index{resource: resource, node: nodeNameOf(o)})
	}
	return list
}

// set replaces an object; nil removes it.
func (c *Cache) set(resource string, name types.NamespacedName, o client.Object) {
	if before := c.items[resource][name]; before != nil {
		for _, i := range indexesOf(resource, before) {
			if delete(c.by[i], name); len(c.by[i]) == 0 {
				delete(c.by, i)
			}
		}
	}
	if o == nil {
		delete(c.items[resource], name)
		return
	}
	c.items[resource][name] = o
	for _, i := range indexesOf(resource, o) {
		if c.by[i] == nil {
			c.by[i] = map[types.NamespacedName]client.Object{}
		}
		c.by[i][name] = o
	}
}

// NewCache lists all objects as they were after so many changes.
func (s *Server) NewCache(at int, trim func(any) (any, error)) *Cache {
	c := &Cache{
		server: s, trim: trim, seen: map[string]int{}, items: map[string]map[types.NamespacedName]client.Object{},
		by: map[index]map[types.NamespacedName]client.Object{},
	}
	for _, k := range kinds {
		c.items[k.Resource] = map[types.NamespacedName]client.Object{}
		c.Show(k.Resource, at)
	}
	return c
}

// Detach leaves the server: nothing new is shown any more.
func (c *Cache) Detach() { c.server = nil }

// Resources are the names of all kinds.
func Resources() (names []string) {
	for _, k := range kinds {
		names = append(names, k.Resource)
	}
	return names
}

// Show takes in the changes of one kind up to the given number of changes of all kinds, and returns
// the changed objects as informers hand them on: the last version of one that was deleted.
func (c *Cache) Show(resource string, upTo int) (changed []client.Object) {
	for _, e := range c.server.log[min(c.seen[resource], upTo):upTo] {
		if e.Resource != resource {
			continue
		}
		if e.After == nil {
			if o := c.items[resource][e.Key]; o != nil {
				changed = append(changed, o)
			}
			c.set(resource, e.Key, nil)
			continue
		}
		o := e.After.DeepCopyObject().(client.Object)
		if _, err := c.trim(o); err != nil {
			panic(err) // it only drops fields
		}
		c.set(resource, e.Key, o)
		changed = append(changed, o)
	}
	c.seen[resource] = max(c.seen[resource], upTo)
	return changed
}

// Items are the objects of a kind that the cache shows, by namespace and name.
func (c *Cache) Items(resource string) []client.Object {
	return slices.SortedFunc(maps.Values(c.items[resource]), order)
}

// Seen is how many changes of all kinds the cache has taken in of one kind.
func (c *Cache) Seen(resource string) int { return c.seen[resource] }

// Get reads one object.
func (c *Cache) Get(_ context.Context, name client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	if m, ok := to.(*metav1.PartialObjectMetadata); ok {
		ns := c.items["namespaces"][name]
		if m.Kind != "Namespace" || ns == nil {
			return apierrors.NewNotFound(corev1.Resource("namespaces"), name.Name)
		}
		m.ObjectMeta = ns.(*corev1.Namespace).ObjectMeta
		return nil
	}
	k, ok := kindOf(to)
	if !ok {
		return fmt.Errorf("no cache of %T", to)
	}
	o := c.items[k.Resource][name]
	if o == nil {
		return apierrors.NewNotFound(k.resource(), name.Name)
	}
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
	return nil
}

// List reads objects, by namespace, label and node. They are shared.
func (c *Cache) List(_ context.Context, to client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	items, err := meta.GetItemsPtr(to)
	if err != nil {
		return err
	}
	slice := reflect.ValueOf(items).Elem()
	element := slice.Type().Elem()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.object == element })
	if i < 0 {
		return fmt.Errorf("no cache of %T", to)
	}
	var found []client.Object
	for _, item := range c.among(kinds[i].Resource, o) {
		if matches(item, o) {
			found = append(found, item)
		}
	}
	slices.SortFunc(found, order)
	out := reflect.MakeSlice(slice.Type(), 0, len(found))
	for _, item := range found {
		out = reflect.Append(out, reflect.ValueOf(item).Elem())
	}
	slice.Set(out)
	return nil
}

// among are the objects that an index finds for a list.
func (c *Cache) among(resource string, want *client.ListOptions) map[types.NamespacedName]client.Object {
	if want.FieldSelector != nil {
		if node, ok := want.FieldSelector.RequiresExactMatch("spec.nodeName"); ok {
			return c.by[index{resource: resource, node: node}]
		}
	}
	if want.Namespace != "" {
		return c.by[index{resource: resource, namespace: want.Namespace}]
	}
	return c.items[resource]
}

func matches(o client.Object, want *client.ListOptions) bool {
	if want.Namespace != "" && o.GetNamespace() != want.Namespace {
		return false
	}
	if want.LabelSelector != nil && !want.LabelSelector.Matches(labelsOf(o)) {
		return false
	}
	if want.FieldSelector == nil {
		return true
	}
	for _, r := range want.FieldSelector.Requirements() {
		if r.Field != "spec.nodeName" || nodeNameOf(o) != r.Value {
			return false
		}
	}
	return true
}

// nodeNameOf is the node of a pod or of a PodAllocation; "" for other objects.
func nodeNameOf(o client.Object) string {
	switch o := o.(type) {
	case *corev1.Pod:
		return o.Spec.NodeName
	case *v1alpha1.PodAllocation:
		return o.Spec.NodeName
	}
	return ""
}

type labelsOfObject struct{ client.Object }

func labelsOf(o client.Object) labelsOfObject { return labelsOfObject{o} }

func (l labelsOfObject) Has(label string) bool { _, ok := l.GetLabels()[label]; return ok }

func (l labelsOfObject) Get(label string) string { return l.GetLabels()[label] }

func (l labelsOfObject) Lookup(label string) (string, bool) {
	v, ok := l.GetLabels()[label]
	return v, ok
}

var _ client.Reader = (*Cache)(nil)
