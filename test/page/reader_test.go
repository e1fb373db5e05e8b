package page_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/mbcas/mbcas/internal/page"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

// TestSkipLink: the link to the content moves the focus and leaves the view as it is, also for a reload.
func TestSkipLink(t *testing.T) {
	t.Parallel()
	b := open(t, fileOf(t, recording(t)), "light")
	b.wait("document.querySelector('#nodes')")
	b.visit("/node/node-1")
	b.wait("document.querySelector('#book')")
	b.do(chromedp.Reload())
	b.wait("document.querySelector('#book')")
	b.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.wait("document.activeElement.id === 'main'")
	b.do(chromedp.Reload())
	b.wait("document.querySelector('#book') && location.hash === '#/node/node-1'")
	b.calm()
}

// TestUnreadableAddress: an address with a % that codes no character says so, and the cluster is a step away.
func TestUnreadableAddress(t *testing.T) {
	t.Parallel()
	b := open(t, fileOf(t, recording(t)), "light")
	for _, view := range []string{"/node/node-1%", "/pod/node-1/shop%2", "/%FF"} {
		b.visit(view)
		b.wait("document.querySelector('#unreadable')?.innerText.includes('does not begin the code of a character')")
		if text := b.text("#unreadable"); !strings.Contains(text, view) {
			t.Errorf("%s: the page says %q", view, text)
		}
	}
	b.do(chromedp.Click(chromedp.CSS("#unreadable a")))
	b.wait("document.querySelector('#nodes')")
	b.calm()
}

// TestServerHasEnded: a page whose command has ended says so, and what to do.
func TestServerHasEnded(t *testing.T) {
	t.Parallel()
	chromium(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	address, served := make(chan string, 1), make(chan error, 1)
	go func() { served <- page.Serve(ctx, fleet{}, "/", func(url string) { address <- url }) }()
	b := browse(t, <-address, "light")
	b.wait("document.querySelector('#nodes')")
	end()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	b.visit("/node/node-0007")
	b.wait("document.querySelector('#status').innerText.includes('Start kubectl mbcas dashboard again')")
}

// TestIncidentWithoutRounds: a time that is not recorded says so, and is asked for once.
func TestIncidentWithoutRounds(t *testing.T) {
	t.Parallel()
	rec := recording(t)
	b := open(t, fileOf(t, rec), "light")
	b.visit(fmt.Sprintf("/incident/node-1/%d", rec.Minutes[0].From.Add(-time.Hour).UnixMilli()))
	want := rec.Minutes[0].From.Add(-time.Hour).UTC().Format("2006-01-02 15:04:05 UTC")
	if text := b.text("#empty"); !strings.Contains(text, "no round around "+want) {
		t.Errorf("the page says %q", text)
	}
	// A turn is over once its timer is set; of the third one the second has asked nothing.
	asked := module[int](b, "api", `
		const requests = () => performance.getEntriesByType("resource");
		const asked = () => requests().filter((e) => e.name.includes("/api/node?")).length;
		const { setTimeout } = window;
		await new Promise((third) => {
			let turns = 0;
			window.setTimeout = (f, ms) => { if (++turns === 3) third(); return setTimeout(f, ms === 1000 ? 1 : ms); };
		});
		window.setTimeout = setTimeout;
		return asked();`)
	if asked != 1 {
		t.Errorf("the server was asked %d times", asked)
	}
	b.calm()
}

// liveOf is a node whose recording goes on with each call of the returned function, from a number of minutes on.
func liveOf(t *testing.T, rec *record.Recording, minutes int) (src goingOn, goOn func()) {
	t.Helper()
	var shown atomic.Int32
	shown.Store(int32(minutes))
	return goingOn{fileOf(t, rec), func() *record.Recording {
		return &record.Recording{About: rec.About, Minutes: rec.Minutes[:shown.Load()]}
	}}, func() { shown.Add(1) }
}

// TestLiveView: of a node that goes on the figures are not read out each second, those of a chosen time are, and new
// sentences follow the ones before.
func TestLiveView(t *testing.T) {
	t.Parallel()
	rec := recording(t)
	src, goOn := liveOf(t, rec, 1)
	b := open(t, src, "light")
	b.visit("/node/node-1")
	b.wait("document.querySelector('#events li') && document.querySelector('#book')")
	b.wait("document.querySelector('#cursor').ariaLive === 'off'")
	b.slide("#time", 3)
	b.wait("document.querySelector('#cursor').ariaLive === 'polite'")
	// Ten turns of a second come to the next reading of the sentences.
	b.js("const { setTimeout } = window; window.setTimeout = (f, ms) => setTimeout(f, ms === 1000 ? 100 : ms)")
	var want []string
	for _, e := range storyOf(t, rec) {
		text := e.Text
		if e.Pod != "" {
			text = e.Pod + ": " + text
		}
		want = append(want, e.At.UTC().Format("15:04:05")+text)
	}
	for range len(rec.Minutes) - 1 {
		goOn()
	}
	b.wait(fmt.Sprintf("document.querySelectorAll('#events li').length >= %d", len(want)))
	got := evaluate[[]string](b, `[...document.querySelectorAll("#events li")].map((e) =>
		e.innerText.replace(" (last before the time above)", ""))`)
	if !slices.Equal(got, want) {
		t.Errorf("the sentences are\n%q, want\n%q", got, want)
	}
	b.visit("/what-if/node-1")
	b.wait("document.querySelector('#command')?.innerText === 'kubectl mbcas what-if --node node-1'")
	const needs = "document.querySelector('#command').parentElement.innerText.includes(', which needs a change: ')"
	b.wait(needs)
	b.do(chromedp.Click(chromedp.CSS("#off")))
	b.wait("!" + needs)
	b.calm()
}

// TestRowsStay: while a row has the focus, the rows keep their places, whatever their demand.
func TestRowsStay(t *testing.T) {
	t.Parallel()
	rec, _ := evening(t)
	b := open(t, fileOf(t, rec), "light")
	b.visit("/node/node-1")
	b.wait("document.querySelector('#events li') && document.querySelector('#book')")
	// The demand of each pod by the server, in its order, and the one that the book shows.
	at := func(index int) (order []string) {
		t.Helper()
		b.slide("#time", index)
		want := module[[][]string](b, "api", fmt.Sprintf(`
			const { at } = await api.ask("node", { node: "node-1" });
			const book = await api.ask("book", { node: "node-1", at: at[%d] });
			return book.rows.map((r) => [r.pod, r.demand + "m"]);`, index))
		sorted := func(rows [][]string) string {
			rows = slices.Clone(rows)
			slices.SortFunc(rows, slices.Compare[[]string])
			return fmt.Sprint(rows)
		}
		const shown = `[...document.querySelectorAll("#book tbody tr")].map((r) =>
			[r.cells[0].innerText, r.cells[2].innerText])`
		b.wait(fmt.Sprintf(`(() => {
			const text = (rows) => JSON.stringify(rows.toSorted());
			return text(%s) === text(%s);
		})()`, shown, jsonOf(t, want)))
		rows := evaluate[[][]string](b, shown)
		if sorted(rows) != sorted(want) {
			t.Errorf("the book has %v, want %v", rows, want)
		}
		for _, r := range rows {
			order = append(order, r[0])
		}
		return order
	}
	before, later := at(20), at(200)
	if slices.Equal(before, later) {
		t.Fatal("the order is the same at both times")
	}
	at(20)
	b.js("document.querySelector('#book tbody a').focus()")
	if got := at(200); !slices.Equal(got, before) {
		t.Errorf("with the focus in the table the order becomes %v, want %v", got, before)
	}
	b.js("document.activeElement.blur()")
	at(20)
	if got := at(200); !slices.Equal(got, later) {
		t.Errorf("without it the order becomes %v, want %v", got, later)
	}
	b.calm()
}

// TestSchemeChanges: when the scheme changes, a chart that is open takes its other colors.
func TestSchemeChanges(t *testing.T) {
	t.Parallel()
	b := open(t, fileOf(t, recordings.Saturated(t, "node-1", "cart", 60)), "light")
	b.visit("/node/node-1")
	b.wait("document.querySelector('#events li')")
	has := func(color string) string { // a pixel of that color is in the chart
		return fmt.Sprintf(`(() => {
			const c = document.querySelector("#price canvas");
			const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
			const [r, g, b] = [1, 3, 5].map((i) => parseInt(%q.slice(i, i + 2), 16));
			const is = (i) => data[i] === r && data[i + 1] === g && data[i + 2] === b;
			for (let i = 0; i < data.length; i += 4) if (is(i)) return true;
			return false;
		})()`, color)
	}
	b.wait(has("#00664b"))
	b.prefers("dark")
	b.wait(has("#2fd0a5") + " && !" + has("#00664b"))
	b.calm()
}
