// Package cluster runs the local cluster, and MBCAS on it, through the programs that users run.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
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
func (c *Cluster) Up(ctx context.Context, flags ...string) error {
	if _, err := os.Stat(Program); err != nil {
		return fmt.Errorf("%s is not built; build it with: make %s", Program, Program)
	}
	if path, err := output(ctx, Program, "kubeconfig"); err == nil {
		c.Kubeconfig = path
		_, err := c.Kubectl(ctx, "get", "--raw=/readyz")
		c.Found = err == nil
	}
	if !c.Found {
		c.started = true
		if err := c.show(ctx, Program, append([]string{"up"}, flags...)...); err != nil {
			return fmt.Errorf("cluster: %w; look at the lines above, and at: %s status", err, Program)
		}
	}
	var err error
	c.Kubeconfig, err = output(ctx, Program, "kubeconfig")
	return err
}

// Kubectl runs kubectl, and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	if c.kubectl == "" {
		assets, err := output(ctx, Program, "assets")
		if err != nil {
			return "", err
		}
		c.kubectl = filepath.Join(assets, "kubectl")
	}
	return output(ctx, c.kubectl, append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
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

// Addon starts an add-on of the cluster.
func (c *Cluster) Addon(ctx context.Context, name string, flags ...string) error {
	if err := c.show(ctx, Program, append([]string{"addon", "up", name}, flags...)...); err != nil {
		return fmt.Errorf("add-on %s: %w; look at the lines above", name, err)
	}
	return nil
}

// Load builds the images of programs in bin/, and loads them into the node.
func (c *Cluster) Load(ctx context.Context, names ...string) error {
	args := []string{"load"}
	for _, name := range names {
		archive := filepath.Join("out", "images", name+".tar")
		err := c.show(ctx, Program, "image", "--name", "mbcas.io/"+name+":dev", "-o", archive, "bin/mbcas-"+name)
		if err != nil {
			return fmt.Errorf("image %s: %w; is bin/mbcas-%s built? make build", name, err, name)
		}
		args = append(args, archive)
	}
	if err := c.show(ctx, Program, args...); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	return nil
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
	cmd := command(ctx, "config/uninstall.sh")
	cmd.Env = append(os.Environ(), "KUBECTL="+c.kubectl+" --kubeconfig "+c.Kubeconfig, "TIMEOUT=60s")
	cmd.Stdout, cmd.Stderr = c.Out, c.Out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("config/uninstall.sh: %w; look at the lines above", err)
	}
	return nil
}

// Down removes a cluster that Up started.
func (c *Cluster) Down(ctx context.Context) error {
	if !c.started {
		return nil
	}
	return c.show(ctx, Program, "down")
}

// show runs a program and shows its output.
func (c *Cluster) show(ctx context.Context, name string, args ...string) error {
	cmd := command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = c.Out, c.Out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

// output runs a program and returns its output.
func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := command(ctx, name, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		said := strings.TrimSpace(string(exit.Stderr))
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, said)
	}
	return strings.TrimSpace(string(out)), err
}

// command is interrupted when ctx ends, and killed when it has not ended 30 s later.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}
