// Package stages divides the time of a reaction among its stages: from the step of the load to the
// higher limit in the kernel.
//
// Promises:
//   - The stages of a step add up to its time, and none is negative: TestStagesAddUp.
//   - A stage whose end was not recorded is named together with the next one, and gets no time of
//     its own: TestWhatWasNotRecorded.
//   - Without a reaction, the stages that were not left are named: TestNoReaction.
//   - Recorded steps give the stages that were worked out by hand: TestRecorded, TestDecided,
//     TestNextStep.
//   - A round that left no record counts only where the others lie on one grid: TestLooks.
package stages

import (
	"strings"
	"time"
)

// Stage is one part of a reaction.
type Stage string

// The stages, in their order.
const (
	// Sampling ends when the agent first reads the counters after the step.
	Sampling Stage = "sampling"
	// Evidence ends when it reads those by which it decides to raise the limit.
	Evidence Stage = "evidence"
	// Publish ends when the API server has answered the write of the PodAllocation.
	Publish Stage = "publish"
	// Queue ends when the controller looks at the node and decides to resize: the watch, its work queue,
	// and everything that an increase waits for.
	Queue Stage = "watch and queue"
	// Decide ends when the resize reaches the API server. It includes the wait for a token and for
	// statuses that are written first.
	Decide Stage = "decide"
	// DryRun is before the first resize of a pod; other resizes do not have this stage.
	DryRun Stage = "dry run"
	// Resize ends when the API server has answered the PATCH of pods/resize.
	Resize Stage = "resize"
	// Kubelet ends when the kernel has the limit.
	Kubelet Stage = "kubelet"
)

// Marks are when the stages of one step ended. A zero time was not recorded.
type Marks struct {
	Step, Look, Observed, Published, Decided, DryRun, Sent, Answered, Kernel time.Time
}

// Span is the time of one stage, or of several that cannot be told apart.
type Span struct {
	Stages  string  `json:"stages"`
	Seconds float64 `json:"s"`
}

// separator is between the names of stages that cannot be told apart.
const separator = " + "

// Split is a reaction by its stages.
type Split struct {
	Spans []Span `json:"spans"`
	// Open are the stages that the step was in at the end; empty: the kernel has the higher limit.
	Open string `json:"open,omitempty"`
}

// Divide is the time of a step by its stages. A mark that is earlier than the one before it, or
// later than the kernel's, was not the mark of this reaction, or was not recorded as it happened.
func Divide(m Marks) Split {
	ends := []struct {
		stage Stage
		end   time.Time
	}{
		{Sampling, m.Look}, {Evidence, m.Observed}, {Publish, m.Published}, {Queue, m.Decided},
		{Decide, m.Sent}, {Resize, m.Answered}, {Kubelet, m.Kernel},
	}
	if !m.DryRun.IsZero() {
		ends[4].end = m.DryRun
		ends = append(ends[:5:5], append(ends[:0:0], ends[4:]...)...)
		ends[5].stage, ends[5].end = DryRun, m.Sent
	}
	var s Split
	var open []string
	last := m.Step
	for _, e := range ends {
		open = append(open, string(e.stage))
		if e.end.IsZero() || e.end.Before(last) || !m.Kernel.IsZero() && e.end.After(m.Kernel) {
			continue
		}
		s.Spans = append(s.Spans, Span{strings.Join(open, separator), e.end.Sub(last).Seconds()})
		open, last = nil, e.end
	}
	s.Open = strings.Join(open, separator)
	return s
}
