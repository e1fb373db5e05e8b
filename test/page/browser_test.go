// Package page_test looks at the page of kubectl mbcas dashboard as its readers do: in a browser, with recordings that
// are the same each time. It needs Chromium and what `make page` fetches.
package page_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/mbcas/mbcas/internal/page"
)

const (
	axePath  = "../../internal/page/node_modules/axe-core/axe.min.js"
	deadline = 90 * time.Second // of a test, on a busy machine
)

// chromium is the browser; where there is none, the test is skipped.
func chromium(t *testing.T) string {
	t.Helper()
	if !page.Built() {
		t.Skip("internal/page/dist is empty: run make page (it needs npm)")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium (Debian package chromium)")
	return ""
}

// tab is an open page.
type tab struct {
	context.Context
	*testing.T
	base string // address without the fragment
	// faults are what the browser's console says is wrong, such as a violation of the page's policy.
	faults chan string
}

// open serves a source and opens the page, at a view such as "/node/node-1". It is light or dark.
func open(t *testing.T, src page.Source, scheme string) *tab {
	t.Helper()
	browser := chromium(t)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	address, served := make(chan string, 1), make(chan error, 1)
	go func() { served <- page.Serve(ctx, src, func(url string) { address <- url }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser), chromedp.WindowSize(1280, 900),
		chromedp.WSURLReadTimeout(time.Minute))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocated, end := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(end)
	tabbed, closeTab := chromedp.NewContext(allocated)
	t.Cleanup(closeTab)
	url := <-address
	base, _, _ := strings.Cut(url, "#")
	b := &tab{Context: tabbed, T: t, base: base, faults: make(chan string, 100)}
	chromedp.ListenTarget(tabbed, b.listen)
	media := emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}})
	b.run(media, chromedp.Navigate(url))
	return b
}

func (b *tab) listen(event any) {
	var text string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError {
			text = fmt.Sprint(e.Args)
		}
	}
	if text != "" {
		select {
		case b.faults <- text:
		default:
		}
	}
}

func (b *tab) run(actions ...chromedp.Action) {
	b.Helper()
	if err := chromedp.Run(b, actions...); err != nil {
		b.Fatalf("%v; the page says:\n%s", err, b.try("document.body.innerText"))
	}
}

// try evaluates an expression, also after a failure.
func (b *tab) try(expression string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context), 5*time.Second)
	defer cancel()
	var got any
	if err := chromedp.Run(ctx, chromedp.Evaluate(expression, &got)); err != nil {
		return err.Error()
	}
	return fmt.Sprint(got)
}

// visit goes to a view of the page.
func (b *tab) visit(view string) {
	b.Helper()
	b.run(chromedp.Evaluate(fmt.Sprintf("location.hash = %q", "#"+view), nil))
}

// wait waits until a condition in JavaScript holds.
func (b *tab) wait(condition string) {
	b.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var ok bool
		err := chromedp.Run(b, chromedp.Evaluate("Boolean("+condition+")", &ok))
		if ok {
			return
		}
		select {
		case <-b.Done():
			b.Fatalf("waited for %s: %v, %v; the page says:\n%s", condition, err, context.Cause(b), b.try("document.body.innerText"))
		case <-tick.C:
		}
	}
}

// text is what an element shows.
func (b *tab) text(selector string) (text string) {
	b.Helper()
	b.wait(fmt.Sprintf("document.querySelector(%q)", selector))
	b.run(chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).innerText", selector), &text))
	return text
}

// table is what the cells of a table's body show.
func (b *tab) table(selector string) (rows [][]string) {
	b.Helper()
	b.run(chromedp.Evaluate(fmt.Sprintf("[...document.querySelectorAll(%q)].map((r) => [...r.cells].map((c) => c.innerText.trim()))",
		selector+" tbody tr"), &rows))
	return rows
}

// calm fails if the browser's console has said that something is wrong.
func (b *tab) calm() {
	b.Helper()
	select {
	case text := <-b.faults:
		b.Errorf("the console says %s", text)
	default:
	}
}

// violation is a rule of axe that the page breaks.
type violation struct {
	ID, Help string
	Nodes    []struct{ HTML, FailureSummary string }
}

// axe returns the rules of accessibility that the page breaks.
func (b *tab) axe() (broken []violation) {
	b.Helper()
	source, err := os.ReadFile(filepath.FromSlash(axePath))
	if errors.Is(err, os.ErrNotExist) {
		b.Skip("no axe-core: run make page (it needs npm)")
	}
	if err != nil {
		b.Fatal(err)
	}
	var text string
	b.run(chromedp.Evaluate(string(source)+";0", nil),
		chromedp.Evaluate("axe.run().then((r) => JSON.stringify(r.violations))", &text,
			func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	if err := json.Unmarshal([]byte(text), &broken); err != nil {
		b.Fatal(err)
	}
	return broken
}
