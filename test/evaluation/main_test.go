//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/evaluation/internal/report"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
	"github.com/mbcas/mbcas/test/evaluation/internal/runner"
)

func TestParse(t *testing.T) {
	command, s, err := parse([]string{"--quick", "--only", "step", "--stop-after", "20m", "run"}, io.Discard)
	if err != nil || command != "run" || !s.plan.Quick || len(s.plan.Situations) != 1 || s.stopAfter != 20*time.Minute {
		t.Errorf("%s, %+v, %v", command, s, err)
	}
	_, more, err := parse([]string{"--more", "plan"}, io.Discard)
	_, usual, err2 := parse([]string{"plan"}, io.Discard)
	if len(more.plan.Cells()) <= len(usual.plan.Cells()) || err != nil || err2 != nil {
		t.Errorf("--more: %d cells, without %d; %v, %v", len(more.plan.Cells()), len(usual.plan.Cells()), err, err2)
	}
	for _, args := range [][]string{{}, {"measure"}, {"--fast", "run"}, {"--only", "duel", "run"}} {
		if _, _, err := parse(args, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%v: %v, want a usage error", args, err)
		}
	}
}

// TestReport: pages and pictures are written from the results alone, and the pictures are where the pages look.
func TestReport(t *testing.T) {
	_, s, err := parse([]string{"--quick", "--out", t.TempDir(), "report"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	c := s.plan.Cells()[0]
	out := results.Cell{Schema: results.Schema, Situation: c.Situation.Name, Policy: c.Policy.Name, Repeat: c.Repeat}
	for _, w := range c.Situation.Workloads {
		if w.Batch() {
			out.Batches = append(out.Batches, results.Batch{Name: w.Name, PerS: 3})
		} else {
			out.Services = append(out.Services, results.Service{Name: w.Name, P99: 12.25, Requests: 9})
		}
	}
	if err := s.folder().Write(c.Name(), out); err != nil {
		t.Fatal(err)
	}
	if err := writeReport(s, io.Discard); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(s.out, "evaluation.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, picture, _ := strings.Cut(string(page), "](images/")
	picture, _, _ = strings.Cut(picture, ")")
	_, err = os.Stat(filepath.Join(s.out, "images", picture))
	if err != nil || !strings.Contains(string(page), "12.2") {
		t.Errorf("picture %q: %v; page:\n%s", picture, err, page)
	}
	raw, err := os.ReadFile(filepath.Join(s.out, "evaluation.html"))
	if err != nil || !strings.Contains(string(raw), `"p99_ms":12.25`) {
		t.Errorf("the raw data are not in the HTML page: %v", err)
	}
	var document report.Document
	text, err := os.ReadFile(filepath.Join(s.out, "evaluation.json"))
	if err := errors.Join(err, json.Unmarshal(text, &document)); err != nil {
		t.Fatal(err)
	}
	if len(document.Cells) != 1 || document.Cells[0].Services[0].P99 != 12.25 ||
		document.Planned != len(s.plan.Cells()) {
		t.Errorf("evaluation.json has %d cells of %d: %+v", len(document.Cells), document.Planned, document.Cells)
	}
}

// TestOutline: beside a page without figures there are no results, also none of an older page.
func TestOutline(t *testing.T) {
	t.Chdir(t.TempDir())
	const data = "docs/evaluation.json"
	if err := errors.Join(os.Mkdir("docs", 0o755), os.WriteFile(data, []byte("{}"), 0o644)); err != nil {
		t.Fatal(err)
	}
	_, s, err := parse([]string{"outline"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := outline(s, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile("docs/evaluation.md")
	if err != nil || !strings.Contains(string(page), "Nothing has been measured") {
		t.Errorf("%v; page:\n%s", err, page)
	}
	if _, err := os.Stat(data); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the results of an older page: %v", err)
	}
}

// put writes a result of a cell, with the key that the plan gives it.
func put(t *testing.T, s settings, c plan.Cell, x results.Cell) {
	t.Helper()
	x.Schema, x.Key = results.Schema, runner.Key(s.plan, c, x.Setup, x.Settings)
	if err := s.folder().Write(c.Name(), x); err != nil {
		t.Fatal(err)
	}
}

// publishing is the settings of a publication of a folder.
func publishing(t *testing.T, out string, flags ...string) settings {
	t.Helper()
	_, s, err := parse(append(flags, "--out", out, "publish"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPublishWantsAll: a part of the evaluation is not published; a cell that has a reason is no gap.
func TestPublishWantsAll(t *testing.T) {
	out := t.TempDir()
	for _, flags := range [][]string{{"--quick"}, {"--only", "step"}, {}} {
		if err := publishing(t, out, flags...).publishable(); !errors.Is(err, errPartial) {
			t.Errorf("%v: %v, want a refusal", flags, err)
		}
	}
	s := publishing(t, out)
	cells := s.plan.Cells()
	for i, c := range cells {
		if i == len(cells)-1 {
			if err := s.publishable(); !errors.Is(err, errPartial) {
				t.Errorf("without the last cell: %v, want a refusal", err)
			}
		}
		put(t, s, c, results.Cell{Error: "no pod is Ready"})
	}
	if err := s.publishable(); err != nil {
		t.Errorf("every cell has a figure or a reason: %v", err)
	}
	put(t, s, cells[0], results.Cell{Error: results.Interrupted})
	if err := s.publishable(); !errors.Is(err, errPartial) {
		t.Errorf("a cell was interrupted: %v, want a refusal", err)
	}
}

// TestPublishWantsThePlan: cells that were played by other loads, or without the add-ons of the other situations, are
// not those of the page.
func TestPublishWantsThePlan(t *testing.T) {
	s := publishing(t, t.TempDir())
	cells := s.plan.Cells()
	for _, c := range cells {
		put(t, s, c, results.Cell{})
	}
	if err := s.publishable(); err != nil {
		t.Errorf("all of the plan: %v", err)
	}
	alone := publishing(t, s.out, "--only", "step")
	put(t, alone, alone.plan.Cells()[0], results.Cell{})
	if err := s.publishable(); !errors.Is(err, errPartial) || !strings.Contains(err.Error(), "another plan") {
		t.Errorf("with a cell of ONLY: %v, want a refusal", err)
	}
	put(t, s, alone.plan.Cells()[0], results.Cell{})
	other := cells[0]
	other.Situation.Length++
	put(t, s, other, results.Cell{})
	if err := s.publishable(); !errors.Is(err, errPartial) || !strings.Contains(err.Error(), cells[0].Name()) {
		t.Errorf("with a cell of another situation: %v, want a refusal that names it", err)
	}
}

// TestPublishHidesNone: what --more has played is on the page, or there is none. Cells of another setup are no figures
// of this one.
func TestPublishHidesNone(t *testing.T) {
	out := t.TempDir()
	usual, more := publishing(t, out), publishing(t, out, "--more")
	for _, c := range more.plan.Cells() {
		put(t, more, c, results.Cell{})
	}
	if err := usual.publishable(); !errors.Is(err, errPartial) || !strings.Contains(err.Error(), "--more") {
		t.Errorf("without cells that were played: %v, want a refusal that names --more", err)
	}
	if err := more.publishable(); err != nil {
		t.Errorf("with all that were played: %v", err)
	}
	for _, c := range usual.plan.Cells() {
		put(t, usual, c, results.Cell{Setup: results.Setup{MBCAS: "v2"}})
	}
	if err := usual.publishable(); err != nil {
		t.Errorf("beside cells of another version: %v", err)
	}
}
