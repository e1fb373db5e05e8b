// Package top is the live view of the terminal: the nodes of a cluster, the pods of a node, and one pod, with the time
// that was recorded.
//
// Promises:
//   - The same messages give the same frames, as in testdata: TestFrames.
//   - A frozen picture stays while data goes on, and steps reach each recorded round: TestTime.
//   - No frame is larger than the terminal, at any size: TestSizes, and no message makes the model fail: TestAnyMessages.
package top

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/market"
)

// Node is a node in a picture of the cluster.
type Node struct {
	Name                  string
	State                 string
	Price                 market.Price
	Supply, Usage, Demand cpu.Milli
	Managed, Capped       int
}

// Cluster is a picture of all nodes at a time.
type Cluster struct {
	At    time.Time
	Nodes []Node
}

// Round is a picture of a node at the time of a round.
type Round struct {
	At                    time.Time
	Price                 market.Price
	Supply, Usage, Demand cpu.Milli
	Pods                  []Pod
}

// Pod is a pod in a round.
type Pod struct {
	Namespace, Name string
	// Limit is that in the pod's spec, Decided the one that the round decided.
	Limit, Declared, Decided cpu.Milli
	Usage, Demand            cpu.Milli
	Floor, Ceiling           cpu.Milli
	Throttled                float64 // share of the periods
	Bound                    market.Bound
}

func (p *Pod) name() string { return p.Namespace + "/" + p.Name }

// Rounds are the pictures in a recording, the oldest first. Pods without a decision are left out.
func Rounds(rec *record.Recording) ([]Round, error) {
	var rounds []Round
	_, err := replay.Play(rec, func(f *replay.Frame) error {
		if f.Round == nil {
			return nil
		}
		n := f.Output.Node
		r := Round{At: f.At(), Price: n.Price, Supply: n.Supply, Usage: n.Usage, Demand: n.Demand}
		for i := range f.Output.Decisions {
			d := &f.Output.Decisions[i]
			in := &f.Pods[d.Pod]
			p := Pod{
				Namespace: in.Namespace, Name: in.Name.Name, Decided: d.Limit, Usage: d.Usage, Demand: d.Demand,
				Floor: d.Floor, Ceiling: d.Ceiling, Throttled: d.ThrottleRatio, Bound: d.Bound,
			}
			for _, c := range in.Containers {
				if c.Limited() {
					p.Limit, p.Declared = p.Limit+c.Limit, p.Declared+c.Declared
				}
			}
			r.Pods = append(r.Pods, p)
		}
		rounds = append(rounds, r)
		return nil
	})
	return rounds, err
}
