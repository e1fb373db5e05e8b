// Package lifecycle decides what happens to the CPU limits of each pod of a node: whether a resize
// is made, put off or undone, and what is recorded of it. It is pure: facts and the time come in,
// tasks go out, and the same input gives the same tasks.
//
// What it promises, each a test of the same name:
//   - KeepsTheRules: no decision breaks a rule of a slow, obvious list, for whatever history. One is: no container is
//     raised that does not run.
//   - Scenarios: the histories of testdata end as they say: external changes, failing kubelets,
//     agents that stop, and rollback. After a rollback a pod is left to recover, and then keeps at
//     least its declared limit for a day.
//   - RollsBackHarm: limits from before a harmful decrease are restored; trouble with another cause
//     does not count.
//   - WaitsForTheAgent: a node is restored only after its agent had the time to renew its Lease and
//     did not.
//   - StopsRestoresInAnOutage: where many agents are unresponsive, and before the API server confirms
//     that one is, limits stay as they are.
//   - RestoresInSteps: after an unresponsive agent, limits fall as slowly as by decisions.
//   - RestoresToTheRequest: a restore ends at the request where that was raised above the declared limit.
//   - RaisesWhatItLowered: in mode recommend, limits below the declared ones go back to them.
//   - AnIncreaseSupersedes: an increase, a rollback or a restore that lowers nothing takes the place of the pod's own
//     decrease in flight. Until it has, what is recorded is the decrease.
//   - NamesTheConstraint: a pod that the market would lower, and that must not be decreased, says
//     why.
//   - BoostEndsOnce: a start-up boost ends when the pod has been Ready for its grace, and at the latest after
//     its longest time; neither a restart nor a lost readiness begins another.
//   - LoansEndWithScarcity: while the price caps a pod, or its raise is revoked, neither a boost nor a hold-off
//     leaves it more than its declared limit or what the market gives it.
//   - UnreadyPodsLoseTheirBoost: a pod that was never Ready is lowered as decided from ten minutes after its
//     start on, and not below its declared limits.
//   - ABoostIsFollowed: a boost that the kubelet did not begin with is in flight like any resize.
//   - RepairsQuotas: a limit of MBCAS changes by a quantum and returns where the quota of the pod's cgroup is
//     wrong; a container that cannot start after a raise is lowered. What is in vain is given up.
//   - BackOffDoubles: each failure in a row doubles the wait.
package lifecycle

import (
	"time"

	"github.com/mbcas/mbcas/actuator"
)

// Decide returns what to do about the pods of a node, in the order in which to do it: decreases,
// increases, the rest. Pods that need nothing, not even another look, have no task.
func Decide(cfg Config, node Node, pods []Pod, now time.Time) []Task {
	var planned, complete []Task
	var plans []actuator.Pod
	scarce := false
	for i := range pods {
		s := state{cfg: &cfg, node: &node, now: now, pod: &pods[i], Task: Task{Pod: i, Purpose: Allocate, Status: pods[i].Status}}
		verdict := s.run()
		if verdict == skip {
			continue
		}
		scarce = scarce || s.pod.Decision != nil && s.pod.Decision.Price > 0
		if verdict == done {
			complete = append(complete, s.Task)
		} else {
			planned, plans = append(planned, s.Task), append(plans, s.plan)
		}
	}
	tasks := make([]Task, 0, len(planned)+len(complete))
	for _, step := range actuator.Plan(cfg.Actuator, now, scarce, plans) {
		t := planned[step.Pod]
		t.follow(step, &pods[t.Pod], now)
		tasks = append(tasks, t)
	}
	return append(tasks, complete...)
}

// state is one pod on its way through the steps.
type state struct {
	cfg  *Config
	node *Node
	now  time.Time
	pod  *Pod
	Task

	leaving    bool         // the pod leaves the market for good
	restoring  bool         // the pod returns to its declared limits
	raiseOnly  bool         // but is not lowered to them
	repair     *repair      // nil: there is nothing to repair now
	quotaWrong bool         // the quota of the pod's cgroup, and a repair is not given up
	boosted    Limits       // the least limits of a pod that starts; nil: none
	plan       actuator.Pod // for the plan of the node
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
	{"leave a pod alone whose limits are too large", leaveTooLarge},
	{"record the declared limits", recordDeclared},
	{"apply constraints", applyConstraints},
	// What the pod shows now may be our own resize, so nothing is concluded before the answer.
	{"wait for the answer to a resize", awaitAnswer},
	// An external change comes before the resize in flight: it may have replaced that resize.
	{"yield to an external change", yieldToExternalChange},
	// What is in flight is known only where the kubelet reports limits.
	{"stop where the kubelet does not report limits", requireReportedLimits},
	{"follow a resize in flight", followInFlight},
	// A restore ends before the hold-offs: a pod at its declared limits needs no resize.
	{"choose between restore and allocation", chooseRestore},
	{"find a wrong quota, or a container that cannot start", chooseRepair},
	{"end a restore", endRestore},
	{"hold off", holdOff},
	{"repair it", makeRepair},
	{"roll back a harmful decrease", rollBackHarmful},
	{"raise a pod that starts", boost},
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
