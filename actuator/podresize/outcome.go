// Package podresize carries one actuator.Move out through the pods/resize subresource (KEP-1287) and says
// what came of it in one typed outcome. It can be used without the rest of the project.
//
// What it promises, each a test of the same name:
//   - OnlyCPULimits: a move changes the CPU limits that it names and nothing else.
//   - NothingIsSent: what does not fit the pod it was given is refused without asking the server.
//   - Refusals: each refusal of a real API server is an outcome of its own, and changes nothing.
//   - WouldMutate: a dry run finds out when admission changes more than was asked for.
//   - LostAnswer: where nobody knows whether the change was made, the outcome is Unknown and no refusal.
//   - BroughtToItsEnd: what is sent is not cut off by the end of its context, and nothing is sent after that.
//   - ConcurrentWriters: no change of somebody else's is overwritten.
//   - ClassifyAnything: no error is ever taken for a success.
//   - Check: progress is told from the kubelet's words about this resize, never about an earlier one.
package podresize

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Outcome is what came of one attempt. Every answer of the API server and the kubelet that we
// know is one of them; callers switch on it in full.
type Outcome uint8

const (
	Accepted          Outcome = iota // the API server stored it; the kubelet still has to act
	NoChange                         // the pod already has these limits
	Conflict                         // the pod changed or was replaced since the decision: read it and decide again
	PodGone                          // the pod does not exist any more
	Replaced                         // another pod has taken its name
	NotServed                        // this API server has no pods/resize: act nowhere
	NotAllowed                       // RBAC forbids it: act nowhere
	QuotaExceeded                    // a ResourceQuota has no room
	QuotaNeedsLimits                 // a ResourceQuota wants limits on containers that have none
	LimitRangeRefused                // a LimitRange forbids it, perhaps because of another container
	WouldMutate                      // admission would change more than the CPU limits asked for
	NodeRefused                      // the node cannot take it: capacity, platform or missing feature
	PolicyRefused                    // an admission policy or webhook refused it
	Invalid                          // the API server calls it invalid: QoS class, limit below request, static pod
	NotYet                           // the server is not ready for it: caches starting, quota status unknown
	Unavailable                      // 429 or 5xx, or not sent: nothing was done
	Unknown                          // timeout or lost answer: read the pod before anything else
	NoDryRun                         // a webhook refuses dry runs, so what it would do cannot be known beforehand
)

// Result is one attempt's outcome with what a person needs to understand it.
type Result struct {
	Outcome Outcome
	// Message is the server's own explanation, or ours.
	Message string
	// RetryAfter is what the server asked for; 0: it did not say.
	RetryAfter time.Duration
	// WebhookFailed: an admission webhook could not be reached or did not answer, as far as can be told.
	WebhookFailed bool
	// Pod is the pod as the server returned it: with Accepted and NoChange, and with WouldMutate
	// where Apply, not DryRun, met it, so that the server has stored more than was asked for. Else nil.
	Pod *corev1.Pod
}

// MayHaveChanged says whether the pod may have been changed by the attempt.
func (r Result) MayHaveChanged() bool {
	return r.Outcome == Accepted || r.Outcome == Unknown || r.Pod != nil && r.Outcome == WouldMutate
}

// Progress is how far the kubelet is with the limits in a pod's spec.
type Progress uint8

const (
	Done       Progress = iota // in force, as far as the kubelet says
	InProgress                 // accepted, not in force yet
	Deferred                   // the node cannot take it now
	Infeasible                 // the node never will
	Errored                    // the runtime or kernel refused it
)

var outcomeNames = [...]string{
	"Accepted", "NoChange", "Conflict", "PodGone", "Replaced", "NotServed", "NotAllowed", "QuotaExceeded",
	"QuotaNeedsLimits", "LimitRangeRefused", "WouldMutate", "NodeRefused", "PolicyRefused", "Invalid", "NotYet",
	"Unavailable", "Unknown", "NoDryRun",
}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

var progressNames = [...]string{"Done", "InProgress", "Deferred", "Infeasible", "Errored"}

func (p Progress) String() string {
	if int(p) < len(progressNames) {
		return progressNames[p]
	}
	return fmt.Sprintf("Progress(%d)", uint8(p))
}
