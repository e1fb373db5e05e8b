package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

func isProgram(o client.Object) bool {
	switch o.(type) {
	case *appsv1.Deployment, *appsv1.DaemonSet:
		return true
	}
	return false
}

// TestRemoved: once controller and agents are gone, what PodAllocations that are left say of pods is not told as their
// state. If their absence is not known, they are told.
func TestRemoved(t *testing.T) {
	c := newCluster(t, slices.DeleteFunc(shop(), isProgram)...)
	out, _, err := c.run(t, "list", "-n", "shop")
	for _, want := range []string{
		"0 of 8 pods in namespace shop managed.", "5   NotInstalled", "Note: MBCAS is not installed: namespace mbcas-system has no controller",
		"kubectl mbcas uninstall --keep-crds=false",
	} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("list says, without %q (%v):\n%s", want, err, out)
		}
	}
	if strings.Contains(out, "QuotaExceeded") || strings.Contains(out, "it has no agent") {
		t.Errorf("list says:\n%s", out)
	}
	out, _, _ = c.run(t, "doctor")
	for _, want := range []string{"mode enforce, 5 pods that MBCAS would manage, were it installed", "0 of "} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor says, without %q:\n%s", want, out)
		}
	}
	c = newCluster(t, slices.DeleteFunc(shop(), isProgram)...)
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if isProgram(o) {
				return errors.New("forbidden")
			}
			return w.Get(ctx, k, o, opts...)
		},
	})
	if out, _, err := c.run(t, "list", "-n", "shop"); err != nil || !strings.Contains(out, "5 of 8 pods in namespace shop managed.") {
		t.Errorf("without the right to read them list says (%v):\n%s", err, out)
	}
}

// TestRemovedElsewhere: a namespace without controller and agents that MBCAS is not in says nothing about its pods, and least of
// all to remove it.
func TestRemovedElsewhere(t *testing.T) {
	c := newCluster(t, shop()...)
	c.System = "elsewhere"
	out, _, err := c.run(t, "list", "-n", "shop")
	if err != nil || !strings.Contains(out, "Note: MBCAS is not in namespace elsewhere") || !strings.Contains(out, "leave out --system-namespace") {
		t.Errorf("list says (%v):\n%s", err, out)
	}
	if strings.Contains(out, "uninstall") || strings.Contains(out, "NotInstalled") {
		t.Errorf("list says of another namespace:\n%s", out)
	}
}

// TestRemovedWithCRDs: once the CRDs are gone, too, no running controller is told to create PodAllocations.
func TestRemovedWithCRDs(t *testing.T) {
	c := newCluster(t, slices.DeleteFunc(shop(), isProgram)...)
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if _, ok := l.(*v1alpha1.PodAllocationList); ok {
				return &meta.NoKindMatchError{GroupKind: v1alpha1.GroupVersion.WithKind("PodAllocation").GroupKind()}
			}
			return w.List(ctx, l, opts...)
		},
	})
	out, _, err := c.run(t, "list", "-n", "shop")
	if err != nil || !strings.Contains(out, "5   NotInstalled") || strings.Contains(out, "NoAllocation") {
		t.Errorf("list says (%v):\n%s", err, out)
	}
}
