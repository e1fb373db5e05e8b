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
	"github.com/mbcas/mbcas/internal/testing/must"
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
	must.Succeed(t, err)
	must.Succeed(t, rec.Write(out))
	must.Succeed(t, out.Close())
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
	b.showsRound(rec, rec.Minutes[len(rec.Minutes)-1].To)
	if drawn := b.pixels("#cpu canvas"); drawn < 1000 {
		t.Errorf("%d pixels of the chart are drawn", drawn)
	}
	b.visit("/what-if/node-1")
	for _, percent := range []int{30, 5} {
		b.wait("document.querySelector('#comparison')")
		var c whatif.Comparison
		said := run("what-if", file, "--reserve", fmt.Sprint(float64(percent)/100), "-o", "json")
		must.Succeed(t, json.Unmarshal([]byte(said), &c))
		b.slide("#reserve", percent)
		b.compares(c)
	}
	if len(b.table("#pods")) == 0 {
		t.Error("no pod's limit differs: the comparison shows nothing")
	}
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
	b.wait(fmt.Sprintf("document.querySelector('#comparison tbody tr').cells[2].innerText === %q", c.After.Supply))
	market := b.table("#comparison")
	seconds := func(ns float64) string { return fmt.Sprintf("%.1fs", ns/1e9) }
	want := [][]string{
		{"Supply", c.Before.Supply.String(), c.After.Supply.String()},
		{"Price", fmt.Sprintf("%.3f", c.Before.Price), fmt.Sprintf("%.3f", c.After.Price)},
		{"Time with a price", seconds(float64(c.Before.Scarce)), seconds(float64(c.After.Scarce))},
		{"Withheld of what pods demand", seconds(float64(c.Before.Withheld)), seconds(float64(c.After.Withheld))},
	}
	if fmt.Sprint(market) != fmt.Sprint(want) {
		b.Errorf("the market is\n%q, want\n%q", market, want)
	}
	var rows [][]string
	for _, p := range c.Pods {
		rows = append(rows, []string{p.Pod, p.Before.Limit.String(), p.After.Limit.String()})
	}
	if got := b.table("#pods"); fmt.Sprint(got) != fmt.Sprint(rows) {
		b.Errorf("the pods are\n%q, want\n%q", got, rows)
	}
}
