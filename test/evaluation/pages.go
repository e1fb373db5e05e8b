//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/evaluation/internal/report"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
	"github.com/mbcas/mbcas/test/evaluation/internal/runner"
	"github.com/mbcas/mbcas/test/evaluation/internal/stage"
)

// read reads the results of the plan's cells.
func (s settings) read() ([]results.Cell, error) {
	var names []string
	for _, c := range s.plan.Cells() {
		names = append(names, c.Name())
	}
	return s.folder().All(names)
}

// writeReport writes evaluation.md with its pictures, evaluation.html and evaluation.json, beside the results.
func writeReport(s settings, out io.Writer) error {
	path, err := s.write(s.out, report.Settings{Images: "images/"}, filepath.Join(s.out, "images"), true)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "written: %s, and evaluation.html and evaluation.json beside it\n", path)
	return err
}

// errPartial marks results that are not those of a whole evaluation.
var errPartial = errors.New("only a whole evaluation is published")

// publishable is an error unless every cell of the whole evaluation, as the plan is now, has figures, or the reason why
// it has none, and no other cell was played.
func (s settings) publishable() error {
	if s.plan.Quick || s.plan.OnlyOf != "" {
		return fmt.Errorf("%w: leave out --quick and --only", errPartial)
	}
	var missing, stale []string
	var cells []results.Cell
	for _, c := range s.plan.Cells() {
		x, ok, err := s.folder().Read(c.Name())
		if err != nil {
			return err
		}
		if !ok || x.Error == results.Interrupted {
			missing = append(missing, c.Name())
			continue
		}
		if x.Key != runner.Key(s.plan, c, x.Setup, x.Settings) {
			stale = append(stale, c.Name())
		}
		cells = append(cells, x)
	}
	if _, others := results.OfOneSetup(cells); len(others) > 0 {
		return fmt.Errorf("%w: %s has cells of %d other setups; play them again with: make evaluation",
			errPartial, s.out, len(others))
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s lacks %d cells, such as %s; play them with: make evaluation",
			errPartial, s.out, len(missing), missing[0])
	}
	if len(stale) > 0 {
		return fmt.Errorf("%w: %s has %d cells of another plan, or of ONLY, such as %s; play them again with: "+
			"make evaluation", errPartial, s.out, len(stale), stale[0])
	}
	return s.hidesNone(cells[0].Setup.Identity())
}

// hidesNone is an error where cells of the same setup were played that the plan leaves out: the page would say that
// they were not played.
func (s settings) hidesNone(setup string) error {
	planned, hidden := map[string]bool{}, []string(nil)
	for _, c := range s.plan.Cells() {
		planned[c.Name()] = true
	}
	for _, c := range plan.Default(false, true).Cells() {
		if planned[c.Name()] {
			continue
		}
		x, ok, err := s.folder().Read(c.Name())
		if err != nil {
			return err
		}
		if ok && x.Setup.Identity() == setup {
			hidden = append(hidden, c.Name())
		}
	}
	if len(hidden) > 0 {
		return fmt.Errorf("%w: %s has %d cells that the page would leave out, such as %s; publish them, too, "+
			"with --more", errPartial, s.out, len(hidden), hidden[0])
	}
	return nil
}

// publish writes docs/evaluation.md with its pictures.
func publish(s settings, out io.Writer) error {
	if err := s.publishable(); err != nil {
		return err
	}
	return writeDocs(s, out)
}

// outline writes docs/evaluation.md without a figure: what is played, and how.
func outline(s settings, out io.Writer) error {
	empty, err := os.MkdirTemp("", "mbcas-evaluate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(empty)
	s.out = empty
	return writeDocs(s, out)
}

func writeDocs(s settings, out io.Writer) error {
	images := report.Settings{Root: "../", Images: "images/evaluation-"}
	path, err := s.write("docs", images, "docs/images/evaluation-", false)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "written: %s\n", path)
	return err
}

// write writes the pages to a folder and pictures to paths that begin with images.
func (s settings) write(folder string, x report.Settings, images string, html bool) (path string, err error) {
	cells, err := s.read()
	if err != nil {
		return "", err
	}
	x.Timeout = stage.Timeout
	page := report.New(s.plan, cells, x)
	if html {
		images += string(filepath.Separator)
	}
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.MkdirAll(filepath.Dir(images+"x"), 0o755)); err != nil {
		return "", err
	}
	for _, section := range page.Sections {
		if svg := page.Picture(section); svg != "" {
			if err := os.WriteFile(images+section.Name+".svg", []byte(svg), 0o644); err != nil {
				return "", err
			}
		}
	}
	path = filepath.Join(folder, "evaluation.md")
	err = writeTo(path, page.Markdown)
	if html {
		err = errors.Join(err, writeTo(filepath.Join(folder, "evaluation.html"), page.HTML))
	}
	data := filepath.Join(folder, "evaluation.json")
	if !html && page.Measured == 0 { // an outline has no results, also none of an older page
		return path, errors.Join(err, ignoreNotExist(os.Remove(data)))
	}
	if !html { // seconds would be most of the file, and no figure of the page is made of them
		for i := range page.Raw {
			page.Raw[i].Series = nil
		}
	}
	err = errors.Join(err, writeTo(data, page.JSON))
	return path, err
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func writeTo(path string, write func(io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}
