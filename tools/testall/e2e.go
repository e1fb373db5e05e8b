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

// downTime is how long the cluster may take to go away, also after an interrupt.
const downTime = 3 * time.Minute

// e2e brings the local cluster up, loads the images, runs test/e2e against it and takes the
// cluster down again. A cluster that ran before is used and left running.
func (r repo) e2e(ctx context.Context) (err error) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		r.count.skip("test/e2e", "test/e2e", "needs root on Linux to run a node")
		return nil
	}
	running := r.program(ctx, "kubeconfig") == nil
	if !running {
		defer func() {
			// The interrupt that ended the suite must not keep the cluster from going away.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTime)
			defer cancel()
			err = errors.Join(err, r.program(ctx, "down"))
		}()
	}
	up := []string{"up", "--require-node"}
	if !running {
		up = append(up, "--hpa-sync=5s") // looks more often than Kubernetes' own, so that the suite takes two minutes less
	}
	if err := r.program(ctx, up...); err != nil {
		if strings.Contains(err.Error(), "no node can run here") {
			r.count.skip("test/e2e", "test/e2e", err.Error())
			return nil
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
	env := []string{
		"KUBECONFIG=" + kubeconfig, "KUBEBUILDER_ASSETS=" + assets, "MBCAS_CLUSTER=" + r.clusterProgram(),
		"PATH=" + assets + string(os.PathListSeparator) + os.Getenv("PATH"),
	}
	r.count.perTest = true
	defer func() { r.count.perTest = false }()
	return goTest(ctx, r.count, r.root, env, "-count=1", "-timeout=60m", "./test/e2e/...")
}

func (r repo) clusterProgram() string { return filepath.Join(r.root, "bin", "mbcas-cluster") }

// program runs mbcas-cluster and shows what it prints. An error ends with its last lines.
func (r repo) program(ctx context.Context, args ...string) error {
	var last bytes.Buffer
	cmd := exec.CommandContext(ctx, r.clusterProgram(), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.root, r.out, &last
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = downTime
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("mbcas-cluster %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(last.String()))
	}
	return nil
}

// ask runs mbcas-cluster and returns the line it prints; its progress is shown.
func (r repo) ask(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, r.clusterProgram(), args...)
	cmd.Dir, cmd.Stderr = r.root, r.out
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("mbcas-cluster %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// assets is the folder with etcd, kube-apiserver and kubectl. The first time takes minutes.
func (r repo) assets(ctx context.Context) (string, error) { return r.ask(ctx, "assets") }
