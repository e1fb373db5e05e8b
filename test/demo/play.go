//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/mbcas/mbcas/test/demo/internal/picture"
	"github.com/mbcas/mbcas/test/demo/internal/record"
	"github.com/mbcas/mbcas/test/demo/internal/script"
	"github.com/mbcas/mbcas/test/demo/internal/shop"
	"github.com/mbcas/mbcas/test/demo/internal/show"
	"github.com/mbcas/mbcas/test/demo/internal/summary"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/chart"
	"github.com/mbcas/mbcas/test/internal/machine"
)

// enter is about how long a change of scene takes.
const enter = 20 * time.Second

// play plays the parts that were asked for.
func (d *demo) play(ctx context.Context) error {
	d.board.Say("3. workload")
	if err := d.stage.Open(ctx); err != nil {
		return err
	}
	d.facts.Busy = machine.Busy(ctx, 3*time.Second)
	if d.facts.Busy > summary.TooBusy {
		d.board.Say("   note: %dm of CPU are in use by something else; latencies will show that, too", d.facts.Busy)
	}
	for _, r := range []struct {
		name, mode string
		limits     bool
	}{
		{summary.Static, "off", true},
		{summary.NoLimit, "off", false},
		{summary.MBCAS, "enforce", true},
	} {
		if !d.parts[r.name] && (r.name != summary.MBCAS || !d.needsMBCAS()) {
			continue
		}
		if err := d.scene(ctx, r.name, r.mode, r.limits); err != nil {
			return err
		}
		if !d.parts[r.name] {
			continue
		}
		if err := d.record(ctx, r.name, script.New(d.quick)); err != nil {
			return err
		}
	}
	if d.parts["steady"] {
		if err := d.steady(ctx); err != nil {
			return err
		}
	}
	if d.parts["reaction"] {
		if err := d.reaction(ctx); err != nil {
			return err
		}
	}
	if d.parts["restore"] {
		return d.restore(ctx)
	}
	return nil
}

// scene puts a fresh workload on the stage.
func (d *demo) scene(ctx context.Context, name, mode string, limits bool) error {
	d.board.Say("\nrun %s: new pods, MBCAS mode %s", name, mode)
	if err := d.stage.SetMode(ctx, "off"); err != nil {
		return err
	}
	if err := d.stage.Enter(ctx, limits); err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	return d.stage.SetMode(ctx, mode)
}

// record plays a script and keeps what it leaves.
func (d *demo) record(ctx context.Context, name string, play script.Script) error {
	d.board.Rest(d.after(name))
	r, err := d.show.Play(ctx, name, play)
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	d.facts.Runs[name] = r
	d.runs = append(d.runs, r)
	return nil
}

// after is about how long the parts after one take.
func (d *demo) after(name string) (rest time.Duration) {
	begun := false
	for _, p := range parts {
		if begun && d.parts[p] {
			rest += d.length(p)
		}
		begun = begun || p == name
	}
	return rest
}

func (d *demo) length(part string) time.Duration {
	switch part {
	case "steady":
		return d.steadyScript().Length()
	case "reaction":
		return time.Duration(d.steps) * show.ReactionStepTakes
	case "restore":
		return enter
	}
	return script.New(d.quick).Length() + enter
}

func (d *demo) steadyScript() script.Script {
	if d.quick {
		return script.Steady(25*time.Second, 20*time.Second)
	}
	return script.Steady(45*time.Second, 5*time.Minute)
}

// steady counts the changes of limits under contention that does not change.
func (d *demo) steady(ctx context.Context) error {
	play := d.steadyScript()
	if err := d.record(ctx, summary.Steady, play); err != nil {
		return err
	}
	end := time.Now()
	d.facts.SteadyWindow = play[1].For
	d.facts.Steady = d.stage.Ledger.Changes(end.Add(-play[1].For), end)
	return nil
}

// reaction measures how long the kernel's limit takes to follow a step of load.
func (d *demo) reaction(ctx context.Context) error {
	d.board.Say("\nreaction: %d times, a hog holds %s down and ends at the instant at which its load steps up; about %v",
		d.steps, script.Search, (time.Duration(d.steps) * show.ReactionStepTakes).Round(time.Second))
	steps, err := d.show.Reactions(ctx, d.steps, func(i int, s show.Step) {
		left := (time.Duration(d.steps-i-1) * show.ReactionStepTakes).Round(10 * time.Second)
		if s.Missed != "" {
			d.board.Say("  step %2d: %s (about %v left)", i+1, s.Missed, left)
			return
		}
		d.board.Say("  step %2d: %4dm -> %4dm in the kernel after %.2f s (about %v left)", i+1, s.From, s.To, s.Delay.Seconds(), left)
	})
	d.facts.Steps = steps
	if err != nil {
		return fmt.Errorf("reaction: %w", err)
	}
	return nil
}

// restore gives every pod its declared limit back.
func (d *demo) restore(ctx context.Context) error {
	d.board.Say("\nrestore: kubectl label namespace %s mbcas.io/mode=restore", shop.Namespaces[0])
	if err := d.stage.SetMode(ctx, "restore"); err != nil {
		return err
	}
	err := d.stage.Restored(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	astray := d.stage.Astray()
	if err == nil {
		astray, err = d.show.KernelAstray(ctx, 10*time.Second)
	}
	d.facts.Restored = new(err == nil && len(astray) == 0)
	for _, a := range astray {
		d.board.Say("  %s", a)
	}
	return nil // a miss is a figure, not an error
}

// report judges and writes everything.
func (d *demo) report() error {
	var err error
	if d.facts.Audit, err = audit.Since(d.cluster.Log("audit"), d.audited, shop.Namespaces); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	d.facts.Changes = d.stage.Ledger.Changes(d.facts.Started, time.Now())
	d.facts.Faults, d.facts.Failures = d.stage.Ledger.Faults(), d.stage.Ledger.Failures()
	d.facts.Took = time.Since(d.facts.Started)
	s := summary.Judge(d.facts)
	s.Write(d.out)
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.settings.out, "summary.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(d.settings.out, "samples.csv"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := record.WriteCSV(f, d.runs); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	d.board.Say("\nwritten: %s", d.settings.out)
	return draw(d.settings.out, d.runs)
}

// draw makes the pictures of the runs that played the same script.
func draw(folder string, runs []record.Run) error {
	var lanes []picture.Lane
	for _, r := range runs {
		switch r.Name {
		case summary.Static:
			lanes = append(lanes, picture.Lane{Title: "CPU limits as declared", Color: chart.Grey, Run: r})
		case summary.NoLimit:
			lanes = append(lanes, picture.Lane{Title: "No CPU limits", Color: chart.Orange, Run: r})
		case summary.MBCAS:
			lanes = append(lanes, picture.Lane{Title: "MBCAS", Color: chart.Green, Run: r})
		}
	}
	if len(lanes) == 0 {
		return nil
	}
	return picture.Write(filepath.Join(folder, "demo"), lanes)
}

// redraw draws the samples of an earlier show.
func redraw(s settings) error {
	f, err := os.Open(filepath.Join(s.out, "samples.csv"))
	if err != nil {
		return fmt.Errorf("%w; play the demo first", err)
	}
	defer f.Close()
	play := script.New(s.quick)
	runs, err := record.ReadCSV(f, map[string]script.Script{summary.Static: play, summary.NoLimit: play, summary.MBCAS: play})
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return draw(s.out, runs)
}
