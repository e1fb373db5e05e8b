package top

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
	"github.com/mbcas/mbcas/market"
)

var update = flag.Bool("update", false, "write testdata/*.txt anew")

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// clusterAt is a picture of three nodes, of which the price of one rises.
func clusterAt(at time.Time) Cluster {
	price := market.Price(at.Sub(noon).Seconds() / 10)
	return Cluster{at, []Node{
		{Name: "node-1", State: "free", Supply: 3600, Usage: 900, Demand: 1000, Managed: 20},
		{Name: "node-2", State: "scarce", Price: price, Supply: 3600, Usage: 3500, Demand: 7000, Managed: 30, Capped: 4},
		{Name: "gpu-1", State: "silent", Price: 0.05, Supply: 7200, Usage: 3600, Demand: 3700, Managed: 4},
	}}
}

// roundsFrom are rounds of a node, second by second; a pod is throttled more and more.
func roundsFrom(at time.Time, n int) []Round {
	var rounds []Round
	for i := range n {
		now := at.Add(time.Duration(i) * time.Second)
		s := now.Sub(noon).Seconds()
		rounds = append(rounds, Round{At: now, Price: market.Price(s / 100), Supply: 3600, Usage: 3500, Demand: 7000, Pods: []Pod{
			{Namespace: "shop", Name: "cart-1", Limit: 4000, Declared: 500, Decided: 4000, Usage: 610, Demand: 640, Floor: 210, Ceiling: 4000},
			{Namespace: "shop", Name: "batch-x2", Limit: 520, Declared: 2000, Decided: 510, Usage: cpu.Milli(100 + int(s)), Demand: 2100,
				Floor: 510, Ceiling: 4000, Throttled: min(1, s/60), Bound: market.ByPrice},
		}})
	}
	return rounds
}

// after is the model after messages, and the last requests.
func after(m Model, messages ...any) (Model, []Request) {
	var requests []Request
	for _, msg := range messages {
		m, requests = m.Update(msg)
	}
	return m, requests
}

// TestFrames shows frames after keys, in testdata/frames.txt.
func TestFrames(t *testing.T) {
	read := func(s int) ClusterRead {
		at := noon.Add(time.Duration(s) * time.Second)
		return ClusterRead{At: at, Cluster: clusterAt(at)}
	}
	node := NodeRead{At: noon.Add(21 * time.Second), Node: "node-2", Rounds: roundsFrom(noon.Add(-10*time.Second), 31)}
	var b strings.Builder
	m := Model{}
	for _, step := range []struct {
		what     string
		messages []any
	}{
		{"80x12, nothing read", []any{Size{80, 12}, Tick(noon)}},
		{"the cluster", []any{read(0), read(5), read(10)}},
		{"down, sorted by name", []any{Key("s"), Key("s"), Key("s"), Key("down")}},
		{"a filter is typed", []any{Key("/"), Key("n"), Key("o"), Key("x"), Key("backspace")}},
		{"frozen", []any{Key("enter"), Key("space"), read(15), read(20)}},
		{"two pictures back", []any{Key("["), Key("[")}},
		{"a failure", []any{ClusterRead{At: noon.Add(20 * time.Second), Err: errors.New("connection\nrefused")}}},
		{"no filter, and live", []any{Key("esc"), Key("space"), read(20)}},
		{"a node, not read yet", []any{Key("down"), Key("enter")}},
		{"a node", []any{node}},
		{"ten rounds back", []any{Key("["), Key("["), Key("["), Key("["), Key("["), Key("["), Key("["), Key("["), Key("["), Key("[")}},
		{"a pod", []any{Key("down"), Key("up"), Key("enter"), Key("]")}},
		{"narrow", []any{Key("esc"), Size{40, 9}}},
		{"keys", []any{Size{80, 14}, Key("?")}},
		{"back to the cluster", []any{Key("x"), Key("esc")}},
	} {
		m, _ = after(m, step.messages...)
		fmt.Fprintf(&b, "=== %s\n", step.what)
		for line := range strings.SplitSeq(m.View(), "\n") {
			b.WriteString(strings.TrimRight("|"+line, " ") + "\n")
		}
	}
	path := filepath.Join("testdata", "frames.txt")
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(b.String()), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with -update", err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("frames (-want +got; -update writes them anew):\n%s", diff)
	}
}

// TestTime: a frozen picture stays while rounds come; steps reach each round and end at the last; going on shows the last;
// a step forward to the last goes on with new ones.
func TestTime(t *testing.T) {
	m, _ := after(Model{}, Size{80, 24}, Tick(noon), ClusterRead{At: noon, Cluster: clusterAt(noon)}, Key("enter"))
	add := func(seconds int) {
		at := noon.Add(time.Duration(seconds) * time.Second)
		m, _ = after(m, NodeRead{At: at, Node: m.node, Rounds: roundsFrom(at.Add(-5*time.Second), 6)})
	}
	shown := func() int { return int(m.times()[m.at()].Sub(noon).Seconds()) }
	if add(10); shown() != 10 || m.node != "gpu-1" || len(m.rounds) != 6 {
		t.Fatalf("%d of node %s, %d rounds", shown(), m.node, len(m.rounds))
	}
	m, _ = after(m, Key("space"))
	add(14)
	if shown() != 10 || len(m.rounds) != 10 || !strings.Contains(m.View(), "frozen, 4s old") {
		t.Errorf("frozen: %d, %d rounds\n%s", shown(), len(m.rounds), m.View())
	}
	for want := 9; want >= 5; want-- {
		if m, _ = after(m, Key("[")); shown() != want {
			t.Errorf("back: %d, want %d", shown(), want)
		}
	}
	if m, _ = after(m, Key("["), Key("[")); shown() != 5 {
		t.Errorf("before the first: %d", shown())
	}
	for range 20 {
		m, _ = after(m, Key("]"))
	}
	if add(15); shown() != 14 {
		t.Errorf("frozen at the last round: %d", shown())
	}
	if m, _ = after(m, Key("space")); shown() != 15 {
		t.Errorf("going on: %d", shown())
	}
	m, _ = after(m, Key("["), Key("["))
	if add(16); shown() != 13 || m.frozen {
		t.Errorf("two back, and not frozen: %d", shown())
	}
	m, _ = after(m, Key("]"), Key("]"), Key("]"))
	if add(17); shown() != 17 {
		t.Errorf("forward to the last: %d", shown())
	}
}

// TestAsks: data is asked for once at a time, every 5 s, later after failures, and that of a node only while it is open.
func TestAsks(t *testing.T) {
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	asked := func(m Model, s int) (n int) { _, r := after(m, Tick(at(s))); return len(r) }
	m, requests := after(Model{}, Tick(noon))
	if !cmp.Equal(requests, []Request{ReadCluster{}}) || asked(m, 60) != 0 {
		t.Fatalf("%v, and while it runs %d", requests, asked(m, 60))
	}
	m, _ = after(m, ClusterRead{At: noon, Cluster: clusterAt(noon)})
	if asked(m, 4) != 0 || asked(m, 5) != 1 {
		t.Errorf("after an answer: %d, %d", asked(m, 4), asked(m, 5))
	}
	opened, requests := after(m, Key("enter"))
	if !cmp.Equal(requests, []Request{ReadNode{"gpu-1", time.Time{}}}) {
		t.Errorf("a node: %v", requests)
	}
	opened, _ = after(opened, NodeRead{At: noon, Node: "other", Rounds: roundsFrom(noon, 3)})
	if len(opened.rounds) > 0 || !opened.read.asked {
		t.Error("the answer about another node is taken")
	}
	opened, _ = after(opened, NodeRead{At: noon, Node: "gpu-1", Rounds: roundsFrom(noon, 3)})
	if _, requests := after(opened, Tick(at(5))); !cmp.Equal(requests, []Request{ReadCluster{}, ReadNode{"gpu-1", at(2).Add(-overlap)}}) {
		t.Errorf("later: %v", requests)
	}
	now := 0
	for _, wait := range []int{10, 20, 40, 60, 60} {
		m, _ = after(m, ClusterRead{At: at(now), Err: io.EOF})
		if asked(m, now+wait-1) != 0 || asked(m, now+wait) != 1 {
			t.Errorf("after a failure at %d s: want to wait for %d s", now, wait)
		}
		now += wait
		m, _ = after(m, Tick(at(now)))
	}
	for _, key := range []Key{"q", "ctrl+c"} {
		if _, requests := after(m, key); !cmp.Equal(requests, []Request{Quit{}}) {
			t.Errorf("%s: %v", key, requests)
		}
	}
	if m, requests := after(m, Key("/"), Key("q")); len(requests) > 0 || m.filter != "q" {
		t.Errorf("q in a filter: %v, %q", requests, m.filter)
	}
}

// keys are those that mean anything, and one that means nothing.
var keys = []string{"up", "down", "enter", "esc", "space", "[", "]", "/", "s", "?", "backspace", "n", "x", "ctrl+c", "q"}

// TestAnyMessages: after any messages each frame fits the terminal, and has as many lines.
func TestAnyMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Model{}
		at := noon
		for range rapid.IntRange(1, 60).Draw(t, "messages") {
			at = at.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "seconds")) * time.Second)
			switch rapid.IntRange(0, 6).Draw(t, "kind") {
			case 0:
				m, _ = m.Update(Size{rapid.IntRange(0, 120).Draw(t, "width"), rapid.IntRange(0, 30).Draw(t, "height")})
			case 1:
				m, _ = m.Update(ClusterRead{At: at, Cluster: clusterAt(at)})
			case 2:
				m, _ = m.Update(NodeRead{At: at, Node: m.node, Rounds: roundsFrom(at.Add(-3*time.Second), rapid.IntRange(0, 5).Draw(t, "rounds"))})
			case 3:
				m, _ = m.Update(ClusterRead{At: at, Err: io.EOF})
			default:
				m, _ = m.Update(Key(rapid.SampledFrom(keys).Draw(t, "key")))
			}
			fits(t, m)
		}
	})
}

// TestSizes: frames of every pane fit a terminal of any size.
func TestSizes(t *testing.T) {
	cluster, _ := after(Model{}, Tick(noon), ClusterRead{At: noon, Cluster: clusterAt(noon)})
	node, _ := after(cluster, Key("enter"), NodeRead{At: noon, Node: "gpu-1", Rounds: roundsFrom(noon, 300)})
	pod, _ := after(node, Key("enter"))
	typing, _ := after(node, Key("/"))
	help, _ := after(node, Key("?"))
	for _, m := range []Model{{}, cluster, node, pod, typing, help} {
		for width := 0; width <= 300; width += 13 {
			for height := 0; height < 40; height += 3 {
				m, _ = m.Update(Size{width, height})
				fits(t, m)
			}
		}
	}
}

func fits(t interface{ Fatalf(string, ...any) }, m Model) {
	frame := m.View()
	if m.size.Width <= 0 || m.size.Height <= 0 {
		if frame != "" {
			t.Fatalf("a frame without a terminal:\n%s", frame)
		}
		return
	}
	lines := strings.Split(frame, "\n")
	if len(lines) != m.size.Height {
		t.Fatalf("%d lines of %d:\n%s", len(lines), m.size.Height, frame)
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > m.size.Width {
			t.Fatalf("%d characters wide, the terminal has %d: %q", utf8.RuneCountInString(line), m.size.Width, line)
		}
	}
}

// TestRun: the program draws what is read on the terminal, and ends with q and with its context.
func TestRun(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	synctest.Test(t, func(t *testing.T) {
		src := Source{
			Now:     func() time.Time { return noon },
			Cluster: func(context.Context) (Cluster, error) { return clusterAt(noon), nil },
		}
		var out bytes.Buffer
		start := func(ctx context.Context) (keys io.Writer, ended func() error) {
			in, writer := io.Pipe()
			end := make(chan error, 1)
			go func() {
				end <- run(ctx, src, tea.WithInput(in), tea.WithOutput(&out), tea.WithWindowSize(80, 24), tea.WithoutSignalHandler())
			}()
			time.Sleep(time.Second)
			return writer, func() error {
				defer time.Sleep(time.Second) // the last tick
				defer writer.Close()
				select {
				case err := <-end:
					return err
				case <-time.After(time.Minute):
					return errors.New("it has not ended in a minute")
				}
			}
		}
		keys, ended := start(t.Context())
		if _, err := io.WriteString(keys, "q"); err != nil {
			t.Fatal(err)
		}
		if err := ended(); err != nil {
			t.Errorf("after q: %v", err)
		}
		if !strings.Contains(out.String(), "gpu-1") {
			t.Errorf("no node is drawn before q: %q", &out)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, ended = start(ctx)
		cancel()
		if err := ended(); err != nil {
			t.Errorf("after the end of the context: %v", err)
		}
	})
}
