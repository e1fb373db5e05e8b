// Package figures answers the questions of the page: the cluster, a node, a pod at a time, and what the market would have
// decided. All figures of a node come from replaying its recording with the production round. It knows neither Kubernetes
// nor HTTP, so the same code answers on a server and inside an exported page.
//
// Promises:
//   - The order book is that of the replayed round: TestBookIsTheRound.
//   - What is new of a recording is shown, and what has not changed is not replayed again: TestGoesOn.
//   - What cannot be answered is refused with a sentence: TestUnanswerable.
package figures

import (
	"context"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/internal/nodestate"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/market"
)

// Source is where the figures come from.
type Source interface {
	// Cluster has the nodes as they are now.
	Cluster(ctx context.Context) (Cluster, error)
	// Recording is that of a node until now. One call for a node is made at a time. The result is not changed later.
	Recording(ctx context.Context, node string) (*record.Recording, error)
}

// Cluster is the market of each node.
type Cluster struct {
	// Live: the figures go on. Otherwise they are those of a file.
	Live  bool     `json:"live"`
	Nodes []Node   `json:"nodes"`
	Notes []string `json:"notes"`
}

// Node is a node's market. Amounts are thousandths of a core.
type Node struct {
	Node    string          `json:"node"`
	State   nodestate.State `json:"state"`
	Price   float64         `json:"price"`
	Supply  int64           `json:"supply"`
	Usage   int64           `json:"usage"`
	Demand  int64           `json:"demand"`
	Managed int             `json:"managed"`
	Capped  int             `json:"capped"`
	// Seen is the time of the figures, in milliseconds since 1970.
	Seen int64 `json:"seen"`
}

// file is a recording as a source: a cluster of one node, as it was at the end.
type file struct {
	rec  *record.Recording
	node Node
}

// File is the source of a recording that does not go on.
func File(rec *record.Recording) (Source, error) {
	n := len(rec.Minutes)
	if n == 0 {
		return nil, fmt.Errorf("the recording of node %s holds no minute; record again with \"kubectl mbcas record\"", rec.About.Node)
	}
	f := &file{rec: rec, node: Node{Node: rec.About.Node, State: nodestate.Unknown, Seen: rec.Minutes[n-1].To.UnixMilli()}}
	frames, err := replayMinute(rec.About.Node, rec.Minutes[n-1])
	if err != nil {
		return nil, err
	}
	if n := len(frames); n > 0 {
		last := frames[n-1]
		f.node.State = nodestate.Of(last.node.FloorsExceedSupply, last.node.Price)
		f.node.Price, f.node.Supply = float64(last.node.Price), int64(last.node.Supply)
		f.node.Usage, f.node.Demand = int64(last.node.Usage), int64(last.node.Demand)
		for _, r := range last.rows {
			if r.decision == nil {
				continue
			}
			f.node.Managed++
			if r.decision.Bound == market.ByPrice {
				f.node.Capped++
			}
		}
	}
	return f, nil
}

func (f *file) Cluster(context.Context) (Cluster, error) {
	return Cluster{Nodes: []Node{f.node}, Notes: []string{fmt.Sprintf("A recording of node %s, from %s to %s.", f.rec.About.Node,
		f.rec.Minutes[0].From.UTC().Format("2006-01-02 15:04:05"), time.UnixMilli(f.node.Seen).UTC().Format("15:04:05 UTC"))}}, nil
}

func (f *file) Recording(_ context.Context, node string) (*record.Recording, error) {
	if node != f.rec.About.Node {
		return nil, fmt.Errorf("%w: node %q; the file is of node %s", ErrUnknown, node, f.rec.About.Node)
	}
	return f.rec, nil
}
