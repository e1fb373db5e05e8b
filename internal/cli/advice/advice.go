// Package advice reads the recordings of the nodes that run the pods of a namespace, and shows the requests and limits
// that follow from them.
package advice

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/advise"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/past"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/record"
)

// MostNodes is how many recordings are read: each is up to 8 MiB, and the node has to send it.
const MostNodes = 20

// View is the advice with what it rests on.
type View struct {
	// From and To are the time that the recordings cover.
	From   time.Time       `json:"from"`
	To     time.Time       `json:"to"`
	Nodes  []string        `json:"nodes"`
	Advice []advise.Advice `json:"advice"`
	Notes  []string        `json:"notes,omitempty"`

	scope format.Scope
	cfg   advise.Config
}

// Read reads the pods and the recordings of their nodes. A node that cannot be read is noted; that all cannot is an
// error.
func Read(ctx context.Context, a *cluster.Access, s format.Streams, cfg advise.Config) (*View, error) {
	v := &View{Advice: []advise.Advice{}, scope: format.Scope{Namespace: a.Namespace}, cfg: cfg}
	var pods corev1.PodList
	if err := a.Client.List(ctx, &pods, client.InNamespace(a.Namespace)); err != nil {
		return nil, fmt.Errorf("list pods in %s: %w", v.scope, err)
	}
	workloads := map[record.Name]string{}
	var nodes []string
	var unmanaged past.Unmanaged
	for i := range pods.Items {
		p := &pods.Items[i]
		unmanaged.Add(p)
		if p.Spec.NodeName != "" {
			workloads[record.Name{Namespace: p.Namespace, Name: p.Name}] = kube.Workload(p)
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if len(nodes) > MostNodes {
		v.note("The pods are on %d nodes; the recordings of %d are read.", len(nodes), MostNodes)
		nodes = nodes[:MostNodes]
	}
	var seen advise.Seen
	known := func(n record.Name) (string, bool) { w, ok := workloads[n]; return w, ok }
	var failed error
	for i, node := range nodes {
		fmt.Fprintf(s.Err, "reading the recording of node %s (%d of %d)\n", node, i+1, len(nodes))
		source := past.Source{Node: node, Connect: func() (*cluster.Access, error) { return a, nil }}
		rec, err := source.Read(ctx, s)
		if err == nil {
			err = seen.Add(rec, known)
		}
		if err != nil {
			failed = err
			v.note("Node %s is left out: %s.", node, format.OneLine(err.Error()))
			continue
		}
		v.Nodes = append(v.Nodes, node)
	}
	if len(v.Nodes) == 0 && failed != nil {
		return nil, failed
	}
	v.From, v.To, v.Advice = seen.From, seen.To, seen.Advise(cfg)
	v.Notes = append(v.Notes, unmanaged.Changes()...)
	for _, a := range v.Advice {
		name := a.Namespace + "/" + a.Workload
		if b := a.Burstable; b != nil && (slices.Contains(unmanaged.Guaranteed, name) || slices.Contains(unmanaged.BestEffort, name)) {
			v.note("%s/%s, container %s: Burstable with request %v, limit %v.", a.Namespace, a.Workload, a.Container, b.Request, b.Limit)
		}
	}
	return v, nil
}

func (v *View) note(format string, args ...any) {
	v.Notes = append(v.Notes, fmt.Sprintf(format, args...))
}

// method says what the advice is and how far it can be wrong.
const method = "A request covers the demand of %v%% of the seconds, a limit that of %v%%, both with %.0f%% of headroom. RANGE has the lowest and the highest " +
	"of these percentiles in the fifths of the time, without headroom: if they are far apart, the advice depends on when it was " +
	"recorded. Where a container was hindered, its demand is an estimate. Bursts shorter than a second and loads outside of the " +
	"recorded time are not seen. Nothing is changed; -o patch writes patches."

// Text is the advice as a table.
func (v *View) Text(style format.Style) string {
	var b strings.Builder
	if len(v.Advice) == 0 {
		fmt.Fprintf(&b, "No pod in %s is in a recording.\n", v.scope.None())
	} else {
		b.WriteString(v.table().Text(style))
		fmt.Fprintf(&b, "\nRecorded from %s to %s on %s.\n", v.From.UTC().Format("2006-01-02 15:04:05"),
			v.To.UTC().Format("15:04:05 UTC"), format.Plural(len(v.Nodes), "node"))
		b.WriteString(format.Wrap(fmt.Sprintf(method, v.cfg.RequestPercentile, v.cfg.LimitPercentile, 100*v.cfg.Headroom), 100))
	}
	if without := v.without(); without > 0 {
		fmt.Fprintf(&b, "%s without advice: seen for less than %v, which --least changes.\n", format.Plural(without, "container"), v.cfg.Least)
	}
	for _, n := range v.Notes {
		b.WriteString(format.Wrap("Note: "+n, 100))
	}
	return b.String()
}

// without counts the containers that were seen for too short a time.
func (v *View) without() (n int) {
	for _, a := range v.Advice {
		if a.Advised == nil && a.Covered < v.cfg.Least {
			n++
		}
	}
	return n
}

func (v *View) table() *format.Table {
	t := &format.Table{Header: []string{"NAMESPACE", "WORKLOAD", "CONTAINER", "PODS", "TIME", "HINDERED", "REQUEST", "ADVISED", "RANGE", "LIMIT",
		"ADVISED", "RANGE"}, Drop: []string{"PODS", "TIME"}}
	for _, a := range v.Advice {
		request, limit := "-", "-"
		if a.Advised != nil {
			request, limit = a.Advised.Request.String(), format.CPU(a.Advised.Limit)
		}
		limits := span(a.Limits)
		if a.Declared.Limit == 0 {
			limits = ""
		}
		t.Add(a.Namespace, a.Workload, a.Container, fmt.Sprint(a.Pods), format.Age(a.Covered), fmt.Sprintf("%.0f%%", 100*a.Hindered),
			format.CPU(a.Declared.Request), request, span(a.Requests), format.CPU(a.Declared.Limit), limit, limits)
	}
	if v.scope.Namespace != "" {
		t.DropFirst()
	}
	return t
}

func span(r advise.Range) string { return r.Low.String() + ".." + r.High.String() }

// Patch is the advice as patches, with what they rest on as comments.
func (v *View) Patch() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# CPU requests and limits from the recordings of %s, %s to %s.\n", format.Plural(len(v.Nodes), "node"),
		v.From.UTC().Format("2006-01-02 15:04:05"), v.To.UTC().Format("15:04:05 UTC"))
	for _, n := range v.Notes {
		fmt.Fprintf(&b, "# %s\n", n)
	}
	return b.String() + advise.Patch(v.Advice)
}
