package figures

import (
	"math"
	"net/url"
	"slices"
	"strings"

	"github.com/mbcas/mbcas/internal/nodestate"
)

// book is a market at one time: the order book.
type book struct {
	At     int64           `json:"at"`
	Price  float64         `json:"price"`
	Supply int64           `json:"supply"`
	Usage  *int64          `json:"usage"`
	Demand int64           `json:"demand"`
	System *int64          `json:"system"`
	State  nodestate.State `json:"state"`
	Rows   []bookRow       `json:"rows"`
}

// bookRow is a pod in the order book. Without a decision it has only its limit in force.
type bookRow struct {
	Pod     string `json:"pod"`
	Managed bool   `json:"managed"`
	InForce int64  `json:"inForce"`
	// Unlimited counts the containers of an unmanaged pod that have no limit.
	Unlimited int `json:"unlimited"`

	Decided bool     `json:"decided"`
	Budget  int64    `json:"budget"`
	Usage   int64    `json:"usage"`
	Demand  int64    `json:"demand"`
	Floor   int64    `json:"floor"`
	Ceiling int64    `json:"ceiling"`
	Buys    *int64   `json:"buys"` // null: CPU has no price
	Limit   int64    `json:"limit"`
	Bound   string   `json:"bound"`
	Ratio   *float64 `json:"throttled"`
}

func bookFigures(h *history, q url.Values) (any, error) {
	at, err := timeOf(q, "at")
	if err != nil {
		return nil, err
	}
	f, err := h.at(at)
	if err != nil {
		return nil, err
	}
	n := f.node
	b := book{
		At: f.at.UnixMilli(), Price: float64(n.Price), Supply: int64(n.Supply), Usage: known(int64(n.Usage), n.UsageKnown),
		Demand: int64(n.Demand), System: known(int64(n.System), n.SystemKnown), State: nodestate.Of(n.FloorsExceedSupply, n.Price),
		Rows: make([]bookRow, 0, len(f.rows)),
	}
	for _, r := range f.rows {
		b.Rows = append(b.Rows, bookRowOf(r))
	}
	slices.SortStableFunc(b.Rows, func(a, b bookRow) int { return int(b.Demand - a.Demand) })
	return b, nil
}

func bookRowOf(r row) bookRow {
	out := bookRow{Pod: r.pod, Managed: !r.unmanaged, InForce: int64(r.inForce), Unlimited: r.unlimited, Decided: r.decision != nil}
	d := r.decision
	if d == nil {
		return out
	}
	out.Budget, out.Usage, out.Demand = int64(d.Budget), int64(d.Usage), int64(d.Demand)
	out.Floor, out.Ceiling, out.Limit = int64(d.Floor), int64(d.Ceiling), int64(d.Limit)
	if d.Price > 0 {
		buys := int64(math.Round(float64(d.Budget) / float64(d.Price)))
		out.Buys = &buys
	}
	out.Ratio = &d.ThrottleRatio
	out.Bound = strings.ToLower(d.Bound.String())
	return out
}
