//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/cluster"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/load/work"
	"github.com/mbcas/mbcas/test/measure/internal/figures"
	"github.com/mbcas/mbcas/test/measure/internal/player"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
	"github.com/mbcas/mbcas/test/measure/internal/stages"
	"github.com/mbcas/mbcas/test/measure/internal/workload"
)

// errMissed: a target of a full measurement was missed, or something happened that must never
// happen.
var errMissed = errors.New("missed")

const (
	// roundInterval is the time between two rounds of the agent that is installed.
	roundInterval = time.Second
	// controllerPods selects the controller's.
	controllerPods = "app.kubernetes.io/name=mbcas,app.kubernetes.io/component=controller"
)

// restorePatience is how long the declared limits may take to return, in the API and in the kernel.
const restorePatience = 2 * time.Minute

// measurement is one script played in a session.
type measurement struct {
	*session
	script   *script.Script
	workload workload.Workload
	player   player.Player
	facts    figures.Facts
}

func newMeasurement(s *session, x *script.Script) (*measurement, error) {
	n, err := work.Calibrate(x.RequestCPU)
	if err != nil {
		return nil, err
	}
	r := recorder.New(x, s.kernel)
	m := &measurement{
		session: s, script: x,
		workload: workload.Workload{Client: s.client, Script: x, Recorder: r, Node: s.node.Name},
		player:   player.Player{Recorder: r, Seed: s.seed, Iterations: n},
		facts:    figures.Facts{Script: x, Busy: s.busy, Started: time.Now()},
	}
	m.facts.Setup = figures.Setup{
		Full: s.full, Seed: s.seed, RequestMS: recorder.Milliseconds(x.RequestCPU), Iterations: n,
		Cores: runtime.NumCPU(), MBCAS: version,
		Kubelet: s.node.Status.NodeInfo.KubeletVersion, Kernel: "kernel " + s.node.Status.NodeInfo.KernelVersion,
		Runtime: s.node.Status.NodeInfo.ContainerRuntimeVersion,
	}
	for _, w := range x.Workloads {
		priority := x.Classes[w.Class]
		m.facts.Setup.Workloads = append(m.facts.Setup.Workloads, figures.Workload{
			Name: w.Group(), Request: int64(w.Request), Limit: int64(w.Limit), Class: w.Class, Priority: priority,
			Multiplier: demand.PriorityMultiplier(priority),
		})
	}
	m.player.Second = s.console.Show
	m.player.StartPod = m.workload.StartPod
	if x.NewPods != nil {
		m.player.Beside = func(ctx context.Context, run *recorder.Run) {
			run.NewPods = m.workload.NewPods(ctx, run.Start, run.Plan.Length())
		}
	}
	return m, nil
}

// run plays the script, reports, and removes the pods unless they are to be kept.
func (m *measurement) run(ctx context.Context, keep bool) error {
	m.console.Say("\n%s: %v of CPU per request are %d iterations, in every run",
		m.script.Name, m.script.RequestCPU, m.facts.Setup.Iterations)
	watching, stop := context.WithCancel(context.WithoutCancel(ctx)) // to the end
	defer stop()
	if err := m.workload.Recorder.Watch(watching, m.config); err != nil {
		return err
	}
	watch, err := guard.New(m.cluster.Kubeconfig, m.cluster.Log("audit"))
	if err != nil {
		return err
	}
	log, err := audit.From(m.cluster.Log("audit"))
	if err != nil {
		return err
	}
	played := m.play(ctx)
	m.facts.Guard = watch.End()
	if ctx.Err() != nil {
		m.console.Say("stopped")
		var reported error
		if len(m.facts.Reacted) > 0 { // most of what a measurement of reactions is for
			reported = m.report(context.WithoutCancel(ctx), log)
		}
		return errors.Join(ctx.Err(), reported, m.close(ctx))
	}
	// What was measured is worth reading even if a later part failed.
	played = errors.Join(played, m.report(ctx, log))
	if keep {
		return errors.Join(played, m.workload.SetMode(ctx, "enforce"), m.player.Keep(ctx))
	}
	return errors.Join(played, m.close(ctx))
}

func (m *measurement) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
	defer cancel()
	m.console.Say("cleaning up: workload")
	return m.workload.Close(ctx)
}

// play plays every run, the reactions and the restore.
func (m *measurement) play(ctx context.Context) error {
	if err := m.workload.Open(ctx); err != nil {
		return err
	}
	for i, r := range m.script.Runs {
		if err := m.prepare(ctx, r); err != nil {
			return fmt.Errorf("run %s: %w", r.Name, err)
		}
		m.console.Begin(m.script, m.after(i))
		run, err := m.player.Play(ctx, r.Name, m.script.Plan(r.Name, m.full, m.seed))
		if err != nil {
			return fmt.Errorf("run %s: %w", r.Name, err)
		}
		m.facts.Runs = append(m.facts.Runs, run)
	}
	if n := m.script.React.Steps(m.full); n > 0 {
		if err := m.react(ctx, n); err != nil {
			return fmt.Errorf("reaction: %w", err)
		}
	}
	if m.script.Restore {
		return m.restore(ctx)
	}
	return nil
}

// prepare has the pods of a run Ready and old enough, with MBCAS in the mode of the run.
func (m *measurement) prepare(ctx context.Context, r script.Run) error {
	if !r.KeepPods {
		m.console.Say("\nrun %s: new pods", r.Name)
		if err := m.workload.SetMode(ctx, "off"); err != nil {
			return err
		}
		if err := m.workload.Replace(ctx, !r.NoLimits); err != nil {
			return err
		}
	}
	m.console.Say("run %s: MBCAS mode %s", r.Name, r.Mode)
	if err := m.workload.SetMode(ctx, r.Mode); err != nil {
		return err
	}
	for _, p := range m.workload.Recorder.Pods("") {
		if wait := time.Until(p.Created.Add(r.MinAge)); wait > 0 {
			m.console.Say("run %s: waiting %v until pod %s is %v old",
				r.Name, wait.Round(time.Second), p.Name, r.MinAge)
			poll.Sleep(ctx, wait)
		}
	}
	return ctx.Err()
}

// change is about how long it takes to replace the pods.
const change = 15 * time.Second

// after is about how long what follows the run takes.
func (m *measurement) after(i int) time.Duration {
	rest := time.Duration(m.reactions()) * reactionTakes(m.script)
	for _, r := range m.script.Runs[i+1:] {
		rest += m.script.Plan(r.Name, m.full, m.seed).Length()
		if !r.KeepPods {
			rest += change + r.MinAge
		}
	}
	return rest + 2*change // restore and clean up
}

// reactions is how many are measured in all.
func (m *measurement) reactions() int {
	if m.script.React == nil {
		return 0
	}
	return m.script.React.Steps(m.full) * len(m.script.React.Kinds)
}

// reactionTakes is about how long one reaction takes.
func reactionTakes(s *script.Script) time.Duration {
	if s.React == nil {
		return 0
	}
	return player.ReactionTakes
}

// react measures n reactions to steps of the load, of each kind.
func (m *measurement) react(ctx context.Context, n int) error {
	r, takes := m.script.React, reactionTakes(m.script)
	m.console.Say("\nreaction: %d steps of the load; about %v",
		m.reactions(), (time.Duration(m.reactions()) * takes).Round(time.Second))
	return m.player.React(ctx, r, n, func(x player.Reaction) {
		m.facts.Reacted = append(m.facts.Reacted, x)
		done := len(m.facts.Reacted)
		left := (time.Duration(m.reactions()-done) * takes).Round(10 * time.Second)
		if x.Missed != "" {
			m.console.Say("  step %2d, %s: %s (about %v left)", done, x.Kind, x.Missed, left)
			return
		}
		m.console.Say("  step %2d, %s: %4dm -> %4dm in the kernel after %.2f s (about %v left)",
			done, x.Kind, x.From, x.To, *x.Seconds, left)
	})
}

// restore gives every pod its declared limit back, and checks that. A miss is a figure, not an
// error.
func (m *measurement) restore(ctx context.Context) error {
	m.console.Say("\nrestore: mbcas.io/mode=restore on %v", m.script.Namespaces)
	if err := m.workload.SetMode(ctx, "restore"); err != nil {
		return err
	}
	_ = poll.Until(ctx, restorePatience, func() string {
		if wrong := m.workload.Recorder.NotRestored(); len(wrong) > 0 {
			return wrong[0]
		}
		return ""
	})
	m.facts.Restored, m.facts.NotRestored = true, m.workload.Recorder.NotRestored()
	for _, wrong := range m.facts.NotRestored {
		m.console.Say("  %s", wrong)
	}
	return ctx.Err()
}

// report compares with the targets and writes everything.
func (m *measurement) report(ctx context.Context, log audit.Log) error {
	steps := &stages.Log{Interval: roundInterval}
	err := log.Each(func(e audit.Event) {
		m.facts.Request(e)
		steps.Add(e)
	})
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	if len(m.facts.Reacted) > 0 {
		lines, err := m.cluster.Kubectl(ctx, "-n", cluster.System, "logs", "--tail=-1", "-l", controllerPods)
		if err != nil {
			m.console.Say("the controller's log cannot be read, so when it decided is not known: %v", err)
		}
		steps.AddLines(lines)
		m.facts.Divide(steps)
	}
	r := m.workload.Recorder
	m.facts.Changes = r.Changes(m.facts.Started, time.Now())
	m.facts.Failures = r.Failures()
	m.facts.Took = time.Since(m.facts.Started)
	s := m.facts.Summary(m.kubernetes, m.kernel.Cgroup, m.kernel.PSI)
	m.facts.Write(m.console, s)
	if err := m.facts.WriteFiles(m.folder(m.script), s); err != nil {
		return err
	}
	m.console.Say("\nwritten: %s", m.folder(m.script))
	if len(s.Faults) > 0 {
		return fmt.Errorf("%w: %d faults", errMissed, len(s.Faults))
	}
	if met, judged := s.Judged(); m.full && met < judged {
		return fmt.Errorf("%w: %d of %d targets", errMissed, judged-met, judged)
	}
	return nil
}
