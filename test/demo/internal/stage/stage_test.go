package stage

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mbcas/mbcas/test/demo/internal/ledger"
	"github.com/mbcas/mbcas/test/demo/internal/shop"
)

func newStage(t *testing.T) Stage {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, schedulingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return Stage{Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Ledger: ledger.New(), Node: "n"}
}

func modes(t *testing.T, s Stage) (modes []string) {
	t.Helper()
	var list corev1.NamespaceList
	if err := s.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for _, ns := range list.Items {
		modes = append(modes, ns.Labels["mbcas.io/mode"])
	}
	return modes
}

// What an earlier show left behind is taken over, and nothing is left by this one.
func TestOpenAndClose(t *testing.T) {
	s := newStage(t)
	for range 2 {
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.SetMode(t.Context(), "enforce"); err != nil {
			t.Fatal(err)
		}
		for _, m := range modes(t, s) {
			if m != "enforce" {
				t.Errorf("mode is %q, want enforce", m)
			}
		}
	}
	if err := s.Client.Create(t.Context(), shop.Workloads()[0].Deployment("n", true)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, list := range []client.ObjectList{&corev1.NamespaceList{}, &appsv1.DeploymentList{}, &schedulingv1.PriorityClassList{}} {
		if err := s.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if n := count(list); n != 0 {
			t.Errorf("%T: %d are left", list, n)
		}
	}
}

func count(list client.ObjectList) int {
	switch l := list.(type) {
	case *corev1.NamespaceList:
		return len(l.Items)
	case *appsv1.DeploymentList:
		return len(l.Items)
	case *schedulingv1.PriorityClassList:
		return len(l.Items)
	}
	return -1
}

func TestAstray(t *testing.T) {
	s := newStage(t)
	see := func(app string, limits bool) {
		w, _ := shop.Find(app)
		template := w.Deployment("n", limits).Spec.Template
		s.Ledger.See(time.Time{}, &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec})
	}
	see("checkout", true)
	if astray := s.Astray(); len(astray) != 0 {
		t.Errorf("a pod as declared is astray: %q", astray)
	}
	w, _ := shop.Find("search")
	template := w.Deployment("n", false).Spec.Template
	template.UID = types.UID("other")
	s.Ledger.See(time.Time{}, &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec})
	if astray := s.Astray(); len(astray) != 1 {
		t.Errorf("a pod without its limit is not astray: %q", astray)
	}
}
