package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/output"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/nodestate"
	"github.com/mbcas/mbcas/market"
)

func nodesCommand(s Streams, f *flags) *cobra.Command {
	sort := "price"
	var show output.Show
	cmd := &cobra.Command{
		Use:     "nodes",
		Aliases: []string{"node", "no"},
		Short:   "List nodes with price, supply, usage and demand",
		Long: "List the nodes that have an agent, with the market of each: what its pods may use together, what\n" +
			"they use and demand, and the price. All of it comes from the Leases of the agents, which are\n" +
			"renewed every 20 to 30 s: one request, however many nodes there are.\n" +
			"The state is free (no price), scarce (a price), full (the floors of the pods exceed the supply),\n" +
			"unknown (the agent has just started) or silent (the agent renews its Lease no more, so the limits on\n" +
			"its node stay as they are).\n" +
			"Nodes without an agent are not listed; doctor names them.",
		Example: "  kubectl mbcas nodes\n  kubectl mbcas nodes --sort demand -o json",
		Args:    noArgs,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, _ []string) error {
			return showNodes(ctx, a, s, sort, show)
		}),
	}
	cmd.Flags().StringVar(&sort, "sort", sort, "sort by "+orList(nodeSortKeys())+"; amounts from the largest down")
	show.Bind(cmd)
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(nodeSortKeys(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// NodesView is what nodes prints.
type NodesView struct {
	Nodes []NodeRow `json:"nodes"`
	// Supply, Usage and Demand are the sums of the nodes that are not silent.
	Supply cpu.Milli `json:"supply"`
	Usage  cpu.Milli `json:"usage"`
	Demand cpu.Milli `json:"demand"`
	// States counts nodes by state.
	States map[nodestate.State]int `json:"states"`
	Notes  []string                `json:"notes,omitempty"`
	system string
	now    time.Time
}

// NodeRow is a node as the Lease of its agent shows it.
type NodeRow struct {
	Node   string          `json:"node"`
	State  nodestate.State `json:"state"`
	Price  market.Price    `json:"price"`
	Supply cpu.Milli       `json:"supply"`
	Usage  cpu.Milli       `json:"usage"`
	Demand cpu.Milli       `json:"demand"`
	// Managed counts the pods with a limit that the agent decides, Capped those that the price caps.
	Managed int `json:"managed"`
	Capped  int `json:"capped"`
	// Waiting counts decisions that are not published yet.
	Waiting int       `json:"waiting"`
	Renewed time.Time `json:"renewed"`
}

func showNodes(ctx context.Context, a *cluster.Access, s Streams, sort string, show output.Show) error {
	by, ok := nodeSorts[sort]
	if !ok {
		return UsageError{Err: fmt.Errorf("--sort %q: want one of %s", sort, strings.Join(nodeSortKeys(), ", "))}
	}
	return show.Run(ctx, s, func(ctx context.Context) (output.View, error) {
		view, err := readNodes(ctx, a)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(view.Nodes, func(a, b NodeRow) int { return cmp.Or(by(a, b), cmp.Compare(a.Node, b.Node)) })
		return view, nil
	})
}

// readNodes reads the Leases of the agents.
func readNodes(ctx context.Context, a *cluster.Access) (NodesView, error) {
	var leases coordinationv1.LeaseList
	if err := a.Client.List(ctx, &leases, client.InNamespace(a.System)); err != nil {
		return NodesView{}, fmt.Errorf("list the Leases of the agents in namespace %s: %w", a.System, err)
	}
	now := a.ServerNow()
	view := nodesView(leases.Items, now)
	view.system, view.now = a.System, now
	return view, nil
}

// settledRound is the round of an agent, one a second, from which its market is that of its pods: before, most have too few
// samples.
const settledRound = 5

// nodesView is the market of each node with a Lease of an agent.
func nodesView(leases []coordinationv1.Lease, now time.Time) NodesView {
	v := NodesView{Nodes: []NodeRow{}, States: map[nodestate.State]int{}}
	var mute, young []string
	for i := range leases {
		lease := &leases[i]
		name, ok := kube.AgentLeaseNode(lease)
		if !ok || lease.Spec.RenewTime == nil {
			continue
		}
		m, err := allocation.ParseNodeMarket(lease.Annotations[kube.MarketKey])
		row := NodeRow{
			Node: name, State: nodestate.Of(m.Full, m.Price), Price: m.Price, Supply: m.Supply, Usage: m.Usage, Demand: m.Demand,
			Managed: m.Managed, Capped: m.Capped, Waiting: m.Waiting, Renewed: lease.Spec.RenewTime.Time,
		}
		switch {
		case now.Sub(row.Renewed) > kube.AgentSilentAfter:
			row.State = nodestate.Silent
		case err != nil || m.Round == 0:
			row.State = nodestate.Unknown
		}
		if v.States[row.State]++; row.State == nodestate.Unknown {
			mute = append(mute, name)
		}
		if m.Round > 0 && m.Round < settledRound && row.State != nodestate.Silent {
			young = append(young, name)
		}
		if row.State != nodestate.Silent {
			v.Supply, v.Usage, v.Demand = v.Supply+m.Supply, v.Usage+m.Usage, v.Demand+m.Demand
		}
		v.Nodes = append(v.Nodes, row)
	}
	if slices.Sort(mute); len(mute) > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%s without a market in the Lease, because the agent has just started or is of "+
			"another version: %s.", format.Plural(len(mute), "node"), format.Few(mute)))
	}
	if slices.Sort(young); len(young) > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%s whose agent had just started when it told these figures: %s. It tells new ones within "+
			"30 s; kubectl mbcas usage has those of the last second.", format.Plural(len(young), "node"), format.Few(young)))
	}
	return v
}

// none is what is said where there is no node.
func (v NodesView) none() string {
	return fmt.Sprintf("No node has an agent: namespace %s holds no Lease of one. See \"kubectl mbcas doctor\".", v.system)
}

// Items are the nodes.
func (v NodesView) Items() (items []output.Item) {
	for _, n := range v.Nodes {
		items = append(items, output.Item{Name: "node/" + n.Node, Fields: n})
	}
	return items
}

// nodeMeaning is that of a cell of nodes.
func nodeMeaning(header, cell string) format.Meaning {
	if header != "STATE" {
		return format.Plain
	}
	return map[nodestate.State]format.Meaning{
		nodestate.Silent: format.Failed, nodestate.Full: format.Failed, nodestate.Scarce: format.Capped,
	}[nodestate.State(cell)]
}

// Text is the view as a table with the sums below it.
func (v NodesView) Text(style format.Style) string {
	if len(v.Nodes) == 0 {
		return v.none() + "\n"
	}
	var b strings.Builder
	t := &format.Table{Header: []string{"NODE", "STATE", "PRICE", "SUPPLY", "USAGE", "DEMAND", "MANAGED", "CAPPED",
		"WAITING", "SEEN"}, Drop: []string{"WAITING", "MANAGED", "CAPPED", "SEEN", "SUPPLY"}, Meaning: nodeMeaning}
	for _, n := range v.Nodes {
		t.Add(n.Node, string(n.State), n.Price.String(), n.Supply.String(), n.Usage.String(), n.Demand.String(),
			fmt.Sprint(n.Managed), fmt.Sprint(n.Capped), fmt.Sprint(n.Waiting), format.Age(v.now.Sub(n.Renewed)))
	}
	b.WriteString(t.Text(style))
	var states []string
	for _, s := range nodestate.All {
		if n := v.States[s]; n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, s))
		}
	}
	fmt.Fprintf(&b, "\n%s: %s. Together they use %s of %s and demand %s.\n", format.Plural(len(v.Nodes), "node"),
		format.Join(states), v.Usage, v.Supply, v.Demand)
	writeNotes(&b, v.Notes)
	return b.String()
}

// nodeSorts are the ways to sort nodes.
var nodeSorts = map[string]func(a, b NodeRow) int{
	"name":   func(a, b NodeRow) int { return cmp.Compare(a.Node, b.Node) },
	"price":  func(a, b NodeRow) int { return cmp.Compare(b.Price, a.Price) },
	"supply": func(a, b NodeRow) int { return cmp.Compare(b.Supply, a.Supply) },
	"usage":  func(a, b NodeRow) int { return cmp.Compare(b.Usage, a.Usage) },
	"demand": func(a, b NodeRow) int { return cmp.Compare(b.Demand, a.Demand) },
	"seen":   func(a, b NodeRow) int { return a.Renewed.Compare(b.Renewed) },
}

func nodeSortKeys() []string { return slices.Sorted(maps.Keys(nodeSorts)) }

// orList lists words: "a, b or c".
func orList(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
