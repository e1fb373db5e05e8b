// Package events bounds the Events that a process writes, so that trouble that all pods share does not
// fill etcd.
//
// What it promises, each a test of the same name:
//   - FloodIsBounded: however many Events there are, few are written.
//   - FloodOfOneNamespace: those of one namespace leave those of others their part.
package events

import (
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// PerSecond is how many Events of a type are written per second for long, and Burst at once. More say
// more in trouble that many pods share; fewer spare etcd. An Event has about a kilobyte and stays for an
// hour: ten per second are at most 36 MB.
const (
	PerSecond = 10
	Burst     = 100
)

// Half of a burst is for namespaces within these. More serve a namespace whose pods are all in trouble;
// fewer leave more to others.
const (
	namespacePerSecond = 1
	namespaceBurst     = 10
)

// namespacesMost bounds the namespaces whose Events are counted.
const namespacesMost = 1000

// Recorder writes Events about pods within PerSecond and Burst, and drops the others: the status of each
// pod says the same. Warnings have a budget of their own, so that many resizes hide none.
type Recorder struct {
	to               events.EventRecorder
	dropped          func()
	normal, warnings *budget
	now              func() time.Time
}

// Event is one about a pod.
type Event struct {
	Type, Reason, Action, Note string
	// State is the state of the pod that it tells of.
	State string
	// Again says that it was dropped before.
	Again bool
}

// longest is the longest note of an Event that the API server takes, in bytes.
const longest = 1000

// Bound returns a recorder that writes to another one, about pods within PerSecond and Burst, and calls dropped for
// each Event that it drops.
func Bound(to events.EventRecorder, dropped func()) *Recorder {
	return &Recorder{to: to, dropped: dropped, normal: newBudget(), warnings: newBudget(), now: time.Now}
}

// Eventf implements events.EventRecorder.
//
//nolint:revive // the interface has so many parameters
func (r *Recorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	if pod, ofPod := regarding.(*corev1.Pod); ofPod && !r.admits(pod.Namespace, eventtype) {
		r.dropped()
		return
	}
	r.to.Eventf(regarding, related, eventtype, reason, action, note, args...)
}

// Sender is a recorder that may drop Events about pods.
type Sender interface {
	// Send says whether the Event was not dropped.
	Send(pod *corev1.Pod, related runtime.Object, e Event) bool
}

// send sends an Event about a pod, and says whether it was not dropped. A recorder that is no Sender drops
// none.
func send(to events.EventRecorder, pod *corev1.Pod, related runtime.Object, e Event) bool {
	if len(e.Note) > longest {
		e.Note = strings.ToValidUTF8(e.Note[:longest], "")
	}
	if s, may := to.(Sender); may {
		return s.Send(pod, related, e)
	}
	to.Eventf(pod, related, e.Type, e.Reason, e.Action, "%s", e.Note)
	return true
}

// Send implements Sender.
func (r *Recorder) Send(pod *corev1.Pod, related runtime.Object, e Event) bool {
	if r.admits(pod.Namespace, e.Type) {
		r.to.Eventf(pod, related, e.Type, e.Reason, e.Action, "%s", e.Note)
		return true
	}
	if !e.Again {
		r.dropped()
	}
	return false
}

// admits says whether an Event about a pod of a namespace may be written.
func (r *Recorder) admits(namespace, eventtype string) bool {
	if eventtype == corev1.EventTypeWarning {
		return r.warnings.take(namespace, r.now())
	}
	return r.normal.take(namespace, r.now())
}

// budget is that of one type of Events.
type budget struct {
	all *rate.Limiter
	mu  sync.Mutex
	of  map[string]*rate.Limiter // by namespace, since less than half of a burst is left
}

func newBudget() *budget {
	return &budget{all: rate.NewLimiter(PerSecond, Burst), of: map[string]*rate.Limiter{}}
}

// take takes one of a namespace, and says whether there was one.
func (b *budget) take(namespace string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all.TokensAt(now) < Burst/2 && !b.namespace(namespace, now).AllowN(now, 1) {
		return false
	}
	return b.all.AllowN(now, 1)
}

// namespace is the budget of a namespace. Those that are full again are forgotten where there are too many.
func (b *budget) namespace(name string, now time.Time) *rate.Limiter {
	if l := b.of[name]; l != nil {
		return l
	}
	if len(b.of) >= namespacesMost {
		maps.DeleteFunc(b.of, func(_ string, l *rate.Limiter) bool { return l.TokensAt(now) >= namespaceBurst })
	}
	if len(b.of) >= namespacesMost {
		clear(b.of)
	}
	b.of[name] = rate.NewLimiter(namespacePerSecond, namespaceBurst)
	return b.of[name]
}
