package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// ListView is what list prints, in -o json and yaml as it stands.
type ListView struct {
	Pods []Standing `json:"pods"`
	// Total counts all pods looked at, Managed those that MBCAS manages.
	Total   int `json:"total"`
	Managed int `json:"managed"`
	// NotManaged counts the others by reason, the most frequent first.
	NotManaged []ReasonCount `json:"notManaged"`
	Notes      []string      `json:"notes,omitempty"`
	scope      scope
}

// ReasonCount is how many pods have the same reason for not being managed.
type ReasonCount struct {
	Reason  string `json:"reason"`
	Count   int    `json:"count"`
	Message string `json:"message"`
}

// standings joins everything gathered, in no particular order.
func standings(w *World, system string) []Standing {
	rows := make([]Standing, 0, len(w.Pods))
	for i := range w.Pods {
		rows = append(rows, w.stand(&w.Pods[i], system))
	}
	return rows
}

// newListView keeps the managed rows, or all of them, and counts the others.
func newListView(rows []Standing, unmanaged bool, notes []string) ListView {
	v := ListView{Pods: []Standing{}, NotManaged: []ReasonCount{}, Total: len(rows), Notes: notes}
	counts := map[string]int{}
	messages := map[string]string{}
	for _, r := range rows {
		if r.Managed || unmanaged {
			v.Pods = append(v.Pods, r)
		}
		if r.Managed {
			v.Managed++
			continue
		}
		counts[r.Reason]++
		messages[r.Reason] = r.Message
	}
	for reason, n := range counts {
		v.NotManaged = append(v.NotManaged, ReasonCount{reason, n, messages[reason]})
	}
	slices.SortFunc(v.NotManaged, func(a, b ReasonCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return v
}

// text is the view as a table with its footer.
func (v ListView) text(wide bool, now time.Time) string {
	var b strings.Builder
	if len(v.Pods) > 0 {
		b.WriteString(listTable(v.Pods, v.scope.namespace == "", wide, now).String())
		b.WriteByte('\n')
	}
	switch {
	case v.Total == 0:
		fmt.Fprintf(&b, "No pods in %s.\n", v.scope.none())
	default:
		fmt.Fprintf(&b, "%d of %s in %s managed.\n", v.Managed, plural(v.Total, "pod"), v.scope)
	}
	if len(v.NotManaged) > 0 {
		b.WriteString("Not managed:\n")
		t := table{}
		for _, n := range v.NotManaged {
			t.rows = append(t.rows, []string{fmt.Sprintf("%4d", n.Count), n.Reason, n.Message})
		}
		b.WriteString(t.String())
	}
	for _, n := range v.Notes {
		fmt.Fprintf(&b, "Note: %s\n", n)
	}
	return b.String()
}

func listTable(rows []Standing, namespaces, wide bool, now time.Time) *table {
	t := &table{}
	if namespaces {
		t.header = append(t.header, "NAMESPACE")
	}
	t.header = append(t.header, "POD", "REQUEST", "LIMIT", "DECLARED", "USE", "THROTTLED", "DEMAND", "PRICE", "PHASE", "REASON")
	if wide {
		t.header = append(t.header, "NODE", "DESIRED", "FLOOR", "CEILING", "BUDGET", "PRESSURE", "BOUND-BY", "TERMS", "SEEN", "MESSAGE")
	}
	for _, r := range rows {
		var cells []string
		if namespaces {
			cells = append(cells, r.Namespace)
		}
		d := figureText(r.Figures, now)
		cells = append(cells, r.Pod, amount(r.Request), limitText(r), pointer(r.Declared), d.use, d.throttled, d.demand, d.price, string(r.Phase), r.Reason)
		if wide {
			cells = append(cells, r.Node, pointer(r.Desired), d.floor, d.ceiling, d.budget, d.pressure, d.bound, termWords(r.Terms), d.seen, r.Message)
		}
		t.add(cells...)
	}
	return t
}

// figureCells are a pod's figures as text; all "" where there are none.
type figureCells struct {
	use, throttled, demand, price, floor, ceiling, budget, pressure, bound, seen string
}

func figureText(f *Figures, now time.Time) figureCells {
	if f == nil {
		return figureCells{}
	}
	c := figureCells{
		use: f.Usage.String(), throttled: fmt.Sprintf("%d%%", f.Throttled), demand: f.Demand.String(), price: f.Price,
		floor: f.Floor.String(), ceiling: f.Ceiling.String(), budget: fmt.Sprint(f.Budget), bound: string(f.BoundBy),
		pressure: percentText(f.Pressure), seen: age(now.Sub(f.At)),
	}
	return c
}

func percentText(p *int32) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%d%%", *p)
}

// limitText marks a total that leaves out containers without a limit.
func limitText(r Standing) string {
	switch {
	case r.Limit == 0:
		return "none"
	case r.Unlimited > 0:
		return r.Limit.String() + "+none"
	}
	return r.Limit.String()
}

func amount(m cpu.Milli) string {
	if m == 0 {
		return ""
	}
	return m.String()
}

func pointer(m *cpu.Milli) string {
	if m == nil {
		return ""
	}
	return m.String()
}
