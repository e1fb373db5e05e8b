// Package cluster runs the local cluster, and MBCAS on it, through the programs that users run.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Program is mbcas-cluster as make builds it, from the root of the repository.
const Program = "bin/mbcas-cluster"

// System is the namespace of MBCAS.
const System = "mbcas-system"

// Cluster is the local cluster. The working folder is the root of the repository.
type Cluster struct {
	// Out gets the output of the programs.
	Out io.Writer
	// Kubeconfig is the path of the administrator's, once Up has returned.
	Kubeconfig string
	// Found: it ran before, so Down leaves it running.
	Found bool
	// Installed: Install installed MBCAS, so it was not there before.
	Installed bool

	kubectl string
	started bool // by Up
}

// Up makes sure that a cluster with a node runs. A cluster that runs already is taken as it is.
func (c *Cluster) Up(ctx context.Context) (err error) {
	if _, err := os.Stat(Program); err != nil {
		return fmt.Errorf("%s is not built; build it with: make %s", Program, Program)
	}
	if c.Kubeconfig, err = c.run(ctx, nil, Program, "kubeconfig"); err == nil {
		_, err := c.Kubectl(ctx, "get", "--raw=/readyz")
		c.Found = err == nil
	}
	if !c.Found {
		c.started = true
		if _, err := c.run(ctx, c.Out, Program, "up"); err != nil {
			return fmt.Errorf("cluster: %w; look at the lines above, and at: %s status", err, Program)
		}
	}
	c.Kubeconfig, err = c.run(ctx, nil, Program, "kubeconfig")
	return err
}

// Kubectl runs kubectl, and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	if c.kubectl == "" {
		assets, err := c.run(ctx, nil, Program, "assets")
		if err != nil {
			return "", err
		}
		c.kubectl = filepath.Join(assets, "kubectl")
	}
	return c.run(ctx, nil, c.kubectl, append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
}

// Node is the name of the node on this machine.
func (c *Cluster) Node() (string, error) {
	path := filepath.Join(filepath.Dir(c.Kubeconfig), "cluster.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var settings struct{ NodeName string }
	if err := json.Unmarshal(text, &settings); err != nil || settings.NodeName == "" {
		return "", fmt.Errorf("%s: it names no node: %w", path, err)
	}
	return settings.NodeName, nil
}

// Log is the path of a log of the cluster.
func (c *Cluster) Log(name string) string {
	return filepath.Join(filepath.Dir(c.Kubeconfig), "logs", name+".log")
}

// Addon starts an add-on of the cluster, unless it runs.
func (c *Cluster) Addon(ctx context.Context, name string) error {
	_, err := c.run(ctx, c.Out, Program, "addon", "up", name)
	return err
}

// Load builds the images of programs in bin/, and loads them into the node.
func (c *Cluster) Load(ctx context.Context, names ...string) error {
	load := []string{"load"}
	for _, name := range names {
		archive, err := c.image(ctx, name)
		if err != nil {
			return err
		}
		load = append(load, archive)
	}
	_, err := c.run(ctx, c.Out, Program, load...)
	return err
}

// LoadOn builds the image of a program in bin/ on a root file system, a tar archive, and loads it into the node.
func (c *Cluster) LoadOn(ctx context.Context, base, name string) error {
	archive, err := c.image(ctx, name, "--base", base)
	if err != nil {
		return err
	}
	_, err = c.run(ctx, c.Out, Program, "load", archive)
	return err
}

// image builds the image of a program in bin/, and returns the path of its archive.
func (c *Cluster) image(ctx context.Context, name string, flags ...string) (string, error) {
	archive := filepath.Join("out", "images", name+".tar")
	args := []string{"image", "--name", "mbcas.io/" + name + ":dev", "-o", archive, "bin/mbcas-" + name}
	if _, err := c.run(ctx, c.Out, Program, append(args, flags...)...); err != nil {
		return "", fmt.Errorf("%w; is bin/mbcas-%s built? make build", err, name)
	}
	return archive, nil
}

// Install installs MBCAS and waits until it is Ready.
func (c *Cluster) Install(ctx context.Context, config string) error {
	_, err := c.Kubectl(ctx, "get", "namespace", System)
	c.Installed = err != nil
	if _, err := c.Kubectl(ctx, "apply", "-k", config); err != nil {
		return fmt.Errorf("install %s: %w", config, err)
	}
	if !c.Installed { // the image has changed, its name has not
		if _, err := c.Kubectl(ctx, "-n", System, "rollout", "restart", "daemonset,deployment"); err != nil {
			return fmt.Errorf("restart MBCAS: %w", err)
		}
	}
	return c.Ready(ctx)
}

// Ready waits until every part of MBCAS is.
func (c *Cluster) Ready(ctx context.Context) error {
	for _, what := range []string{"daemonset/mbcas-agent", "deployment/mbcas-controller"} {
		if _, err := c.Kubectl(ctx, "-n", System, "rollout", "status", what, "--timeout=120s"); err != nil {
			return fmt.Errorf("%s is not Ready: %w; look at: kubectl -n %s describe pods, and at their logs",
				what, err, System)
		}
	}
	return nil
}

// Uninstall removes MBCAS as a user would: it restores every pod first.
func (c *Cluster) Uninstall(ctx context.Context) error {
	kubectl := "KUBECTL=" + c.kubectl + " --kubeconfig " + c.Kubeconfig
	_, err := c.run(ctx, c.Out, "env", kubectl, "TIMEOUT=60s", "config/uninstall.sh")
	return err
}

// Down removes a cluster that Up started.
func (c *Cluster) Down(ctx context.Context) (err error) {
	if c.started {
		_, err = c.run(ctx, c.Out, Program, "down")
	}
	return err
}

// run runs a program and returns its output, or shows it where show is not nil. The program is
// interrupted when ctx ends, and killed when it has not ended 30 s later.
func (c *Cluster) run(ctx context.Context, show io.Writer, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	var out, messages strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &messages
	if show != nil {
		cmd.Stdout, cmd.Stderr = show, io.MultiWriter(show, &messages)
	}
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, messages.String())
	}
	return strings.TrimSpace(out.String()), err
}
