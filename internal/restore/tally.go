package restore

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
)

// tally counts what became of pods, of one pass or of all.
type tally struct {
	out    io.Writer
	now    func() time.Time
	before *tally // of the passes before

	mu       sync.Mutex
	looked   int // pods with a record
	already  int // at their declared limits when first looked at
	external int // left as another writer set them
	// waiting are pods that a container keeps from their declared limits. Nothing waits for them.
	waiting []string
	// raised are the restarts of the containers of pods when a limit was raised, in all passes.
	raised map[types.UID]map[string]int32
	done   int // restored by this run
	// undone counts by cause, and named are the first of them.
	undone map[string]int
	named  []string
	lost   int   // of undone: without a record, so that another pass is of no use
	cut    error // why not all pods were looked at
	vain   int   // passes in a row that looked at all pods and changed nothing
	sick   map[string]int
	told   time.Time
}

func newTally(out io.Writer, now func() time.Time) *tally {
	return &tally{out: out, now: now, told: now(), undone: map[string]int{}, sick: map[string]int{}, raised: map[types.UID]map[string]int32{}}
}

// look counts a pod as a page shows it, and says whether it is to be restored.
func (t *tally) look(pod *corev1.Pod, declared []v1alpha1.ContainerLimit, known bool) bool {
	ours := len(kube.WrittenByMBCAS(pod)) > 0
	if kube.Ended(pod) || !known && !ours {
		return false
	}
	if !known {
		t.leave(pod, string(reasons.DeclaredLimitUnknown), "no record of its declared limits; recreate it")
		t.count(&t.lost)
		return false
	}
	t.count(&t.looked)
	switch back := ToDeclared(pod, declared); {
	case len(back.Move.Changes) > 0:
		return true
	case len(back.NotRunning) > 0:
		t.awaits(pod, back.NotRunning)
		return false
	case len(back.External) > 0:
		t.count(&t.external)
		return false
	}
	if failed := failedStarts(pod); len(failed) > 0 {
		t.awaits(pod, failed)
		return false
	}
	limits := RestoreLimits(pod, declared)
	if progress, said := podresize.Check(pod, limits, pod.Generation); ours && progress != actuator.Done {
		t.leave(pod, "not yet in force", fmt.Sprintf("%v: %s", progress, said))
		return false
	}
	if ended := t.before.endedSince(pod); len(ended) > 0 {
		t.awaits(pod, ended)
		return false
	}
	t.count(&t.already)
	return false
}

func (t *tally) count(n *int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*n++
}

// restored counts a pod whose declared limits the API server has accepted.
func (t *tally) restored() {
	t.count(&t.done)
	t.progress()
}

// mostNamed is how many pods the report names.
const mostNamed = 100

// leave counts a pod that is not restored, and why.
func (t *tally) leave(pod *corev1.Pod, cause, message string) {
	t.mu.Lock()
	t.undone[cause]++
	if len(t.named) < mostNamed {
		t.named = append(t.named, fmt.Sprintf("%s/%s: %s (%s)", pod.Namespace, pod.Name, message, cause))
	}
	t.mu.Unlock()
	t.progress()
}

// failedStarts are the containers that failed to start with a limit of MBCAS. A resize that the kubelet has
// not carried out may be the cause, and no controller is left to lower the limit.
func failedStarts(pod *corev1.Pod) (names []string) {
	ours := kube.WrittenByMBCAS(pod)
	for _, c := range kube.Containers(pod) {
		if c.FailedStart() && ours[c.Spec.Name] {
			names = append(names, c.Spec.Name)
		}
	}
	return names
}

// raises notes that a limit of a pod is raised.
func (t *tally) raises(pod *corev1.Pod) {
	restarts := map[string]int32{}
	for _, c := range kube.Containers(pod) {
		if c.Status != nil {
			restarts[c.Spec.Name] = c.Status.RestartCount
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raised[pod.UID] = restarts
}

// endedSince are the containers that have ended since a limit of the pod was raised. The kubelet may not have
// written the CPU quota of the pod's cgroup for it: see kube.Container.Runs.
func (t *tally) endedSince(pod *corev1.Pod) (names []string) {
	t.mu.Lock()
	restarts, raised := t.raised[pod.UID]
	t.mu.Unlock()
	for _, c := range kube.Containers(pod) {
		if raised && c.Limit() > 0 && !c.Completed(pod.Spec.RestartPolicy) &&
			(!c.Runs() || c.Status.RestartCount > restarts[c.Spec.Name]) {
			names = append(names, c.Spec.Name)
		}
	}
	return names
}

// awaits counts a pod that a container keeps from its declared limits, as it does not run.
func (t *tally) awaits(pod *corev1.Pod, containers []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = append(t.waiting, fmt.Sprintf("%s/%s (%s)", pod.Namespace, pod.Name, strings.Join(containers, ", ")))
}

// webhooksFail is after how many requests in a row that a webhook did not answer the other pods of
// its namespace are left for the next pass.
const webhooksFail = 3

func (t *tally) webhooks(namespace string, result podresize.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case result.Outcome == podresize.Unknown || result.WebhookFailed:
		t.sick[namespace]++
	case result.Outcome == podresize.Accepted:
		delete(t.sick, namespace)
	}
}

func (t *tally) isSick(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sick[namespace] >= webhooksFail
}

// progressInterval is how often the progress is printed.
const progressInterval = 5 * time.Second

func (t *tally) progress() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if now.Sub(t.told) < progressInterval {
		return
	}
	t.told = now
	fmt.Fprintf(t.out, "%d pods restored, %d at their declared limits before, %d tried in vain in this pass\n",
		t.before.done+t.done, max(t.before.already, t.already), sum(t.undone))
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// open says whether another pass may restore more.
func (t *tally) open() bool { return t.cut != nil || t.done > 0 || sum(t.undone) > t.lost }

// add adds a pass. What the first pass found done counts, and what the last complete one left undone. A
// last pass that was cut leaves open whether the kubelets carried out what was accepted before it.
func (t *tally) add(pass *tally) {
	switch {
	case pass.done > 0 || sum(pass.undone) < sum(t.undone):
		t.vain = 0
	case pass.cut == nil:
		t.vain++
	}
	if t.done += pass.done; t.looked == 0 {
		t.already = pass.already
	}
	if t.cut = pass.cut; t.looked > 0 && t.cut != nil {
		return
	}
	t.looked, t.external, t.lost = pass.looked, pass.external, pass.lost
	t.undone, t.named, t.waiting = pass.undone, pass.named, pass.waiting
}

// summary is the report in a sentence.
func (t *tally) summary(took time.Duration, records int) string {
	text := fmt.Sprintf("%d pods restored in %v, %d at their declared limits before, %d left as another client set them, %d not restored; "+
		"%d records are of pods that do not run any more",
		t.done, took.Round(time.Second), t.already, t.external, sum(t.undone), max(0, records-t.looked))
	if len(t.waiting) == 0 {
		return text
	}
	slices.Sort(t.waiting)
	named := t.waiting[:min(len(t.waiting), mostNamed)]
	text += fmt.Sprintf("\n%d pods may not run with their declared limits, as a container does not run, or ended meanwhile. "+
		"Where an owner makes another one, delete such a pod:\n  %s", len(t.waiting), strings.Join(named, "\n  "))
	if more := len(t.waiting) - len(named); more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return text
}

// left is the error that says what is not restored; nil if all is.
func (t *tally) left(records int) error {
	undone := sum(t.undone)
	if undone == 0 && t.cut == nil {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d pods are not back at their declared limits; run this again, or recreate them:", undone)
	if t.cut != nil {
		fmt.Fprintf(&b, "\n  the last look at all pods did not end (%v): %d pods with a record were never looked at, or do not run any more",
			t.cut, max(0, records-t.looked))
	}
	if t.vain >= vainPasses {
		fmt.Fprintf(&b, "\n  no progress was made in the last %d passes", t.vain)
	}
	slices.Sort(t.named)
	for _, line := range t.named {
		b.WriteString("\n  " + line)
	}
	if more := undone - len(t.named); more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
		for cause, n := range t.undone {
			fmt.Fprintf(&b, "; %s: %d in all", cause, n)
		}
	}
	return errors.New(b.String())
}
