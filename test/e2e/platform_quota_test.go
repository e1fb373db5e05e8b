package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/must"
)

const (
	// hard is the quota of the namespace, of which a tenth is to stay free; its pods declare less than half.
	hard     = cpu.Milli(800)
	sellable = hard * 9 / 10
	quotaPod = cpu.Milli(80)
)

func (p *platform) openQuota(t *testing.T) {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: quotas, Name: "compute"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse(hard.String())}
	p.create(t, q)
	p.wait(t, 30*time.Second, "the quota is counted", func() (bool, string) {
		_, err := p.used(t)
		return err == nil, orError(err, "")
	})
	for _, name := range []string{"a", "b", "c", "d"} {
		p.deploy(t, quotas, name, resources{"20m", quotaPod.String(), "32Mi"})
	}
}

// used is what the quota controller counts.
func (p *platform) used(t *testing.T) (cpu.Milli, error) {
	var q corev1.ResourceQuota
	if err := p.Get(t.Context(), client.ObjectKey{Namespace: quotas, Name: "compute"}, &q); err != nil {
		return 0, err
	}
	used, ok := q.Status.Used[corev1.ResourceLimitsCPU]
	if !ok {
		return 0, fmt.Errorf("quota %s is not counted yet: %+v", q.Name, q.Status)
	}
	return cpu.Milli(used.MilliValue()), nil
}

// quotaIsShared: pods that need it are raised into what a quota leaves less a tenth, and into nothing
// that others still have; a new pod finds that tenth, and then it is made free again. That the quota
// refused nothing is seen by the watch over the whole suite.
func (p *platform) quotaIsShared(t *testing.T) {
	pods := p.pods(t, quotas)
	state := func() (cpu.Milli, string) {
		u, err := p.used(t)
		must.Succeed(t, err)
		return u, fmt.Sprintf("%v of %v are used;%s", u, hard, p.allocations(t, quotas))
	}
	for _, pod := range pods {
		p.waitConstraints(t, time.Minute, pod, "has the constraint of the quota", func(c *v1alpha1.Constraints) bool {
			return c.IncreaseOnNeed && c.CeilingBy == "ResourceQuota/compute"
		})
	}
	// Twice, as pods that have it must be lowered before others can be raised.
	for _, busy := range [][2]string{{"a", "b"}, {"c", "d"}} {
		for name, pod := range pods {
			threads := 0
			if slices.Contains(busy[:], name) {
				threads = 1
			}
			p.spin(t, pod, threads)
		}
		what := fmt.Sprintf("%v have what the quota leaves, one about as much as the other", busy)
		p.wait(t, 3*time.Minute, what, func() (bool, string) {
			u, text := state()
			if u > sellable {
				t.Fatalf("want a tenth free: %s", text)
			}
			x, y := limit(p.pod(t, pods[busy[0]])), limit(p.pod(t, pods[busy[1]]))
			return u > sellable-5*cpu.Quantum && min(x, y) > 2*quotaPod && 2*max(x, y) < 3*min(x, y), text
		})
	}

	p.bare(t, quotas, "new", resources{"20m", (hard - sellable).String(), "32Mi"}, nil)
	p.pods(t, quotas)
	p.wait(t, 2*time.Minute, "a tenth is free again", func() (bool, string) {
		u, text := state()
		return u <= sellable, text
	})
	for _, pod := range pods {
		p.spin(t, pod, 0)
		if got := limit(p.pod(t, pod)); got < quotaPod {
			t.Errorf("%s has %v, less than what was declared", pod.Name, got)
		}
	}
}
