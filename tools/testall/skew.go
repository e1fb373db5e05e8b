package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// skewed are the packages whose tests are run on other versions of Kubernetes: whoever speaks to the API server about
// pods that run. The left out test needs kube-scheduler, which the other versions are built without.
var skewed = []string{"-skip=^TestTheSchedulerDoesNotMind$", "./actuator/podresize", "./internal/controller"}

// skew runs them on each version that has its pins in test/cluster/skew, and says in one line how each came out.
func (r repo) skew(ctx context.Context) error {
	pins, err := filepath.Glob(filepath.Join(r.root, "test", "cluster", "skew", "v*", "go.mod"))
	if err != nil {
		return err
	}
	defer func() { r.count.where = "" }()
	for _, path := range pins {
		version := strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "v")
		assets, err := r.ask(ctx, "assets", "--version="+version)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.count.skip("skew", "Kubernetes "+version, err.Error())
			continue
		}
		line, err := r.on(ctx, assets)
		if err != nil {
			return err
		}
		fmt.Fprintf(r.out, "   %s\n", line)
	}
	return nil
}

// on runs the tests on the API server in the folder. Its name is what that says of itself.
func (r repo) on(ctx context.Context, assets string) (line string, err error) {
	said, err := exec.CommandContext(ctx, filepath.Join(assets, "kube-apiserver"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s/kube-apiserver --version: %w", assets, err)
	}
	name := strings.TrimSpace(string(said)) // Kubernetes v1.35.4
	start, before := time.Now(), *r.count
	r.count.where = " on " + name
	args := append([]string{"-count=1", "-timeout=20m"}, skewed...)
	if err := goTest(ctx, r.count, r.root, []string{"KUBEBUILDER_ASSETS=" + assets}, args...); err != nil {
		return "", err
	}
	c := r.count
	return fmt.Sprintf("%s: %d passed, %d failed, %d skipped in %s", name,
		c.passed-before.passed, c.failed-before.failed, c.skipped-before.skipped, time.Since(start).Round(time.Second)), nil
}
