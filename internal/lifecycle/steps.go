package lifecycle

import (
	"time"

	"github.com/mbcas/mbcas/actuator"
)

// state is one pod on its way through the steps.
type state struct {
	cfg  *Config
	node *Node
	now  time.Time
	pod  *Pod
	Task

	leaving   bool         // the pod leaves the market for good
	restoring bool         // the pod returns to its declared limits
	plan      actuator.Pod // for the plan of the node
}

// verdict is what follows a step.
type verdict int

const (
	next   verdict = iota // the next step
	skip                  // there is nothing to do about the pod
	done                  // the task is complete
	toPlan                // the plan of the whole node decides
)

// step is one part of the decision.
type step struct {
	name string
	run  func(*state) verdict
}

// steps are in the order in which they count. A step that ends the decision hides all below it.
var steps = []step{
	// What the pod is, and what is recorded of it. Nothing below runs without known declared
	// limits.
	{"retry a resize whose cause of refusal is gone", retryResolved},
	{"forget a pod that has ended", forgetEnded},
	{"record a new pod, skip one that does not take part", enroll},
	{"stop where the declared limits are unknown", requireDeclared},
	{"record the declared limits", recordDeclared},
	{"apply constraints", applyConstraints},
	// An external change comes before the resize in flight: it may have replaced that resize.
	{"yield to an external change", yieldToExternalChange},
	// What is in flight is known only where the kubelet reports limits.
	{"stop where the kubelet does not report limits", requireReportedLimits},
	{"follow a resize in flight", followInFlight},
	// A restore ends before the hold-offs: a pod at its declared limits needs no resize.
	{"choose between restore and allocation", chooseRestore},
	{"end a restore", endRestore},
	{"hold off", holdOff},
	{"roll back a harmful decrease", rollBackHarmful},
	{"leave the rest to the plan of the node", leaveToPlan},
}

// run takes the pod through the steps.
func (s *state) run() verdict {
	for _, step := range steps {
		if v := step.run(s); v != next {
			return v
		}
	}
	return toPlan
}
