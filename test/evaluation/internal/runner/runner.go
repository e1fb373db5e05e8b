//go:build linux

// Package runner plays the cells of the evaluation on the local cluster, one after another, and writes a
// result for each. A cell that has a result with the same key is not played again.
//
// Promises:
//   - What was done is not done again, and what failed is: TestResumes.
//   - An attempt that failed stays in the result of the next one, with its reason: TestAttemptsAreKept. So does one
//     that was interrupted: TestInterruptionIsAnAttempt.
//   - A cell that fails or does not end is a result with its reason, and the next one follows: TestFailureIsAResult.
//   - When cells fail one after another the rest is not tried: TestGivesUp.
//   - No cell begins that may end after the time for it: TestStopsInTime.
package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
)

// Runner plays a plan.
type Runner struct {
	Plan    plan.Plan
	Results results.Folder
	// Calibration is part of the keys: other rates are other cells.
	Calibration results.Calibration
	// Setup, too: another version of MBCAS, or another machine.
	Setup results.Setup
	// Settings are all settings of a cell's policy: they are part of the keys, and kept beside the results.
	Settings func(plan.Cell) string
	// Play plays one cell and fills in its result.
	Play func(ctx context.Context, c plan.Cell, out *results.Cell) error
	// Say prints a line of progress.
	Say func(format string, args ...any)
}

// tooMany cells that fail one after another say that something is broken that the next cell needs, too.
const tooMany = 4

// Left is what Run has not done.
type Left struct {
	Cells int
	Takes time.Duration
}

// Run plays every cell that has no result yet, in the order of the plan. No cell begins that would end after until;
// zero: no limit. It returns what is left; cells that failed are not among it.
func (r Runner) Run(ctx context.Context, until time.Time) (left Left, err error) {
	cells, err := r.undone()
	if err != nil {
		return left, err
	}
	for _, c := range cells {
		left.Cells, left.Takes = left.Cells+1, left.Takes+c.Takes()
	}
	failures := 0
	for i, c := range cells {
		if ctx.Err() != nil {
			return left, ctx.Err()
		}
		if failures == tooMany {
			return left, fmt.Errorf("%d cells in a row failed, so the rest was not tried; see above", failures)
		}
		if !until.IsZero() && time.Now().Add(c.Takes()).After(until) {
			return left, nil
		}
		r.Say("cell %d of %d, %s (about %v; %v left)", i+1, len(cells), c.Name(),
			c.Takes().Round(time.Second), left.Takes.Round(time.Minute))
		out := r.cell(ctx, c)
		if err := r.keep(ctx, c, out); err != nil {
			return left, err
		}
		r.tell(out)
		left.Cells, left.Takes = left.Cells-1, left.Takes-c.Takes()
		if failures++; out.Error == "" {
			failures = 0
		}
	}
	return left, nil
}

// keep writes the result of a cell, with the attempts before it that failed. One that was interrupted failed, too, and
// its error is that of ctx; figures of another setup stay until there are new ones.
func (r Runner) keep(ctx context.Context, c plan.Cell, out results.Cell) error {
	was, ok, err := r.Results.Read(c.Name())
	if err != nil {
		return err
	}
	if out.Error != "" && ctx.Err() != nil {
		out.Error, err = results.Interrupted, ctx.Err()
	}
	switch {
	case ok && was.Key == out.Key:
		out.Failed = was.Attempts()
	case ok && err != nil:
		return err
	}
	return errors.Join(err, r.Results.Write(c.Name(), out))
}

// undone are the cells without a result, or with one that failed or belongs to another plan.
func (r Runner) undone() (cells []plan.Cell, err error) {
	for _, c := range r.Plan.Cells() {
		was, ok, err := r.Results.Read(c.Name())
		if err != nil {
			return nil, err
		}
		if !ok || was.Error != "" || was.Key != r.key(c) {
			cells = append(cells, c)
		}
	}
	return cells, nil
}

func (r Runner) key(c plan.Cell) string {
	setup := r.Setup
	setup.RequestMS = r.Calibration.RequestMS
	return Key(r.Plan, c, setup, results.Digest(r.Settings(c)))
}

// Key is the key of a cell's result, with the calibration in the setup and the digest of the settings.
func Key(p plan.Plan, c plan.Cell, setup results.Setup, settings string) string {
	return p.Key(c, []any{setup.Identity(), setup.RequestMS, settings})
}

// cell plays a cell for at most twice the time that it should take and a minute.
func (r Runner) cell(ctx context.Context, c plan.Cell) results.Cell {
	limit := 2*c.Takes() + time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	started := time.Now()
	out := results.Cell{
		Schema: results.Schema, Key: r.key(c), Situation: c.Situation.Name, Policy: c.Policy.Name, Repeat: c.Repeat,
		Settings: results.Digest(r.Settings(c)), Started: started.UTC(),
	}
	err := r.Results.WriteSettings(r.Settings(c))
	if err == nil {
		err = r.Play(ctx, c, &out)
	}
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("it did not end in %v", limit)
	}
	if err != nil {
		out.Error = err.Error()
		out.Services, out.Batches, out.Pods, out.Series = nil, nil, nil, nil // figures of half a cell are none
	}
	out.TookS = time.Since(started).Seconds()
	return out
}

// tell prints the figures of a cell.
func (r Runner) tell(out results.Cell) {
	if out.Error != "" {
		r.Say("  failed: %s", out.Error)
		return
	}
	for _, s := range out.Services {
		r.Say("  %-10s p50 %8.1f ms  p99 %8.1f ms  %d of %d unserved  throttled %.0f ms/s  usage %.0fm",
			s.Name, s.P50, s.P99, s.Unserved, s.Requests, s.ThrottledS, s.UsageM)
	}
	for _, b := range out.Batches {
		r.Say("  %-10s %.2f units/s  usage %.0fm", b.Name, b.PerS, b.UsageM)
	}
}
