// Package podresize carries out one actuator.Move through the pods/resize subresource (KEP-1287) and
// returns one typed outcome. It can be used without the rest of the project.
//
// What it promises, each a test of the same name:
//   - OnlyCPULimits: a move changes the CPU limits that it names and nothing else.
//   - NothingIsSent: what does not fit the pod it was given is refused without asking the server.
//   - RaisesOnlyWhatRuns: no container is raised that does not run; it may be lowered.
//   - Refusals: each refusal of a real API server is an outcome of its own, and changes nothing.
//   - WouldMutate: a dry run detects that admission would change more than the move.
//   - MutationsAreBounded: what is remembered of mutations stays small, and none counts as unseen.
//   - LostAnswer: if the answer is lost, the outcome is Unknown, never a refusal.
//   - SentRequestsComplete: the end of the context does not cut off a request that was sent; no request is sent after it.
//   - ConcurrentWriters: no change by another client is overwritten.
//   - ClassifyAnything: no error is ever taken for a success.
//   - Check: progress comes from what the kubelet reports about this resize, never about an earlier one.
package podresize

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Outcome is the result of one attempt. Every known answer of the API server is one of them;
// callers switch on it in full.
type Outcome uint8

const (
	Accepted          Outcome = iota // the API server stored it; the kubelet still has to act
	NoChange                         // the pod already has these limits
	Conflict                         // the pod changed or was replaced since the decision: read it and decide again
	PodGone                          // the pod does not exist any more
	Replaced                         // another pod has taken its name
	NotServed                        // there is no pods/resize at this address: ask Served whether the API server has it
	NotAllowed                       // authorization forbids it: ask Allowed whether that holds everywhere
	QuotaExceeded                    // a ResourceQuota has no room
	QuotaNeedsLimits                 // a ResourceQuota wants limits on containers that have none
	LimitRangeRefused                // a LimitRange forbids it, perhaps because of another container
	WouldMutate                      // admission would change more than the CPU limits asked for
	NotRunning                       // a container that the move raises does not run: wait until it does
	NodeRefused                      // the node cannot take it: capacity, platform or missing feature
	PolicyRefused                    // an admission policy or webhook refused it
	Invalid                          // the API server calls it invalid: QoS class, limit below request, static pod
	NotYet                           // the server is not ready for it: caches starting, quota status unknown
	Unavailable                      // 401, 429 or 5xx, or not sent: nothing changed
	Unknown                          // timeout or lost answer: read the pod again first
	NoDryRun                         // a webhook does not support dry runs
)

// Result is one attempt's outcome, with what explains it.
type Result struct {
	Outcome Outcome
	// Message is the explanation of the API server or, where it gives none, of this package.
	Message string
	// RetryAfter is the wait that the API server asked for; 0 if none.
	RetryAfter time.Duration
	// WebhookFailed: an admission webhook could not be reached or did not answer, as far as can be told.
	WebhookFailed bool
	// Webhook is the name of that webhook; "" where the API server does not say it.
	Webhook string
	// Pod is the pod as the API server returned it with Accepted and NoChange, and with WouldMutate of
	// Apply: then the server has stored more than the move. Otherwise nil.
	Pod *corev1.Pod
}

// MayHaveChanged says whether the pod may have been changed by the attempt.
func (r Result) MayHaveChanged() bool {
	return r.Outcome == Accepted || r.Outcome == Unknown || r.Pod != nil && r.Outcome == WouldMutate
}

// Harmless says of a dry run whether its resize may be sent. Where a webhook does not support dry runs, it
// may if no LimitRange has a default to add to the pod, as what that adds can never be removed.
func (r Result) Harmless(defaults bool) bool {
	return r.Outcome == Accepted || r.Outcome == NoDryRun && !defaults
}

var outcomeNames = [...]string{
	"Accepted", "NoChange", "Conflict", "PodGone", "Replaced", "NotServed", "NotAllowed", "QuotaExceeded",
	"QuotaNeedsLimits", "LimitRangeRefused", "WouldMutate", "NotRunning", "NodeRefused", "PolicyRefused", "Invalid", "NotYet",
	"Unavailable", "Unknown", "NoDryRun",
}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}
