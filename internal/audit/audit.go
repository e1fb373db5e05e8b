// Package audit writes the audit record: one line for each attempt to resize a pod, in the same form
// whichever program makes the attempt.
package audit

import (
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// Attempt is one attempt to resize a pod, and what came of it.
type Attempt struct {
	Pod     *corev1.Pod
	Move    actuator.Move
	Purpose string
	Reason  string
	Evidence
	// Generation is that of the decision; 0 where there is none.
	Generation int64
	Result     podresize.Result
	Latency    time.Duration
	// Waited is the time from when the pod came to the queue to the attempt, with that Priority; "" where
	// there is no queue.
	Waited   time.Duration
	Priority string
	// Age is the time from the decision, by the clock of the agent, to the attempt; 0: there is none.
	Age time.Duration
}

// Evidence is what a decision rests on, as the agent published it. The zero value is that of an attempt that
// no decision calls for.
type Evidence struct {
	Price            string
	Budget           int64
	Usage, Demand    cpu.Milli
	ThrottledPercent int32
}

// Write writes the line of an attempt.
func Write(log *slog.Logger, a Attempt) {
	from, to := map[string]cpu.Milli{}, map[string]cpu.Milli{}
	for _, c := range a.Move.Changes {
		from[c.Container], to[c.Container] = c.From, c.To
	}
	log.Info("resize", "actor", kube.FieldManager,
		"namespace", a.Pod.Namespace, "pod", a.Pod.Name, "uid", a.Pod.UID, "node", a.Pod.Spec.NodeName,
		"from", from, "to", to, "price", a.Price, "budget", a.Budget,
		"usage", a.Usage, "demand", a.Demand, "throttledPercent", a.ThrottledPercent, "generation", a.Generation,
		"purpose", a.Purpose, "reason", a.Reason, "outcome", a.Result.Outcome.String(), "message", a.Result.Message,
		"latency", a.Latency.Seconds(), "waited", a.Waited.Seconds(), "priority", a.Priority, "age", a.Age.Seconds())
}
