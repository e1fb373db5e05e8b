package page_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/nodestate"
	"github.com/mbcas/mbcas/internal/page/figures"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/story"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/internal/whatif"
)

// recording is of a node with four cores: a service, and after a minute a batch job that saturates them.
func recording(t *testing.T) *record.Recording {
	t.Helper()
	cfg := mbcas.DefaultConfig()
	cfg.Record = record.NewRecorder(record.Limits{Keep: 24 * time.Hour, Bytes: 1 << 30})
	sim.Run(sim.Setup{Machine: sim.Machine{Cores: 4}, Length: 150 * time.Second, Seed: 1, Pods: []sim.PodSpec{
		{Name: "cart", Namespace: "shop", Request: 1000, Limit: 2000, Spin: load.Constant(1)},
		{Name: "search", Namespace: "shop", Request: 500, Limit: 1500, Spin: load.Constant(2)},
		{Name: "batch", Namespace: "jobs", Request: 500, Limit: 4000, Spin: load.Constant(4), Start: 60 * time.Second},
	}}, mbcas.New(cfg))
	var b bytes.Buffer
	must.Succeed(t, cfg.Record.WriteTo(&b, record.About{Node: "node-1", Version: "test"}, 0))
	rec, err := record.Open(&b)
	must.Succeed(t, err)
	return rec
}

func fileOf(t *testing.T, rec *record.Recording) figures.Source {
	t.Helper()
	src, err := figures.File(rec)
	must.Succeed(t, err)
	return src
}

// book is the order book of the last round that is not after a time, as the replay has it: a row by pod, as the page
// shows it.
func book(t *testing.T, rec *record.Recording, at time.Time) (rows map[string][]string, summary string) {
	t.Helper()
	_, err := replay.Play(rec, func(f *replay.Frame) error {
		if f.Round == nil || f.At().After(at) {
			return nil
		}
		rows = map[string][]string{}
		n := f.Output.Node
		summary = fmt.Sprintf("%s UTC: supply %v, usage %v, demand %v, system %v, price %v.",
			f.At().UTC().Format("15:04:05"), n.Supply, n.Usage, n.Demand, n.System, n.Price)
		for _, d := range f.Output.Decisions {
			p, buys := f.Pods[d.Pod], "no price"
			if d.Price > 0 {
				buys = fmt.Sprintf("%.0fm", float64(d.Budget)/float64(d.Price))
			}
			name := p.Namespace + "/" + p.Name.Name
			rows[name] = []string{name, fmt.Sprint(int64(d.Budget)), d.Demand.String(), d.Usage.String(),
				fmt.Sprintf("%.0f%%", 100*d.ThrottleRatio), d.Floor.String(), buys, d.Limit.String(),
				strings.ToLower(d.Bound.String()), p.Containers[0].Limit.String()}
		}
		return nil
	})
	if err != nil || len(rows) == 0 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	return rows, summary
}

// TestNodeView: the figures under the scrubber and the order book are those of the replay, at the end and at an earlier
// time, and the events are the sentences of the story.
func TestNodeView(t *testing.T) {
	t.Parallel()
	rec := recording(t)
	b := open(t, fileOf(t, rec), "light")
	b.visit("/node/node-1")
	b.showsRound(rec, rec.Minutes[len(rec.Minutes)-1].To)

	told, err := story.Tell(rec, story.Everything)
	if err != nil || len(told.Entries) < 3 {
		t.Fatalf("%d sentences, %v", len(told.Entries), err)
	}
	events := b.text("#events")
	for _, e := range told.Entries {
		if !strings.Contains(events, e.Text) {
			t.Errorf("the events lack %q", e.Text)
		}
	}
	// A click on the time of an event moves the scrubber there.
	b.do(chromedp.Click(chromedp.CSS("#events li:nth-child(2) button")))
	b.showsRound(rec, told.Entries[1].At)
	b.calm()
}

// showsRound waits for the figures and the order book of the round at a time, and checks all of them.
func (b *tab) showsRound(rec *record.Recording, at time.Time) {
	b.Helper()
	want, summary := book(b.T, rec, at)
	b.wait(fmt.Sprintf("document.querySelector('#cursor')?.innerText === %q", summary))
	b.wait(fmt.Sprintf("document.querySelectorAll('#book tbody tr').length === %d", len(want)))
	first := want["shop/cart"]
	b.wait(fmt.Sprintf("[...document.querySelectorAll('#book td')].some((c) => c.innerText === %q)", first[2]))
	for _, row := range b.table("#book") {
		if !slices.Equal(row, want[row[0]]) {
			b.Errorf("at %v the book has\n%q, want\n%q", at, row, want[row[0]])
		}
	}
}

// fleet is a cluster of many nodes, of which each fourth is scarce, and some are full, unknown or silent.
type fleet struct{ figures.Source }

const fleetNodes = 5000

func (fleet) Cluster(context.Context) (figures.Cluster, error) {
	c := figures.Cluster{Live: true}
	for i := range fleetNodes {
		n := figures.Node{
			Node: fmt.Sprintf("node-%04d", i), State: nodestate.Free,
			Supply: 8000, Usage: 4000, Demand: 5000, Managed: 30,
			Seen: 1795000000000,
		}
		switch {
		case i%1000 == 7:
			n.State, n.Price = nodestate.Full, 9
		case i%1000 == 8:
			n.State = nodestate.Silent
		case i%1000 == 9:
			n.State = nodestate.Unknown
		case i%4 == 0:
			n.State, n.Price, n.Capped = nodestate.Scarce, 0.001*float64(i), i%30
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c, nil
}

// TestClusterView: of 5,000 nodes the tiles count each state, the table has the highest price first, and filter, sort
// and pages choose the right ones; a node's name leads to it.
func TestClusterView(t *testing.T) {
	t.Parallel()
	b := open(t, fleet{}, "light")
	b.wait("document.querySelectorAll('#nodes tbody tr').length === 50")
	tiles := strings.Join(strings.Fields(b.text("#tiles")), " ")
	want := "○ 3740 free ▲ 1245 scarce ■ 5 full ? 5 unknown × 5 silent " +
		"19980 cores of usage, of 39960 24975 cores of demand"
	if tiles != want {
		t.Errorf("the tiles show %q, want %q", tiles, want)
	}
	if rows := b.table("#nodes"); fmt.Sprint(rows[0][:3]) != "[node-0007 ■ full 9.000]" ||
		fmt.Sprint(rows[5][:3]) != "[node-4996 ▲ scarce 4.996]" {
		t.Errorf("the first rows are %q", rows[:6])
	}
	b.do(chromedp.Click(chromedp.CSS(".bar button:nth-of-type(2)")))
	b.wait("document.querySelector('#pages').innerText === 'Page 2 of 100, 5000 nodes'")
	b.do(chromedp.Click(chromedp.CSS("th:first-child button")))
	b.wait("document.querySelector('#nodes tbody td').innerText === 'node-0000'")
	b.wait("document.querySelector('th').ariaSort === 'ascending'")
	b.do(chromedp.SendKeys(chromedp.CSS("#filter"), "silent"))
	b.wait("document.querySelector('#pages').innerText === 'Page 1 of 1, 5 nodes'")
	if rows := b.table("#nodes"); len(rows) != 5 || rows[4][0] != "node-4008" || rows[4][1] != "× silent" {
		t.Errorf("silent nodes are %q", rows)
	}
	label := evaluate[string](b, "document.querySelector('canvas.cells').getAttribute('aria-label')")
	want = "A cell for each of 5000 nodes. The highest price is 9.000, on node-0007."
	if !strings.HasPrefix(label, want) {
		t.Errorf("the cells say %q", label)
	}
	if drawn := b.pixels("canvas.cells"); drawn < fleetNodes {
		t.Errorf("%d pixels of the cells are drawn", drawn)
	}
	b.do(chromedp.Click(chromedp.CSS("#nodes tbody a")))
	b.wait("location.hash === '#/node/node-0008'")
	b.calm()
}

// TestPodView: the figures and the sentences under the scrubber are those of the replay and of explain --at.
func TestPodView(t *testing.T) {
	t.Parallel()
	rec := recording(t)
	b := open(t, fileOf(t, rec), "light")
	b.visit("/pod/node-1/jobs%2Fbatch")
	b.wait("document.querySelectorAll('#why li').length > 1")
	times := evaluate[[]int64](b, `import("/web/api.js").then((api) =>
		api.ask("pod", {node: "node-1", pod: "jobs/batch"})).then((s) => s.at)`, chromedp.EvalAwaitPromise)
	for _, index := range []int{len(times) - 1, len(times) - 40} {
		b.slide("#time", index)
		at := time.UnixMilli(times[index]).Add(time.Millisecond)
		want, err := story.At(rec, story.Pod("jobs", "batch"), at)
		must.Succeed(t, err)
		b.wait(fmt.Sprintf("document.querySelector('#why li')?.innerText === %q", want.Sentences[0]))
		b.wait(fmt.Sprintf("document.querySelector('#why').innerText === %q", strings.Join(want.Sentences, "\n")))
		rows, _ := book(t, rec, at)
		row := rows["jobs/batch"]
		figures := fmt.Sprintf("limit %s, usage %s, demand %s, throttled %s.", row[9], row[3], row[2], row[4])
		if cursor := b.text("#cursor"); !strings.HasSuffix(cursor, figures) {
			t.Errorf("the cursor says %q, want %q", cursor, figures)
		}
	}
	events := b.text("#events")
	if !strings.Contains(events, "jobs/batch: It takes part") || strings.Contains(events, "shop/cart") {
		t.Errorf("the events are\n%s", events)
	}
	b.calm()
}

// TestChartsHaveTables: each chart is drawn, and its table has the same figures, 25 rows a page.
func TestChartsHaveTables(t *testing.T) {
	t.Parallel()
	b := open(t, fileOf(t, recording(t)), "light")
	for _, view := range []struct{ path, charts string }{
		{"/node/node-1", "cpu price"}, {"/pod/node-1/shop%2Fcart", "cpu throttling"},
	} {
		b.visit(view.path)
		for _, id := range strings.Fields(view.charts) {
			b.wait(fmt.Sprintf("document.querySelector('#%s canvas')?.width > 0", id))
			if drawn := b.pixels("#" + id + " canvas"); drawn < 1000 {
				t.Errorf("%s, %s: %d pixels are drawn", view.path, id, drawn)
			}
			b.do(chromedp.Click(chromedp.CSS("#" + id + " summary")))
			if rows := b.table("#" + id); len(rows) != 25 || rows[0][1] == "" {
				t.Errorf("%s, %s: the table has %q", view.path, id, rows)
			}
		}
	}
	b.calm()
}

// TestWhatIfView: another reserve gives the limits of what-if, which the server computes.
func TestWhatIfView(t *testing.T) {
	t.Parallel()
	rec := recording(t)
	b := open(t, fileOf(t, rec), "light")
	b.visit("/what-if/node-1")
	b.wait("document.querySelector('#comparison')")
	reserve := 0.3
	want, err := whatif.Decide(rec, whatif.Change{Reserve: &reserve})
	if err != nil || len(want.Pods) == 0 {
		t.Fatalf("%+v, %v", want, err)
	}
	b.slide("#reserve", 30)
	b.compares(want)
	if command := b.text("#command"); command != "kubectl mbcas what-if --node node-1 --reserve 0.3" {
		t.Errorf("the command is %q", command)
	}
	b.calm()
}

// TestKeyboard: from the cluster to a node, to another time, to a pod and back, without a mouse.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	b := open(t, fileOf(t, recording(t)), "light")
	b.wait("document.querySelector('#nodes tbody a')")
	b.tabTo("document.activeElement.innerText === 'node-1'")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.wait("document.querySelector('#book tbody a') && document.querySelector('#cursor')")
	if where := evaluate[string](b, "document.activeElement.id"); where != "main" {
		t.Errorf("after the change of the view the focus is on %q", where)
	}
	b.tabTo("document.activeElement.id === 'time'")
	before := b.text("#cursor")
	b.do(chromedp.KeyEvent(kb.ArrowLeft))
	b.wait(fmt.Sprintf("document.querySelector('#cursor').innerText !== %q", before))
	if live := evaluate[string](b, "document.querySelector('#cursor').ariaLive"); live != "polite" {
		t.Errorf("the figures are read out %q", live)
	}
	b.do(chromedp.KeyEvent(kb.End))
	b.wait(fmt.Sprintf("document.querySelector('#cursor').innerText === %q", before))
	b.do(chromedp.KeyEvent(kb.Home))
	b.wait("document.querySelector('#time').value === '0'")
	b.tabTo("document.activeElement.tagName === 'SUMMARY'")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.wait("document.querySelector('#cpu details').open")
	b.tabTo("document.activeElement.innerText === 'Later'")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.wait("document.querySelector('#cpu details').innerText.includes('Page 2 of')")
	b.tabTo("document.activeElement.innerText === 'shop/cart'")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.wait("document.querySelectorAll('#why li').length > 0")
	b.tabTo("document.activeElement.innerText === 'Cluster'")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.wait("document.querySelector('#nodes')")
	b.calm()
}

// tabTo presses the key Tab until a condition holds.
func (b *tab) tabTo(condition string) {
	b.Helper()
	const most = 120
	for range most {
		b.do(chromedp.KeyEvent(kb.Tab))
		if evaluate[bool](b, "Boolean("+condition+")") {
			return
		}
	}
	b.Fatalf("%d presses of Tab do not lead to %s; the page says:\n%s", most, condition, b.says())
}

// TestAccessible: axe finds nothing wrong with any view, in light and dark, with the tables open.
func TestAccessible(t *testing.T) {
	for _, scheme := range []string{"light", "dark"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			check := func(b *tab, view, ready string) {
				t.Helper()
				b.visit(view)
				b.wait(ready)
				b.js("document.querySelectorAll('details').forEach((d) => { d.open = true })")
				for _, v := range b.axe() {
					t.Errorf("%s: %s: %s: %+v", view, v.ID, v.Help, v.Nodes)
				}
				dark := evaluate[bool](b, "matchMedia('(prefers-color-scheme: dark)').matches")
				if dark != (scheme == "dark") {
					t.Errorf("%s is dark: %v", scheme, dark)
				}
				b.calm()
			}
			many := open(t, fleet{}, scheme)
			check(many, "/", "document.querySelector('#nodes tbody tr')")
			b := open(t, fileOf(t, recording(t)), scheme)
			check(b, "/node/node-1", "document.querySelector('#book') && document.querySelector('#events li')")
			check(b, "/pod/node-1/shop%2Fcart", "document.querySelector('#why li')")
			check(b, "/what-if/node-1", "document.querySelector('#comparison')")
		})
	}
}

// TestAxeFinds: the check above finds a fault that is put into the page.
func TestAxeFinds(t *testing.T) {
	t.Parallel()
	b := open(t, fleet{}, "light")
	b.wait("document.querySelector('#nodes')")
	b.js("document.querySelector('canvas.cells').removeAttribute('aria-label')")
	if broken := b.axe(); len(broken) != 1 || broken[0].ID != "role-img-alt" {
		t.Errorf("a picture without a text gives %+v", broken)
	}
}

// hostile has names with markup.
type hostile struct{ figures.Source }

const markup = `<img src=x onerror="document.title='taken over'">`

func (hostile) Cluster(context.Context) (figures.Cluster, error) {
	return figures.Cluster{Nodes: []figures.Node{{Node: markup, State: nodestate.Free}}, Notes: []string{markup}}, nil
}

// TestMarkupInNames: names with markup are shown as text, in each view, and the address of a node is that node's.
func TestMarkupInNames(t *testing.T) {
	t.Parallel()
	b := open(t, hostile{}, "light")
	if got := b.text("#nodes tbody a"); got != markup {
		t.Errorf("the name is shown as %q", got)
	}
	pods := recording(t)
	pods.About.Node = markup
	n := open(t, fileOf(t, pods), "light")
	n.do(chromedp.Click(chromedp.CSS("#nodes tbody a")))
	n.wait("document.querySelector('#book')")
	if got := n.text("h1"); got != "Node "+markup {
		t.Errorf("the title of the node is %q", got)
	}
	for _, b := range []*tab{b, n} {
		if evaluate[bool](b, "document.title === 'taken over' || document.querySelector('main img') !== null") {
			t.Error("the name became markup")
		}
		b.calm()
	}
}

// TestTheTokenLeavesTheAddress: the address in the history of the browser has no token, and a reload still works.
func TestTheTokenLeavesTheAddress(t *testing.T) {
	t.Parallel()
	b := open(t, fileOf(t, recording(t)), "light")
	b.wait("document.querySelector('#nodes')")
	if url := evaluate[string](b, "location.href"); strings.Contains(url, "token") {
		t.Errorf("the address is %s", url)
	}
	b.do(chromedp.Reload())
	b.wait("document.querySelector('#nodes')")
	b.js("sessionStorage.clear()")
	b.do(chromedp.Reload())
	b.wait("document.querySelector('#status').innerText.includes('no valid token')")
}
