// Package guard watches every pod of a cluster for what must never happen: an eviction, a restart,
// a change of requests or memory, any change of a pod that is labelled Untouched, a write to a pod
// by MBCAS other than a resize, a resize that a rule refuses, and an exceeded quota. A resize that
// the API server or a webhook was too busy or too slow for is counted, and is no fault. Neither is one that
// a change of the mode of its namespace overtook.
//
// Promises:
//   - Each of these changes of a pod is a fault, and a changed CPU limit is none: TestPodChanges.
//   - Each of these requests to the API server is a fault, and a busy server is none: TestRequests.
//   - A resize that is refused for the mode is a fault unless the mode has just changed: TestModeChanges.
package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/watch"
)

// Labels of pods. Another controller may evict an Excused pod and change its requests. Nothing may
// change an Untouched pod. A test restarts the containers of a Restarted one.
const (
	Excused   = "test.mbcas.io/excused"
	Restarted = "test.mbcas.io/restarted"
	Untouched = "test.mbcas.io/untouched"
)

const (
	// System is the namespace of MBCAS, whose own pods may restart: one that loses its lease ends.
	System = "mbcas-system"
	// Controller is the account that resizes.
	Controller = accounts + "mbcas-controller"
	accounts   = "system:serviceaccount:" + System + ":"
)

// Guard is safe for use by several goroutines.
type Guard struct {
	client client.Client
	log    audit.Log
	stop   context.CancelFunc

	mu     sync.Mutex
	pods   map[types.UID]guarded
	report Report
	ended  bool // an event that is still on its way does not count

	serverFails bool
}

// APIServerFails says that a test breaks the API server, so that any number of resizes may have no
// result.
func (g *Guard) APIServerFails() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.serverFails = true
}

// Report is the result.
type Report struct {
	// Pods and Resizes are how many there were; with none the watch proves nothing.
	Pods, Resizes int
	// Busy is how many of the resizes had no result because the API server was busy, slow or cut off.
	Busy int
	// Faults must never happen.
	Faults []string
	// Notes are restarts of MBCAS itself, the resizes that Busy counts, and those that a change of mode overtook.
	Notes []string

	modeChanges map[string][]audit.Event // by namespace
}

// guarded is the part of a pod that must not change.
type guarded struct {
	generation int64 // of an Untouched pod
	resources  string
	restarts   map[string]int32
	evicted    bool
}

// New watches from now on. The audit log is that of the API server.
func New(kubeconfig, log string) (*Guard, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	g := &Guard{pods: map[types.UID]guarded{}}
	if g.client, err = client.New(config, client.Options{}); err != nil {
		return nil, err
	}
	if g.log, err = audit.From(log); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	record := func(o client.Object) { g.record(o.(*corev1.Pod)) }
	kinds := map[client.Object]labels.Selector{&corev1.Pod{}: nil}
	err = watch.Objects(ctx, config, kinds, record, record)
	if err != nil {
		stop()
	}
	return g, err
}

// record compares a pod with its state before.
func (g *Guard) record(pod *corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if pod.Spec.NodeName == "" || g.ended {
		return // its spec is not final
	}
	now := guarded{resources: fixed(pod), restarts: restarts(pod), evicted: evicted(pod)}
	if pod.Labels[Untouched] != "" && pod.DeletionTimestamp == nil {
		now.generation = pod.Generation
	}
	was, known := g.pods[pod.UID]
	g.pods[pod.UID] = now
	if !known {
		return
	}
	name, excused := pod.Namespace+"/"+pod.Name, pod.Labels[Excused] != ""
	if now.generation > was.generation {
		g.report.fault("%s was changed, and nothing may change it", name)
	}
	if now.resources != was.resources && !excused {
		g.report.fault("%s: requests or memory changed from %s to %s", name, was.resources, now.resources)
	}
	if now.evicted && !was.evicted && !excused {
		g.report.fault("%s was evicted: %s %s", name, pod.Status.Reason, pod.Status.Message)
	}
	for _, c := range slices.Sorted(maps.Keys(now.restarts)) {
		switch {
		case now.restarts[c] <= was.restarts[c] || pod.Labels[Restarted] != "":
		case pod.Namespace == System:
			g.report.note("%s: container %s was restarted", name, c)
		default:
			g.report.fault("%s: container %s was restarted", name, c)
		}
	}
}

// fixed are the pod's resources without its CPU limits.
func fixed(pod *corev1.Pod) string {
	type resources struct {
		Name             string
		Requests, Limits corev1.ResourceList
	}
	var all []resources
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		limits := c.Resources.Limits.DeepCopy()
		delete(limits, corev1.ResourceCPU)
		all = append(all, resources{c.Name, c.Resources.Requests, limits})
	}
	text, _ := json.Marshal(all)
	return string(text)
}

func restarts(pod *corev1.Pod) map[string]int32 {
	n := map[string]int32{}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		n[c.Name] = c.RestartCount
	}
	return n
}

func evicted(pod *corev1.Pod) bool {
	disrupted := func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	}
	return pod.Status.Reason == "Evicted" || slices.ContainsFunc(pod.Status.Conditions, disrupted)
}

func (r *Report) fault(format string, args ...any) {
	r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// End checks every pod once more, and the requests that the API server got.
func (g *Guard) End() Report {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var last corev1.PodList
	err := g.client.List(ctx, &last)
	g.stop()
	for i := range last.Items {
		g.record(&last.Items[i])
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := errors.Join(err, g.log.Each(g.report.modeChange), g.log.Each(g.report.request)); err != nil {
		g.report.fault("what happened cannot be read to the end: %v", err)
	}
	if r := &g.report; r.Busy > 3 && 10*r.Busy > r.Resizes && !g.serverFails {
		r.fault("%d of %d resizes had no result", r.Busy, r.Resizes)
	}
	g.ended, g.report.Pods = true, len(g.pods)
	return g.report
}

// request checks one request.
func (r *Report) request(e audit.Event) {
	name, code := e.ObjectRef.Namespace+"/"+e.ObjectRef.Name, e.ResponseStatus.Code
	ours := strings.HasPrefix(e.User.Username, accounts)
	switch {
	case e.OverQuota():
		r.fault("%s: %s %s of %s exceeded a quota", e.User.Username, e.Verb, e.RequestURI, name)
	case e.Of("resize") && e.User.Username == Controller && !e.DryRun():
		r.Resizes++
		switch {
		case code == 429 || code >= 500: // also 504 of one that its sender cut off
			r.Busy++
			r.note("a resize of %s had no result, with %d: %s", name, code, e.ResponseStatus.Message)
		case r.overtaken(e):
			r.note("a resize of %s met a change of the mode: %s", name, e.ResponseStatus.Message)
		case code >= 300 && code != 409 && code != 404: // a pod may change, or go, under a resize
			r.fault("a resize of %s was refused with %d: %s", name, code, e.ResponseStatus.Message)
		}
	case e.Of("eviction") && code < 300 && !strings.HasSuffix(e.User.Username, ":vpa-updater"):
		r.fault("%s evicted %s", e.User.Username, name)
	case ours && (e.Of("") || e.Of("eviction") || e.Of("resize")) && !e.DryRun():
		r.fault("%s: %s %s", e.User.Username, e.Verb, e.RequestURI)
	}
}

// modeChange notes a request that changed the mode of a namespace.
func (r *Report) modeChange(e audit.Event) {
	if e.ObjectRef.Resource != "namespaces" || e.ResponseStatus.Code >= 300 ||
		!bytes.Contains(e.RequestObject, []byte(kube.ModeLabel)) {
		return
	}
	if r.modeChanges == nil {
		r.modeChanges = map[string][]audit.Event{}
	}
	r.modeChanges[e.ObjectRef.Name] = append(r.modeChanges[e.ObjectRef.Name], e)
}

// modeKnown is how long after a change of mode the API server and the controller, which watch namespaces,
// know of it at the latest. Longer hides resizes that the controller should not have made.
const modeKnown = 2 * time.Second

// overtaken says whether a resize was refused for the mode of its namespace, and that changed during the
// resize or just before.
func (r *Report) overtaken(e audit.Event) bool {
	const policy = "ValidatingAdmissionPolicy 'mbcas-controller'"
	message, namespace := e.ResponseStatus.Message, e.ObjectRef.Namespace
	if !strings.Contains(message, policy) || !strings.Contains(message, "the mode of namespace "+namespace+" is ") {
		return false
	}
	return slices.ContainsFunc(r.modeChanges[namespace], func(change audit.Event) bool {
		return !change.Received.After(e.Ended) && e.Received.Sub(change.Ended) <= modeKnown
	})
}
