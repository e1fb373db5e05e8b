//go:build linux

package main

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

// cluster is the local cluster, worked through the programs that people use.
type cluster struct {
	out        io.Writer
	kubeconfig string
	kubectl    string
	// found: it ran before the demo did, so the demo leaves it running.
	found bool
	// started: the demo started it.
	started bool
	// installed: MBCAS was put there by the demo.
	installed bool
}

const program = "bin/mbcas-cluster"

// images that the demo builds and loads.
var images = []string{"agent", "controller", "load"}

// up makes sure that a cluster with a node runs.
func (c *cluster) up(ctx context.Context) error {
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("%s is not built; run the demo with: make demo", program)
	}
	if path, err := output(ctx, program, "kubeconfig"); err == nil {
		c.kubeconfig = path
		c.found = c.tool(ctx, "get", "--raw=/readyz") == nil
	}
	if !c.found {
		c.started = true
		if err := c.show(ctx, program, "up", "--require-node"); err != nil {
			return fmt.Errorf("cluster: %w; look at the lines above, and at: %s status", err, program)
		}
	}
	var err error
	if c.kubeconfig, err = output(ctx, program, "kubeconfig"); err != nil {
		return err
	}
	return nil
}

// tool runs kubectl and drops what it says.
func (c *cluster) tool(ctx context.Context, args ...string) error {
	if c.kubectl == "" {
		assets, err := output(ctx, program, "assets")
		if err != nil {
			return err
		}
		c.kubectl = filepath.Join(assets, "kubectl")
	}
	_, err := output(ctx, c.kubectl, append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
	return err
}

// node is the name of the node on this machine.
func (c *cluster) node() (string, error) {
	path := filepath.Join(filepath.Dir(c.kubeconfig), "cluster.json")
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

// log is a log of the cluster's.
func (c *cluster) log(name string) string {
	return filepath.Join(filepath.Dir(c.kubeconfig), "logs", name+".log")
}

// load builds the images whose programs are built, and loads them into the node.
func (c *cluster) load(ctx context.Context, names ...string) error {
	args := []string{"load"}
	for _, name := range names {
		archive := filepath.Join("out", "images", name+".tar")
		if err := c.show(ctx, program, "image", "--name", "mbcas.io/"+name+":dev", "-o", archive, "bin/mbcas-"+name); err != nil {
			return fmt.Errorf("image %s: %w; is bin/mbcas-%s built? make build", name, err, name)
		}
		args = append(args, archive)
	}
	if err := c.show(ctx, program, args...); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	return nil
}

const system = "mbcas-system"

// install puts MBCAS there and waits until it is Ready.
func (c *cluster) install(ctx context.Context, config string) error {
	c.installed = c.tool(ctx, "get", "namespace", system) != nil
	if err := c.tool(ctx, "apply", "-k", config); err != nil {
		return fmt.Errorf("install %s: %w", config, err)
	}
	if !c.installed { // the image has changed, its name has not
		if err := c.tool(ctx, "-n", system, "rollout", "restart", "daemonset,deployment"); err != nil {
			return fmt.Errorf("restart MBCAS: %w", err)
		}
	}
	return c.ready(ctx)
}

// ready waits until every part of MBCAS is.
func (c *cluster) ready(ctx context.Context) error {
	for _, what := range []string{"daemonset/mbcas-agent", "deployment/mbcas-controller"} {
		if err := c.tool(ctx, "-n", system, "rollout", "status", what, "--timeout=120s"); err != nil {
			return fmt.Errorf("%s is not Ready: %w; look at: kubectl -n %s describe pods, and at their logs", what, err, system)
		}
	}
	return nil
}

// uninstall takes MBCAS away as a user would: it restores every pod first.
func (c *cluster) uninstall(ctx context.Context) error {
	cmd := command(ctx, "config/uninstall.sh")
	cmd.Env = append(os.Environ(), "KUBECTL="+c.kubectl+" --kubeconfig "+c.kubeconfig, "TIMEOUT=60s")
	cmd.Stdout, cmd.Stderr = c.out, c.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("config/uninstall.sh: %w; look at the lines above", err)
	}
	return nil
}

func (c *cluster) down(ctx context.Context) error {
	if !c.started {
		return nil
	}
	return c.show(ctx, program, "down")
}

// show runs a program and shows what it says.
func (c *cluster) show(ctx context.Context, name string, args ...string) error {
	cmd := command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = c.out, c.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

// output runs a program and returns what it says.
func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := command(ctx, name, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

// command ends with ctx, and is first asked to.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}
