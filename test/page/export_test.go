package page_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/whatif"
)

// plugin builds kubectl-mbcas and returns how it is run.
func plugin(t *testing.T) func(args ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kubectl-mbcas")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "./cmd/kubectl-mbcas")
	build.Dir = filepath.FromSlash("../..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build kubectl-mbcas: %v\n%s", err, out)
	}
	return func(args ...string) string {
		t.Helper()
		var said, complaints strings.Builder
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Stdout, cmd.Stderr = &said, &complaints
		if err := cmd.Run(); err != nil {
			t.Fatalf("kubectl-mbcas %s: %v\n%s", strings.Join(args, " "), err, &complaints)
		}
		return said.String()
	}
}

// exported is a recording as a file, and the page that the command exports of it.
func exported(t *testing.T, run func(args ...string) string, rec *record.Recording) (file, html string) {
	t.Helper()
	file, html = filepath.Join(t.TempDir(), "node-1.mbcas"), filepath.Join(t.TempDir(), "node-1.html")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := rec.Write(out); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	run("dashboard", file, "--export", html)
	return file, html
}

// TestExport: the exported file works alone, from a folder and without a network, and its market decides what
// the command what-if decides on the same recording.
func TestExport(t *testing.T) {
	t.Parallel()
	chromium(t)
	run := plugin(t)
	rec := recording(t)
	file, html := exported(t, run, rec)
	b := browse(t, "file://"+html, "light")
	b.wait("document.querySelector('#nodes tbody a')")
	b.visit("/node/node-1")
	want, summary := book(t, rec, rec.Minutes[len(rec.Minutes)-1].To)
	b.wait(fmt.Sprintf("document.querySelector('#cursor')?.innerText === %q", summary))
	b.wait(fmt.Sprintf("document.querySelectorAll('#book tbody tr').length === %d", len(want)))
	for _, row := range b.table("#book") {
		if fmt.Sprint(row) != fmt.Sprint(want[row[0]]) {
			t.Errorf("the book has\n%q, want\n%q", row, want[row[0]])
		}
	}
	if drawn := b.pixels("#cpu canvas"); drawn < 1000 {
		t.Errorf("%d pixels of the chart are drawn", drawn)
	}
	b.visit("/what-if/node-1")
	b.wait("document.querySelector('#comparison')")
	said := func(args ...string) (c whatif.Comparison) {
		text := run(append([]string{"what-if", file, "-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		if len(c.Pods) == 0 {
			t.Fatalf("%q changes no limit, so nothing is compared", args)
		}
		return c
	}
	b.slide("#reserve", 30)
	b.compares(said("--reserve=0.3"))
	b.slide("#reserve", 5)
	b.compares(said("--reserve=0.05"))
	b.change("priority", "shop/*", "1000000")
	b.compares(said("--reserve=0.05", "--priority=shop/*=1000000"))
	b.visit("/benefit/node-1")
	b.shows("#benefit", benefitRows(t, rec))
	loads := evaluate[[]string](b, "performance.getEntriesByType('resource').map((e) => e.name)")
	for _, address := range loads {
		if !strings.HasPrefix(address, "blob:") && !strings.HasPrefix(address, "data:") {
			t.Errorf("the page loads %s", address)
		}
	}
	b.calm()

	// Nothing of the page can go anywhere: its policy refuses requests also to a server that would answer.
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	refused := evaluate[bool](b, fmt.Sprintf(`(async () => {
		const image = new Promise((done) => {
			const i = new Image();
			i.onload = () => done(false);
			i.onerror = () => done(true);
			i.src = %[1]q;
		});
		return await fetch(%[1]q, {mode: "no-cors"}).then(() => false, () => true) && await image;
	})()`, server.URL), chromedp.EvalAwaitPromise)
	if !refused || asked.Load() > 0 {
		t.Errorf("requests were refused: %v, and %d arrived", refused, asked.Load())
	}
}

// compares waits for the comparison of what-if and checks all of it.
func (b *tab) compares(c whatif.Comparison) {
	b.Helper()
	seconds := func(ns float64) string { return fmt.Sprintf("%.1fs", ns/1e9) }
	want := [][]string{
		{"Supply", c.Before.Supply.String(), c.After.Supply.String()},
		{"Price", fmt.Sprintf("%.3f", c.Before.Price), fmt.Sprintf("%.3f", c.After.Price)},
		{"Time with a price", seconds(float64(c.Before.Scarce)), seconds(float64(c.After.Scarce))},
		{"Withheld of what pods demand", seconds(float64(c.Before.Withheld)), seconds(float64(c.After.Withheld))},
	}
	b.shows("#comparison", want)
	rows := [][]string{}
	for _, p := range c.Pods {
		after := seconds(float64(p.After.Withheld))
		if p.After.OptedOut {
			after = "–"
		}
		before := seconds(float64(p.Before.Withheld))
		rows = append(rows, []string{p.Pod, p.Before.Limit.String(), p.After.Limit.String(), before, after})
	}
	b.shows("#pods", rows)
}

// shows waits until the body of a table shows these rows.
func (b *tab) shows(selector string, rows [][]string) {
	b.Helper()
	want := jsonOf(b, rows)
	b.wait(fmt.Sprintf(`JSON.stringify([...document.querySelectorAll(%q)].map((r) =>
		[...r.cells].map((c) => c.innerText.trim()))) === JSON.stringify(%s)`, selector+" tbody tr", want))
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// change adds a change of pods to the view of what-if.
func (b *tab) change(flag, pods, value string) {
	b.Helper()
	b.js(fmt.Sprintf(`const f = document.querySelector("#change"), set = (name, to) => {
		f.elements[name].value = to; f.elements[name].dispatchEvent(new Event("change", {bubbles: true})); };
		set("kind", %q); set("pods", %q); if (f.elements.value) set("value", %q); f.requestSubmit()`,
		flag, pods, value))
}
