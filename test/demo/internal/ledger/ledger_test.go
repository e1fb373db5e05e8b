package ledger

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/test/demo/internal/shop"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// pod is a running pod of the Deployment.
func pod(t *testing.T, app string) *corev1.Pod {
	t.Helper()
	w, ok := shop.Find(app)
	if !ok {
		t.Fatalf("no workload %s", app)
	}
	template := w.Deployment("n", true).Spec.Template
	p := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	p.Namespace, p.Name, p.UID, p.Generation = w.Namespace, app+"-x", types.UID(app), 1
	p.Spec.NodeName = "n"
	return p
}

func setLimit(p *corev1.Pod, limit string) {
	p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse(limit)
	p.Generation++
}

func TestLimitChangesAreWrittenDown(t *testing.T) {
	l := New()
	p := pod(t, "checkout")
	l.See(now, p.DeepCopy())
	l.See(now.Add(time.Second), p.DeepCopy()) // nothing new
	setLimit(p, "1600m")
	l.See(now.Add(2*time.Second), p.DeepCopy())
	want := []Change{{now.Add(2 * time.Second), "checkout", "checkout", 500, 1600}}
	if diff := cmp.Diff(want, l.Changes(now, now.Add(time.Hour))); diff != "" {
		t.Error(diff)
	}
	if faults := l.Faults(); len(faults) != 0 {
		t.Errorf("a changed limit is no fault: %q", faults)
	}
	if got, err := l.Pod("checkout"); err != nil || got.Limit != 1600 || got.Request != 100 {
		t.Errorf("pod is %+v, %v", got, err)
	}
	l.Gone("checkout")
	if len(l.Pods()) != 0 || len(l.Changes(now, now.Add(time.Hour))) != 1 {
		t.Error("a deleted pod stays, or its changes do not")
	}
}

func TestOtherChangesAreFaults(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"cpu request": func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("200m")
		},
		"memory limit": func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("1Gi")
		},
		"image": func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other" },
		"restart": func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}}
		},
	} {
		l := New()
		p := pod(t, "checkout")
		l.See(now, p.DeepCopy())
		change(p)
		l.See(now, p)
		if len(l.Faults()) != 1 {
			t.Errorf("%s: faults are %q, want one", name, l.Faults())
		}
	}
}

func TestWitnessesMustNotChange(t *testing.T) {
	for _, w := range shop.Workloads() {
		if w.Managed() || w.Limit == 0 {
			continue
		}
		l := New()
		p := pod(t, w.Name)
		l.See(now, p.DeepCopy())
		setLimit(p, "40m")
		l.See(now, p)
		if faults := l.Faults(); len(faults) != 1 || !strings.Contains(faults[0], w.Witness) {
			t.Errorf("%s: faults are %q, want one", w.Name, faults)
		}
	}
}

// Before it is bound to a node, a pod is still being written.
func TestUnboundPodsMayChange(t *testing.T) {
	l := New()
	p := pod(t, "guaranteed")
	p.Spec.NodeName = ""
	l.See(now, p.DeepCopy())
	p.Spec.NodeName = "n"
	p.Generation++
	l.See(now, p)
	if faults := l.Faults(); len(faults) != 0 {
		t.Errorf("faults %q", faults)
	}
}

func TestFailuresAreCountedOnce(t *testing.T) {
	l := New()
	pa := &v1alpha1.PodAllocation{}
	pa.Spec.PodRef.UID = "u"
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseApplied, v1alpha1.PhaseFailed, v1alpha1.PhaseFailed, v1alpha1.PhaseApplied, v1alpha1.PhaseFailed} {
		pa.Status.Phase = phase
		l.Decide(pa)
	}
	if l.Failures() != 2 {
		t.Errorf("%d failures, want 2", l.Failures())
	}
}
