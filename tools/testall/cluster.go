package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// downTimeout is how long the cluster may take to stop, also after an interrupt.
const downTimeout = 3 * time.Minute

// errNoNode says why the end-to-end tests cannot run here.
var errNoNode = errors.New("no node")

// localCluster is the cluster that the end-to-end suites share.
type localCluster struct {
	env  []string // of the tests; nil: it was not started
	ours bool     // this run started it, and stops it
}

// e2e returns a suite: the tests of test/e2e that the flags select, on the shared cluster.
func (r *repo) e2e(flags ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		err := r.startCluster(ctx)
		if errors.Is(err, errNoNode) {
			r.results.skip("test/e2e", "test/e2e", err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		r.results.perTest = true
		defer func() { r.results.perTest = false }()
		return goTest(ctx, r.results, r.root, r.cluster.env, append([]string{"-count=1", "-timeout=60m", "./test/e2e"}, flags...)...)
	}
}

// startCluster starts the local cluster, unless it runs, and loads the images. A cluster that ran before is left running at the end.
func (r *repo) startCluster(ctx context.Context) error {
	if r.cluster.env != nil {
		return nil
	}
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return fmt.Errorf("%w: needs root on Linux", errNoNode)
	}
	up := []string{"up", "--require-node"}
	if r.program(ctx, "kubeconfig") != nil {
		r.cluster.ours = true
		up = append(up, "--hpa-sync=5s") // the HPA acts three times as fast, so the suites take two minutes less
	}
	if err := r.program(ctx, up...); err != nil {
		if strings.Contains(err.Error(), "no node can run here") {
			return fmt.Errorf("%w: %w", errNoNode, err)
		}
		return err
	}
	if err := command(ctx, r.out, r.root, nil, "make", "--no-print-directory", "load"); err != nil {
		return err
	}
	kubeconfig, err := r.ask(ctx, "kubeconfig")
	if err != nil {
		return err
	}
	assets, err := r.assets(ctx)
	if err != nil {
		return err
	}
	r.cluster.env = []string{
		"KUBECONFIG=" + kubeconfig, "KUBEBUILDER_ASSETS=" + assets,
		"PATH=" + assets + string(os.PathListSeparator) + os.Getenv("PATH"),
	}
	return nil
}

// stopCluster stops the cluster that this run started. It runs after an interrupt, too.
func (r *repo) stopCluster(ctx context.Context) {
	if !r.cluster.ours {
		return
	}
	r.cluster = localCluster{}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
	defer cancel()
	if err := r.program(ctx, "down"); err != nil {
		r.results.run("mbcas-cluster down", err)
	}
}

func (r *repo) clusterProgram() string { return filepath.Join(r.root, "bin", "mbcas-cluster") }

// program runs mbcas-cluster and prints its output. An error ends with its last lines.
func (r *repo) program(ctx context.Context, args ...string) error {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, r.clusterProgram(), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.root, r.out, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = downTimeout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("mbcas-cluster %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// ask runs mbcas-cluster and returns the line it prints; its progress is printed.
func (r *repo) ask(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, r.clusterProgram(), args...)
	cmd.Dir, cmd.Stderr = r.root, r.out
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("mbcas-cluster %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// assets is the folder with etcd, kube-apiserver and kubectl. The first time takes minutes.
func (r *repo) assets(ctx context.Context) (string, error) { return r.ask(ctx, "assets") }
