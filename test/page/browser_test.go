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
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/mbcas/mbcas/internal/page"
	"github.com/mbcas/mbcas/internal/page/figures"
	"github.com/mbcas/mbcas/internal/testing/must"
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
	*testing.T
	ctx context.Context
	// faults are what the browser's console says is wrong, such as a violation of the page's policy.
	faults chan string
}

// open serves a source and opens the page. It is light or dark.
func open(t *testing.T, src figures.Source, scheme string) *tab {
	t.Helper()
	chromium(t)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	address, served := make(chan string, 1), make(chan error, 1)
	go func() { served <- page.Serve(ctx, src, "/", func(url string) { address <- url }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return browse(t, <-address, scheme)
}

// browse opens an address in a browser.
func browse(t *testing.T, url, scheme string) *tab {
	t.Helper()
	browser := chromium(t)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser),
		chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(time.Minute))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocated, end := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(end)
	tabbed, closeTab := chromedp.NewContext(allocated)
	t.Cleanup(closeTab)
	b := &tab{T: t, ctx: tabbed, faults: make(chan string, 100)}
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
	console := chromedp.Console(tabbed)
	go func() {
		for m, err := range console {
			if err == nil {
				b.heard(m)
			}
		}
	}()
	b.do(chromedp.Navigate(url))
	return b
}

// heard keeps what the console says is wrong.
func (b *tab) heard(m chromedp.ConsoleMessage) {
	if m.Type != chromedp.ConsoleError && m.Type != chromedp.ConsoleException {
		return
	}
	select {
	case b.faults <- m.Text:
	default:
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.Fatalf("%v; the page says:\n%s", err, b.says())
	}
}

// evaluate is the value of an expression in JavaScript.
func evaluate[T any](b *tab, expression string, options ...chromedp.EvaluateOption) T {
	b.Helper()
	got, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, options...))
	if err != nil {
		b.Fatalf("%s: %v; the page says:\n%s", expression, err, b.says())
	}
	return got
}

// says is what the page shows, also after a failure.
func (b *tab) says() string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 5*time.Second)
	defer cancel()
	got, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return got
}

// visit goes to a view of the page.
func (b *tab) visit(view string) {
	b.Helper()
	b.js(fmt.Sprintf("location.hash = %q", "#"+view))
}

// wait waits until a condition in JavaScript holds.
func (b *tab) wait(condition string) {
	b.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+condition+")"))
		if ok {
			return
		}
		select {
		case <-b.ctx.Done():
			b.Fatalf("waited for %s: %v; the page says:\n%s", condition, err, b.says())
		case <-tick.C:
		}
	}
}

// js runs a statement.
func (b *tab) js(statement string) {
	b.Helper()
	evaluate[chromedp.Void](b, "(() => { "+statement+" })()")
}

// slide moves a slider.
func (b *tab) slide(selector string, value int) {
	b.Helper()
	b.js(fmt.Sprintf("const s = document.querySelector(%q); s.value = %d;", selector, value) +
		"s.dispatchEvent(new Event('input', {bubbles: true}))")
}

// pixels counts those of a canvas that are drawn.
func (b *tab) pixels(selector string) int {
	b.Helper()
	return evaluate[int](b, fmt.Sprintf(`(() => {
		const c = document.querySelector(%q);
		const all = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
		return all.filter((v, i) => i %% 4 === 3 && v > 0).length;
	})()`, selector))
}

// text is what an element shows.
func (b *tab) text(selector string) string {
	b.Helper()
	b.wait(fmt.Sprintf("document.querySelector(%q)", selector))
	return evaluate[string](b, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// table is what the cells of a table's body show.
func (b *tab) table(selector string) [][]string {
	b.Helper()
	return evaluate[[][]string](b, fmt.Sprintf(
		"[...document.querySelectorAll(%q)].map((r) => [...r.cells].map((c) => c.innerText.trim()))",
		selector+" tbody tr"))
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
	must.Succeed(b, err)
	evaluate[chromedp.Void](b, string(source)+";void(0)")
	text := evaluate[string](b, "axe.run().then((r) => JSON.stringify(r.violations))", chromedp.EvalAwaitPromise)
	must.Succeed(b, json.Unmarshal([]byte(text), &broken))
	return broken
}
