package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/addon"
	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// Status prints the components and their health. The error names those that do not work.
func (c *Cluster) Status(ctx context.Context) (err error) {
	if c.kube, err = build.Open(ctx, c.programs, build.Kubernetes); err != nil {
		return err
	}
	c.host, _ = node.Inspect(c.Config)
	var failed []string
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COMPONENT\tPID\tHEALTH")
	for _, p := range c.components() {
		pid, health := c.health(ctx, p)
		if health != "ok" {
			failed = append(failed, p.Name)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, pid, health)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	c.say("")
	failedNodes, err := c.describe(ctx)
	if err != nil {
		return err
	}
	if failed = append(failed, failedNodes...); len(failed) > 0 {
		return fmt.Errorf("not healthy: %s; run up to start what is missing", strings.Join(failed, ", "))
	}
	return nil
}

// describe prints what the cluster consists of, and returns the nodes that are not Ready.
func (c *Cluster) describe(ctx context.Context) (failed []string, err error) {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, n := range c.nodes() {
		state := "Ready"
		if err := node.Ready(ctx, c.Config, n.Name, time.Time{}); err != nil {
			state = oneLine(err)
			failed = append(failed, "node "+n.Name)
		}
		fmt.Fprintf(w, "node\t%s %s\n", n.Name, state)
	}
	for _, a := range addon.All() {
		if interval, ok := c.Addons[a.Name]; ok {
			cache, err := a.Open(ctx, c.programs)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(w, "add-on\t%s %s, every %v\n", a.Name, a.Version(cache), interval)
		}
	}
	runtime, err := node.RuntimeVersion(ctx, c.Config, c.NodeName)
	if err != nil {
		runtime = oneLine(err)
	}
	pressure := "on"
	if _, err := os.Stat("/proc/pressure/cpu"); err != nil {
		pressure = "off (boot with psi=1)"
	}
	for _, row := range [][2]string{
		{"kubernetes", c.kube.Versions[build.KubernetesModule]},
		{"etcd", c.kube.Versions[build.EtcdModule]},
		{"containerd", runtime},
		{"hpa", fmt.Sprintf("every %v", c.HPASync)},
		{"cgroups", string(c.host.Cgroups)},
		{"psi", pressure},
		{"api", c.APIURL()},
		{"kubeconfig", c.Kubeconfig("admin")},
		{"logs", c.Path("logs")},
		{"programs", c.kube.Dir()},
	} {
		fmt.Fprintf(w, "%s\t%s\n", row[0], row[1])
	}
	return failed, w.Flush()
}

func (c *Cluster) health(ctx context.Context, p proc.Program) (pid, health string) {
	running, ok := proc.Find(c.State, p.Name)
	if !ok {
		return "-", "does not run"
	}
	if err := p.Ready(ctx); err != nil {
		return fmt.Sprint(running.PID), oneLine(err)
	}
	return fmt.Sprint(running.PID), "ok"
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
