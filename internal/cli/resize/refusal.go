package resize

import (
	"fmt"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/cli/format"
)

// refusal explains in plain words why a resize was refused and what to do; "" if it was not.
func refusal(r podresize.Result) string {
	switch r.Outcome {
	case podresize.Accepted, podresize.NoChange:
		return ""
	case podresize.Conflict:
		return "the pod kept changing while it was being resized; try again"
	case podresize.PodGone:
		return "the pod is gone"
	case podresize.Replaced:
		return "another pod has taken its name; look at it first"
	case podresize.NotServed:
		return "this cluster cannot resize pods in place: it needs Kubernetes 1.33 or later"
	case podresize.NotAllowed:
		return "you may not resize pods here: ask for the verb patch on pods/resize (" + format.OneLine(r.Message) + ")"
	case podresize.QuotaExceeded:
		return "a ResourceQuota has no room for the new limit: " + format.OneLine(r.Message)
	case podresize.QuotaNeedsLimits:
		return "a ResourceQuota wants a CPU limit on every container of the pod, and one has none: " + format.OneLine(r.Message)
	case podresize.LimitRangeRefused:
		return "a LimitRange of the namespace forbids it: " + format.OneLine(r.Message)
	case podresize.WouldMutate:
		return "a LimitRange or webhook would change more than this limit, and that could not be undone: " + format.OneLine(r.Message)
	case podresize.NodeRefused:
		return "the pod's node cannot do it: " + format.OneLine(r.Message)
	case podresize.PolicyRefused:
		return "an admission policy or webhook forbids it: " + format.OneLine(r.Message)
	case podresize.Invalid:
		return "Kubernetes calls it invalid: " + format.OneLine(r.Message)
	case podresize.NotYet:
		return "the API server is not ready for it yet; try again in some seconds (" + format.OneLine(r.Message) + ")"
	case podresize.Unavailable:
		return "the API server could not do it now, and nothing was changed; try again (" + format.OneLine(r.Message) + ")"
	case podresize.Unknown:
		return "the answer was lost, so it may have been done or not; look at the pod (" + format.OneLine(r.Message) + ")"
	case podresize.NoDryRun:
		return "a webhook refuses dry runs, so nobody can say beforehand what it would do: " + format.OneLine(r.Message)
	}
	return fmt.Sprintf("%s: %s", r.Outcome, format.OneLine(r.Message))
}
