package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/addon"
	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
	"github.com/mbcas/mbcas/test/cluster/internal/vm"
)

// programs are all processes of the cluster in the order of their start.
func (c Cluster) programs(cache build.Cache, host node.Host) []proc.Program {
	all := controlplane.Programs(c.Config, cache.Program)
	if c.Config.Node {
		all = append(all, node.Runtime(c.Config, host), node.Kubelet(c.Config, cache.Program))
	}
	return all
}

// Status prints the components and their health. The error names those that do not work.
func (c Cluster) Status(ctx context.Context, cache build.Cache) error {
	var host node.Host
	if c.Config.Node {
		host, _ = node.Inspect(c.Config)
	}
	components := c.programs(cache, host)
	have, err := c.added()
	if err != nil {
		return err
	}
	for _, s := range have.local {
		components = append(components, s.Runtime(c.Config, host), s.Kubelet(c.Config, cache.Program))
	}
	for _, m := range have.virtual {
		components = append(components, m.Program(c.Config, vm.Image{}))
	}
	addons, versions, err := c.statusAddons(ctx, cache.Source)
	if err != nil {
		return err
	}
	components = append(components, addons...)

	var failed []string
	w := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COMPONENT\tPID\tHEALTH")
	for _, p := range components {
		pid, health := c.health(ctx, p)
		if health != "ok" {
			failed = append(failed, p.Name)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, pid, health)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	nodes, failedNodes := c.statusNodes(ctx, have.slots(c.Config))
	failed = append(failed, failedNodes...)
	c.say("")
	w = tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	for _, row := range slices.Concat(nodes, [][2]string{
		{"kubernetes", cache.Versions[build.KubernetesModule]},
		{"etcd", cache.Versions[build.EtcdModule]},
		{"containerd", runtimeVersion(ctx, c)},
	}, versions, [][2]string{
		{"hpa", fmt.Sprintf("every %v", c.Config.HPASync)},
		{"cgroups", string(node.Cgroups())},
		{"psi", psi()},
		{"api", c.Config.APIURL()},
		{"kubeconfig", c.Config.Kubeconfig("admin")},
		{"logs", c.Config.Path("logs")},
		{"programs", cache.Dir()},
	}) {
		fmt.Fprintf(w, "%s\t%s\n", row[0], row[1])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("not healthy: %s; run up to start what is missing", strings.Join(failed, ", "))
	}
	return nil
}

// statusNodes are the rows of the nodes, and those that are not Ready.
func (c Cluster) statusNodes(ctx context.Context, added []config.Slot) (rows [][2]string, failed []string) {
	if !c.Config.Node {
		return [][2]string{{"node", "none (control plane alone)"}}, nil
	}
	names := []string{c.Config.NodeName}
	for _, s := range added {
		names = append(names, s.Node)
	}
	for _, name := range names {
		state := name + " Ready"
		if err := node.Ready(ctx, c.Config, name, time.Time{}); err != nil {
			state = oneLine(err)
			failed = append(failed, "node "+name)
		}
		rows = append(rows, [2]string{"node", state})
	}
	return rows, failed
}

// statusAddons are the processes of the add-ons that the cluster has, and a row for
// each.
func (c Cluster) statusAddons(ctx context.Context, programs string) (all []proc.Program, rows [][2]string, err error) {
	for _, a := range addon.All() {
		rec, ok, err := c.addonOf(a)
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			continue
		}
		cache, err := a.Open(ctx, programs)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, a.Programs(c.Config, rec.Interval, cache.Program)...)
		rows = append(rows, [2]string{"add-on", fmt.Sprintf("%s %s, every %v", a.Name, a.Version(cache), rec.Interval)})
	}
	return all, rows, nil
}

func (c Cluster) health(ctx context.Context, p proc.Program) (pid, health string) {
	rec, ok := c.records().Load(p.Name)
	if !ok {
		return "-", "not started"
	}
	if !rec.Alive() {
		return "-", fmt.Sprintf("ended (was pid %d)", rec.PID)
	}
	if err := p.Ready(ctx); err != nil {
		return fmt.Sprint(rec.PID), oneLine(err)
	}
	return fmt.Sprint(rec.PID), "ok"
}

func runtimeVersion(ctx context.Context, c Cluster) string {
	if !c.Config.Node {
		return "-"
	}
	v, err := node.RuntimeVersion(ctx, c.Config)
	if err != nil {
		return oneLine(err)
	}
	return v
}

func psi() string {
	if _, err := os.Stat("/proc/pressure/cpu"); err != nil {
		return "off (boot with psi=1)"
	}
	return "on"
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
