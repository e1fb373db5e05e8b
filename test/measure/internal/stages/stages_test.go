package stages

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// after is a time some milliseconds after start; 0: not recorded.
func after(ms int) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return start.Add(time.Duration(ms) * time.Millisecond)
}

// marks are those of a step at start, in milliseconds after it and in their order: look, observed,
// published, decided, dry run, sent, answered, kernel.
func marks(ms ...int) Marks {
	return Marks{
		start, after(ms[0]), after(ms[1]), after(ms[2]), after(ms[3]), after(ms[4]), after(ms[5]), after(ms[6]),
		after(ms[7]),
	}
}

var nearly = cmpopts.EquateApprox(0, 1e-9)

// TestWhatWasNotRecorded: stages whose ends are unknown, or out of order, are named together.
func TestWhatWasNotRecorded(t *testing.T) {
	for _, c := range []struct {
		name, want string
		in         Marks
	}{
		{"no rounds", "sampling + evidence|publish|watch and queue|decide|resize|kubelet",
			marks(0, 1400, 1430, 1450, 0, 1460, 1490, 1550)},
		{"no controller log", "sampling|evidence|publish|watch and queue + decide|resize|kubelet",
			marks(400, 1400, 1430, 0, 0, 1460, 1490, 1550)},
		{"no log at all", "sampling + evidence + publish + watch and queue + decide + resize + kubelet",
			marks(0, 0, 0, 0, 0, 0, 0, 1550)},
		// The controller saw the decision before the agent had its answer.
		{"decided before the answer", "sampling|evidence|publish|watch and queue + decide|resize|kubelet",
			marks(400, 1400, 1455, 1450, 0, 1460, 1490, 1550)},
		// The kubelet was faster than the answer to the controller.
		{"answered after the kernel", "sampling|evidence|publish|watch and queue|decide|resize + kubelet",
			marks(400, 1400, 1430, 1450, 0, 1460, 1560, 1550)},
		{"no dry run's end", "sampling|evidence|publish|watch and queue|decide|dry run + resize|kubelet",
			marks(400, 1400, 1430, 1450, 1460, 0, 1490, 1550)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Divide(c.in)
			var names []string
			for _, s := range got.Spans {
				names = append(names, s.Stages)
			}
			if all := strings.Join(names, "|"); all != c.want || got.Open != "" {
				t.Errorf("%s, open %q; want %s", all, got.Open, c.want)
			}
		})
	}
}

// TestNoReaction: a step without one was left in some stage.
func TestNoReaction(t *testing.T) {
	for _, c := range []struct {
		open string
		in   Marks
		n    int
	}{
		{
			"sampling + evidence + publish + watch and queue + decide + resize + kubelet",
			marks(0, 0, 0, 0, 0, 0, 0, 0), 0,
		},
		{"watch and queue + decide + resize + kubelet", marks(400, 1400, 1430, 0, 0, 0, 0, 0), 3},
		{"kubelet", marks(400, 1400, 1430, 1450, 0, 1460, 1490, 0), 6},
	} {
		if got := Divide(c.in); got.Open != c.open || len(got.Spans) != c.n {
			t.Errorf("%+v; want %d spans, and open: %s", got, c.n, c.open)
		}
	}
}

// TestStagesAddUp: whatever was recorded, each stage is named once, no time is negative, and the
// times of a reaction add up to it.
func TestStagesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := func(name string) int { return rapid.IntRange(0, 30).Draw(t, name) }
		m := marks(at("look"), at("observed"), at("published"), at("decided"), at("dry run"), at("sent"),
			at("answered"), at("kernel"))
		s := Divide(m)
		sum, names := 0.0, []string{}
		for _, x := range s.Spans {
			if x.Seconds < 0 {
				t.Fatalf("%+v", s)
			}
			sum += x.Seconds
			names = append(names, strings.Split(x.Stages, separator)...)
		}
		if s.Open != "" {
			names = append(names, strings.Split(s.Open, separator)...)
		}
		want := []string{"sampling", "evidence", "publish", "watch and queue", "decide"}
		if !m.DryRun.IsZero() {
			want = append(want, "dry run")
		}
		if diff := cmp.Diff(append(want, "resize", "kubelet"), names); diff != "" {
			t.Fatal(diff)
		}
		if s.Open == "" && math.Abs(sum-m.Kernel.Sub(m.Step).Seconds()) > 1e-9 {
			t.Fatalf("%v s in all, the step took %v", sum, m.Kernel.Sub(m.Step))
		}
		if m.Kernel.IsZero() == (s.Open == "") {
			t.Fatalf("kernel %v, open %q", m.Kernel, s.Open)
		}
	})
}

func TestTable(t *testing.T) {
	fast := Divide(marks(100, 1100, 1130, 1150, 0, 1160, 1190, 1200))
	slow := Divide(marks(0, 2100, 2130, 2150, 0, 2160, 2190, 2250))
	lost := Divide(marks(300, 1300, 1330, 0, 0, 0, 0, 0))
	table := Tabulate([]string{"freed", "freed", "freed", "new pod"}, []Split{fast, slow, lost, fast})
	find := func(kind, stages string) Row {
		for _, r := range table {
			if r.Kind == kind && r.Stages == stages {
				return r
			}
		}
		return Row{}
	}
	for _, want := range []Row{
		{"freed", "sampling", 2, 0.1, 0.3, 0.3}, {"freed", "sampling + evidence", 1, 2.1, 2.1, 2.1},
		{"freed", "publish", 3, 0.03, 0.03, 0.03}, {"freed", Whole, 2, 1.2, 2.25, 2.25},
		{All, Whole, 3, 1.2, 2.25, 2.25}, {"new pod", Whole, 1, 1.2, 1.2, 1.2},
	} {
		if diff := cmp.Diff(want, find(want.Kind, want.Stages), nearly); diff != "" {
			t.Error(diff)
		}
	}
	for i, r := range table[1:] {
		if r.Kind != table[i].Kind && table[i].Stages != Whole {
			t.Errorf("the last row of %s is %s", table[i].Kind, table[i].Stages)
		}
	}
	var out bytes.Buffer
	table.Write(&out)
	if text := out.String(); !strings.Contains(text, "freed") || strings.Count(text, Whole) != 3 {
		t.Error(text)
	}
	if got := Tabulate(nil, nil); got != nil {
		t.Errorf("a table of nothing: %+v", got)
	}
}
