package memapi_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/memapi"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestListsAndDiscoversAsTheRealOne sends requests about sets of objects, about deletions that
// wait, and about what is served to both servers, and compares the answers.
func TestListsAndDiscoversAsTheRealOne(t *testing.T) {
	server := apiserver.Start(t)
	config := memapi.Config(memapi.New(time.Now), "test")
	c, err := client.NewWithWatch(config, client.Options{Scheme: memapi.Scheme, Mapper: memapi.Mapper()})
	must.Succeed(t, err)
	want, got := sets(t, server.Config, server.Client), sets(t, config, c)
	for i := range max(len(want), len(got)) {
		if want[i] != got[i] {
			t.Errorf("the real server: %s\nin memory:       %s", want[i], got[i])
		}
	}
}

// sets is the conversation.
func sets(t *testing.T, config *rest.Config, c client.WithWatch) (said []string) {
	t.Helper()
	ctx := t.Context()
	say := func(what string, answer ...any) { said = append(said, what+": "+fmt.Sprintln(answer...)) }
	var namespaces []string
	for range 2 {
		ns := &corev1.Namespace{}
		ns.GenerateName = "sets-"
		must.Succeed(t, c.Create(ctx, ns))
		say("a name that is made", strings.HasPrefix(ns.Name, "sets-") && ns.Name != "sets-", slices.Contains(namespaces, ns.Name))
		namespaces = append(namespaces, ns.Name)
	}
	create := func(namespace, name, label string, finalizers ...string) *corev1.ConfigMap {
		cm := &corev1.ConfigMap{}
		cm.Namespace, cm.Name, cm.Finalizers, cm.Labels = namespace, name, finalizers, map[string]string{"app": label}
		must.Succeed(t, c.Create(ctx, cm))
		return cm
	}
	list := func(what string, opts ...client.ListOption) {
		var all corev1.ConfigMapList
		must.Succeed(t, c.List(ctx, &all, opts...))
		var names []string
		for _, cm := range all.Items {
			if cm.Name != "kube-root-ca.crt" && slices.Contains(namespaces, cm.Namespace) {
				names = append(names, cm.Name)
			}
		}
		slices.Sort(names)
		say(what, names)
	}
	create(namespaces[0], "a", "x")
	create(namespaces[0], "b", "y")
	create(namespaces[1], "c", "x")
	list("all")
	list("of a namespace", client.InNamespace(namespaces[0]))
	list("with a label", client.MatchingLabels{"app": "x"}, client.InNamespace(namespaces[0]))
	list("by name", client.MatchingFields{"metadata.name": "b"}, client.InNamespace(namespaces[0]))
	create(namespaces[0], "held", "x", "example.com/wait")
	x := client.MatchingLabels{"app": "x"}
	must.Succeed(t, c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespaces[0]), x))
	list("after a deletion of some, of which one waits")
	err := c.List(ctx, &corev1.ConfigMapList{}, &client.ListOptions{Raw: &metav1.ListOptions{LabelSelector: "a b"}})
	say("a selector that is none", apierrors.IsBadRequest(err))

	watched(t, c, namespaces[0], say, create)

	waits := create(namespaces[1], "waits", "x", "example.com/wait")
	must.Succeed(t, c.Delete(ctx, waits))
	err = c.Get(ctx, client.ObjectKeyFromObject(waits), waits)
	say("a deletion that waits", err, !waits.DeletionTimestamp.IsZero())
	waits.Finalizers = nil
	must.Succeed(t, c.Update(ctx, waits))
	say("after it", apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(waits), waits)))

	d, err := discovery.NewDiscoveryClientForConfig(config)
	must.Succeed(t, err)
	for _, version := range []string{"v1", "allocation.mbcas.io/v1alpha1", "none.example.com/v1"} {
		served, err := d.ServerResourcesForGroupVersionWithContext(ctx, version)
		var names []string
		if served != nil {
			for _, r := range served.APIResources {
				if strings.HasPrefix(r.Name, "pods/resize") || strings.HasSuffix(r.Name, "allocations") {
					names = append(names, r.Name)
				}
			}
		}
		slices.Sort(names)
		say("what is served of "+version, names, apierrors.IsNotFound(err))
	}
	version, err := d.ServerVersionWithContext(ctx)
	must.Succeed(t, err)
	say("version", version.Major, version.Minor)
	review := &authorizationv1.SelfSubjectAccessReview{}
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "pods", Subresource: "resize"}
	must.Succeed(t, c.Create(ctx, review))
	say("an administrator may", review.Status.Allowed)
	return said
}

// watched is a watch of a namespace that names no version: it begins with what there is.
func watched(t *testing.T, c client.WithWatch, namespace string, say func(string, ...any),
	create func(namespace, name, label string, finalizers ...string) *corev1.ConfigMap,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := c.Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace(namespace), client.MatchingLabels{"app": "y"})
	must.Succeed(t, err)
	defer w.Stop()
	next := func() string {
		e := <-w.ResultChan()
		cm, ok := e.Object.(*corev1.ConfigMap)
		if !ok {
			return fmt.Sprint(e)
		}
		return string(e.Type) + " " + cm.Name
	}
	say("first", next())
	create(namespace, "other", "x")
	later := create(namespace, "later", "y")
	say("then", next())
	must.Succeed(t, c.Delete(t.Context(), later))
	say("and", next(), watch.Deleted)
}
