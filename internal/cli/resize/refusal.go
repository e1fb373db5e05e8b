package resize

import (
	"strings"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/cli/format"
)

// refusals say why a resize was refused and what to do; MESSAGE is what the API server says.
var refusals = map[podresize.Outcome]string{
	podresize.Accepted:      "",
	podresize.NoChange:      "",
	podresize.Conflict:      "the pod kept changing during the resize; try again",
	podresize.PodGone:       "the pod was deleted",
	podresize.Replaced:      "it was replaced by another pod of its name; check that one first",
	podresize.NotServed:     "this cluster cannot resize pods in place: it needs Kubernetes 1.33 or later",
	podresize.NotAllowed:    "you may not resize pods here: ask for the verb patch on pods/resize (MESSAGE)",
	podresize.QuotaExceeded: "a ResourceQuota has no room for the new limit: MESSAGE",
	podresize.QuotaNeedsLimits: "a ResourceQuota requires a CPU limit on every container of the pod, and one has none: " +
		"MESSAGE",
	podresize.LimitRangeRefused: "a LimitRange of the namespace forbids it: MESSAGE",
	podresize.WouldMutate: "a LimitRange or webhook would change more than this limit, and that could not be reverted: " +
		"MESSAGE",
	podresize.NotRunning:    "try again when the container runs: MESSAGE",
	podresize.NodeRefused:   "the pod's node cannot do it: MESSAGE",
	podresize.PolicyRefused: "an admission policy or webhook forbids it: MESSAGE",
	podresize.Invalid:       "Kubernetes calls it invalid: MESSAGE",
	podresize.NotYet:        "the API server is not ready for it yet; try again in some seconds (MESSAGE)",
	podresize.Unavailable:   "the API server could not do it now, and nothing was changed; try again (MESSAGE)",
	podresize.Unknown:       "the response was lost, so the resize may have happened; check the pod (MESSAGE)",
	podresize.NoDryRun:      "a webhook refuses dry runs, so the result cannot be known beforehand: MESSAGE",
}

// refusal says why a resize was refused and what to do; "" if it was not.
func refusal(r podresize.Result) string {
	text, known := refusals[r.Outcome]
	if !known {
		text = r.Outcome.String() + ": MESSAGE"
	}
	return strings.ReplaceAll(text, "MESSAGE", format.OneLine(r.Message))
}
