// Package events bounds the Events that a process writes, so that trouble that all pods share does not
// fill etcd.
package events

import (
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

// Recorder writes Events about pods within PerSecond and Burst, and drops the others: the status of each
// pod says the same. Warnings have a budget of their own, so that many resizes hide none.
type Recorder struct {
	to               events.EventRecorder
	dropped          func()
	normal, warnings *rate.Limiter
	now              func() time.Time
}

// Bound returns a recorder that writes to another one, about pods within PerSecond and Burst, and calls dropped for
// each Event that it drops.
func Bound(to events.EventRecorder, dropped func()) *Recorder {
	limiter := func() *rate.Limiter { return rate.NewLimiter(PerSecond, Burst) }
	return &Recorder{to: to, dropped: dropped, normal: limiter(), warnings: limiter(), now: time.Now}
}

// Eventf implements events.EventRecorder.
//
//nolint:revive // the interface has so many parameters
func (r *Recorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	limiter := r.normal
	if eventtype == corev1.EventTypeWarning {
		limiter = r.warnings
	}
	if _, ofPod := regarding.(*corev1.Pod); ofPod && !limiter.AllowN(r.now(), 1) {
		r.dropped()
		return
	}
	r.to.Eventf(regarding, related, eventtype, reason, action, note, args...)
}
