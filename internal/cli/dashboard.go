package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/past"
	"github.com/mbcas/mbcas/internal/page"
	"github.com/mbcas/mbcas/internal/page/figures"
)

func dashboardCommand(s Streams, f *flags) *cobra.Command {
	from := newSource(f)
	export := ""
	cmd := &cobra.Command{
		Use:   "dashboard [FILE]",
		Short: "Serve a page with the cluster, nodes and pods over time, to this machine",
		Long: "Serve a page to the browsers of this machine, until the command ends: the nodes of the cluster by price, a node over time\n" +
			"with its order book at each second, and a pod with the reasons for its limit. With a file it shows a recording,\n" +
			"without a cluster. It listens on 127.0.0.1 alone, answers the printed address alone, and writes nothing. It reads\n" +
			"the Leases of the agents every 10 s, and the recording of the one node that is looked at, with your own rights.\n" +
			"With --export it writes the page of a recording to one file instead, with the market in it: it works in any browser\n" +
			"without a network, what-if included. The file has the names and figures of the recording.",
		Example: "  kubectl mbcas dashboard\n  kubectl mbcas dashboard --node node-1\n  kubectl mbcas dashboard node-1-20261121T120000" + past.Extension +
			"\n  kubectl mbcas dashboard node-1-20261121T120000" + past.Extension + " --export node-1.html",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return nil
			case len(args) > 1 || from.Node != "":
				return UsageError{Err: fmt.Errorf("%q takes one file, or --node", cmd.CommandPath())}
			}
			from.File = args[0]
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("export") {
				return from.exportPage(cmd.Context(), s, export)
			}
			src, err := from.pageSource(cmd.Context(), s)
			if err != nil {
				return err
			}
			if !page.Built() {
				fmt.Fprintln(s.Err, "this kubectl-mbcas was built without the page: make page")
			}
			return page.Serve(cmd.Context(), src, page.View(from.Node), func(url string) {
				fmt.Fprintf(s.Out, "%s\nThe page ends with this command (Ctrl-C). Its address is a secret of yours.\n", url)
			})
		},
	}
	from.bind(cmd)
	cmd.Flags().StringVar(&export, "export", "", "write the page with the recording to this new `file`, such as node-1.html, and end")
	return cmd
}

// exportPage writes the page of a recording as one file.
func (s *source) exportPage(ctx context.Context, streams Streams, path string) error {
	if s.File == "" && s.Node == "" {
		return UsageError{Err: errors.New("--export needs a file with a recording, or --node")}
	}
	rec, err := s.Read(ctx, streams)
	if err != nil {
		return err
	}
	size, err := past.Create(path, "--export", func(w io.Writer) error { return page.Export(w, rec) })
	if err != nil {
		return err
	}
	fmt.Fprintf(streams.Out, "%s: node %s, %.1f MiB. Open it in a browser; it needs no network, and has the names of the recording.\n",
		path, format.Printable(rec.About.Node), float64(size)/(1<<20))
	return nil
}

// pageSource is what the page shows: the file, or the cluster.
func (s *source) pageSource(ctx context.Context, streams Streams) (figures.Source, error) {
	if s.File != "" {
		rec, err := s.Read(ctx, streams)
		if err != nil {
			return nil, err
		}
		s.Node = rec.About.Node
		return figures.File(rec)
	}
	a, err := s.Connect()
	if err != nil {
		return nil, err
	}
	return &liveSource{Live: past.Live{Access: a}}, nil
}

// liveSource is the cluster as it goes on.
type liveSource struct {
	past.Live
	mu   sync.Mutex
	last figures.Cluster
	read time.Time
}

// leaseInterval is how often the Leases of the agents are listed, however many tabs are open.
const leaseInterval = 10 * time.Second

// Cluster is the market of each node, as nodes has it.
func (l *liveSource) Cluster(ctx context.Context) (figures.Cluster, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Access.Now()
	if !l.read.IsZero() && now.Sub(l.read) < leaseInterval {
		return l.last, nil
	}
	view, err := readNodes(ctx, l.Access)
	if err != nil {
		return figures.Cluster{}, err
	}
	l.last, l.read = figures.Cluster{Live: true, Nodes: make([]figures.Node, 0, len(view.Nodes)), Notes: view.Notes}, now
	if len(view.Nodes) == 0 {
		l.last.Notes = append(l.last.Notes, view.none())
	}
	for _, n := range view.Nodes {
		l.last.Nodes = append(l.last.Nodes, figures.Node{
			Node: n.Node, State: n.State, Price: float64(n.Price), Supply: int64(n.Supply), Usage: int64(n.Usage),
			Demand: int64(n.Demand), Managed: n.Managed, Capped: n.Capped, Seen: n.Renewed.UnixMilli(),
		})
	}
	return l.last, nil
}
