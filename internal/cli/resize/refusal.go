package resize

import (
	"fmt"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/cli/format"
)

// refusal says why a resize was refused and what to do; "" if it was not.
func refusal(r podresize.Result) string {
	message := format.OneLine(r.Message)
	switch r.Outcome {
	case podresize.Accepted, podresize.NoChange:
		return ""
	case podresize.Conflict:
		return "the pod kept changing during the resize; try again"
	case podresize.PodGone:
		return "the pod was deleted"
	case podresize.Replaced:
		return "it was replaced by another pod of its name; check that one first"
	case podresize.NotServed:
		return "this cluster cannot resize pods in place: it needs Kubernetes 1.33 or later"
	case podresize.NotAllowed:
		return "you may not resize pods here: ask for the verb patch on pods/resize (" + message + ")"
	case podresize.QuotaExceeded:
		return "a ResourceQuota has no room for the new limit: " + message
	case podresize.QuotaNeedsLimits:
		return "a ResourceQuota requires a CPU limit on every container of the pod, and one has none: " + message
	case podresize.LimitRangeRefused:
		return "a LimitRange of the namespace forbids it: " + message
	case podresize.WouldMutate:
		return "a LimitRange or webhook would change more than this limit, and that could not be reverted: " + message
	case podresize.NodeRefused:
		return "the pod's node cannot do it: " + message
	case podresize.PolicyRefused:
		return "an admission policy or webhook forbids it: " + message
	case podresize.Invalid:
		return "Kubernetes calls it invalid: " + message
	case podresize.NotYet:
		return "the API server is not ready for it yet; try again in some seconds (" + message + ")"
	case podresize.Unavailable:
		return "the API server could not do it now, and nothing was changed; try again (" + message + ")"
	case podresize.Unknown:
		return "the response was lost, so the resize may have happened; check the pod (" + message + ")"
	case podresize.NoDryRun:
		return "a webhook refuses dry runs, so the result cannot be known beforehand: " + message
	}
	return fmt.Sprintf("%s: %s", r.Outcome, message)
}
