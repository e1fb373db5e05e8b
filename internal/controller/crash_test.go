package controller

import (
	"errors"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// lose is what vanishes together with the controller.
type lose string

const (
	nothing       lose = "nothing else"
	theAllocation lose = "the allocation"
	theLedger     lose = "the ledger"
)

// TestComesBackQuietly plays one story - a pod appears, is raised, is lowered and restored - and kills the controller
// before its first write and after each. However it goes, a new controller brings the story to the same
// end with the same number of resizes, and the declared limits stay what they were.
func TestComesBackQuietly(t *testing.T) {
	r := newRig(t)
	n, generation := r.story(t, 0, false, nothing)
	if n < 10 {
		t.Fatalf("the story takes %d writes: too few to tell anything", n)
	}
	for at := 1; at <= n; at++ {
		for i, run := range []struct {
			done bool
			lost lose
		}{{false, nothing}, {true, nothing}, {true, []lose{theAllocation, theLedger}[at%2]}} {
			if os.Getenv("MBCAS_LONG") == "" && i != at%3 {
				continue // one way at each write, all three with MBCAS_LONG=1
			}
			name := fmt.Sprintf("killed at write %d of %d, done %v, losing %s", at, n, run.done, run.lost)
			if _, got := r.story(t, at, run.done, run.lost); got != generation {
				t.Errorf("%s: the pod ends at generation %d, undisturbed at %d: a resize too many or too few", name, got, generation)
			}
		}
	}
}

// story returns how many writes it took and the generation at which the pod ended: every resize counts one up.
func (r *rig) story(t *testing.T, dieAt int, done bool, lost lose) (writes int, generation int64) {
	t.Helper()
	pod := r.pod(fmt.Sprintf("story-%d-%v-%d", dieAt, done, len(lost)), "100m", "500m")
	r.hear()
	l := r.live(dieAt, done)
	r.mode(r.namespace, kube.ModeEnforce)
	for _, chapter := range []struct {
		price string
		want  cpu.Milli
		mode  kube.Mode
		phase v1alpha1.Phase
	}{
		{"0.000", 2000, kube.ModeEnforce, v1alpha1.PhaseApplied},
		{"2.000", 1400, kube.ModeEnforce, v1alpha1.PhaseApplied},
		{"2.000", 500, kube.ModeRestore, v1alpha1.PhaseRestored},
	} {
		if chapter.mode == kube.ModeRestore {
			r.mode(r.namespace, chapter.mode)
		}
		r.until(fmt.Sprintf("limit %v after a death at write %d", chapter.want, dieAt), func() (bool, any) {
			if _, err := l.once(); errors.Is(err, errLost) || l.writes.dead {
				writes += l.writes.count()
				r.vanish(pod, lost)
				l = r.live(0, false)
				return false, err
			} else if err != nil {
				return false, err
			}
			pa := r.stored(pod)
			if pa == nil {
				return false, "no allocation"
			}
			if !kube.SameLimits(pa.Status.DeclaredLimits, []v1alpha1.ContainerLimit{app(500)}) {
				t.Fatalf("declared limits are %v, want app=500m; status %+v", pa.Status.DeclaredLimits, pa.Status)
			}
			if pa.Spec.DesiredCPULimit == nil || *pa.Spec.DesiredCPULimit != chapter.want && chapter.mode == kube.ModeEnforce {
				r.publish(pod, chapter.price, app(chapter.want))
				return false, "just published"
			}
			return r.limit(pod) == chapter.want && pa.Status.Phase == chapter.phase, pa.Status
		})
	}
	writes += l.writes.count()
	got := &corev1.Pod{}
	r.must(r.Client.Get(r.Context(), client.ObjectKeyFromObject(pod), got))
	r.must(r.Client.Delete(r.Context(), got, client.GracePeriodSeconds(0)))
	if pa := r.stored(pod); pa != nil { // no garbage collector here
		r.must(r.Client.Delete(r.Context(), pa))
	}
	return writes, got.Generation
}

func (r *rig) vanish(pod *corev1.Pod, what lose) {
	r.Helper()
	switch what {
	case theAllocation:
		if pa := r.stored(pod); pa != nil {
			r.must(r.Client.Delete(r.Context(), pa))
		}
	case theLedger:
		cm := &corev1.ConfigMap{}
		cm.Namespace, cm.Name = r.config.Namespace, restore.LedgerName(r.kubelet.Node)
		r.must(client.IgnoreNotFound(r.Client.Delete(r.Context(), cm)))
	}
}
