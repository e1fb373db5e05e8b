package page_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// A page stays open for days.

// module runs the body of a function of the page's modules, and returns what it returns.
func module[T any](b *tab, names, body string) T {
	b.Helper()
	return evaluate[T](b, fmt.Sprintf(`(async () => {
		const [%s] = await Promise.all(%q.split(" ").map((name) => import("/web/" + name + ".js")));
		%s
	})()`, names, names, body), chromedp.EvalAwaitPromise)
}

// TestChartGoesOn: after the longest series that is kept, a chart still has the times and the figures of the series.
func TestChartGoesOn(t *testing.T) {
	t.Parallel()
	b := open(t, fleet{}, "light")
	differs := module[[]int](b, "chart", `
		const { Timeline } = await import("/web/timeline.js");
		const root = document.createElement("div");
		root.innerHTML = "<div id='price'><div class='chart'></div></div>";
		document.body.append(root);
		const lines = [{ key: "price", name: "Price", colour: 0, dash: [], show: String }];
		const drawn = new chart.Chart({ id: "price", title: "Price", lines }, () => {});
		const line = new Timeline("node", {}, new AbortController().signal, () => {}, () => {});
		const seconds = (from, n) => [...Array(n).keys()].map((i) => from + i), differs = [];
		for (const [from, n] of [[0, 7199], [7199, 1], [7200, 1], [7201, 300]]) {
			line.add({ at: seconds(from, n).map((s) => 1000 * s), price: seconds(from, n) });
			drawn.draw(line.series, root, line.index);
			const [at, price] = drawn.plot.data;
			const whole = at.length === Math.min(7200, from + n) && at.at(-1) === from + n - 1;
			if (!whole || at.some((t, i) => t !== price[i])) differs.push(from);
		}
		drawn.destroy();
		return differs;`)
	if len(differs) > 0 {
		t.Errorf("the chart is another than the series after the rounds from %v on", differs)
	}
	b.calm()
}

// TestNothingPilesUp: neither what a view repeats nor what it measures of its drawing is kept for as long as it is
// open.
func TestNothingPilesUp(t *testing.T) {
	t.Parallel()
	b := open(t, fileOf(t, recording(t)), "light")
	listeners := module[int](b, "api", `
		const stop = new AbortController(), signal = stop.signal;
		let turns = 0, held = 0, most = 0;
		const { addEventListener, removeEventListener } = signal;
		signal.addEventListener = (...a) => { most = Math.max(most, ++held); addEventListener.apply(signal, a); };
		signal.removeEventListener = (...a) => { held--; removeEventListener.apply(signal, a); };
		await api.repeat(1, signal, async () => { if (++turns === 50) stop.abort(); });
		return most;`)
	if listeners != 1 {
		t.Errorf("50 turns hold %d listeners at a time, want 1", listeners)
	}
	b.visit("/node/node-1")
	b.wait("document.querySelector('#events li')")
	b.js(`const time = document.querySelector("#time");
		for (let i = 0; i < 400; i++) {
			time.value = i % 100;
			time.dispatchEvent(new Event("input", { bubbles: true }));
		}`)
	entries := evaluate[int](b, `performance.getEntriesByType('mark').length +
		performance.getEntriesByType('measure').length`)
	if entries == 0 || entries > 110 {
		t.Errorf("%d times of drawing are kept", entries)
	}
	b.calm()
}
