package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/plane"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
	"github.com/mbcas/mbcas/test/cluster/internal/vm"
)

// programs are all processes of the cluster in the order of their start.
func (c Cluster) programs(cache build.Cache, host node.Host) []proc.Program {
	all := plane.Programs(c.Config, cache.Program)
	if c.Config.Node {
		all = append(all, node.Runtime(c.Config, host), node.Kubelet(c.Config, cache.Program))
	}
	return all
}

// Status prints what runs and how it is. The error says what does not.
func (c Cluster) Status(ctx context.Context, cache build.Cache) error {
	var host node.Host
	if c.Config.Node {
		host, _ = node.Inspect(c.Config)
	}
	var sick []string
	w := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COMPONENT\tPID\tHEALTH")
	for _, p := range c.programs(cache, host) {
		pid, health := c.health(ctx, p)
		if health != "ok" {
			sick = append(sick, p.Name)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, pid, health)
	}
	machines, err := c.Machines()
	if err != nil {
		return err
	}
	for _, m := range machines {
		pid, health := c.health(ctx, m.Program(c.Config, vm.Image{}))
		if health != "ok" {
			sick = append(sick, m.Process())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", m.Process(), pid, health)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	nodes := [][2]string{{"node", "none (control plane alone)"}}
	if c.Config.Node {
		nodes = nil
		names := []string{c.Config.NodeName}
		for _, m := range machines {
			names = append(names, m.Name)
		}
		for _, name := range names {
			state := name + " Ready"
			if err := node.Ready(ctx, c.Config, name, time.Time{}); err != nil {
				state = oneLine(err)
				sick = append(sick, "node "+name)
			}
			nodes = append(nodes, [2]string{"node", state})
		}
	}
	c.say("")
	w = tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	for _, row := range append(nodes, [][2]string{
		{"kubernetes", cache.Versions.Kubernetes},
		{"etcd", cache.Versions.Etcd},
		{"containerd", runtimeVersion(ctx, c)},
		{"cgroups", string(node.Cgroups())},
		{"psi", psi()},
		{"api", c.Config.APIURL()},
		{"kubeconfig", c.Config.Kubeconfig("admin")},
		{"logs", c.Config.Path("logs")},
		{"programs", cache.Dir()},
	}...) {
		fmt.Fprintf(w, "%s\t%s\n", row[0], row[1])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(sick) > 0 {
		return fmt.Errorf("not well: %s; run up to start what is missing", strings.Join(sick, ", "))
	}
	return nil
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
