package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// skewed are the packages whose requests to the API server depend on its version. The test that is left out needs
// kube-scheduler, which the other versions are built without.
var skewed = []string{"-skip=^TestTheSchedulerDoesNotMind$", "./actuator/podresize", "./internal/controller"}

// skew runs them on each version with a go.mod in test/cluster/skew, and prints a line of results for each.
func (r *repo) skew(ctx context.Context) error {
	pins, err := filepath.Glob(filepath.Join(r.root, "test", "cluster", "skew", "v*", "go.mod"))
	if err != nil {
		return err
	}
	defer func() { r.results.where = "" }()
	for _, path := range pins {
		version := strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "v")
		assets, err := r.ask(ctx, "assets", "--version="+version)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.results.skip("skew", "Kubernetes "+version, err.Error())
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

// on runs the tests on the API server in the folder. Their names end with the version that it prints.
func (r *repo) on(ctx context.Context, assets string) (line string, err error) {
	version, err := exec.CommandContext(ctx, filepath.Join(assets, "kube-apiserver"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s/kube-apiserver --version: %w", assets, err)
	}
	name := strings.TrimSpace(string(version)) // Kubernetes v1.35.4
	start, before := time.Now(), *r.results
	r.results.where = " on " + name
	args := append([]string{"-count=1", "-timeout=20m"}, skewed...)
	if err := goTest(ctx, r.results, r.root, []string{"KUBEBUILDER_ASSETS=" + assets}, args...); err != nil {
		return "", err
	}
	c := r.results
	return fmt.Sprintf("%s: %d passed, %d failed, %d skipped in %s", name,
		c.passed-before.passed, c.failed-before.failed, c.skipped-before.skipped, time.Since(start).Round(time.Second)), nil
}
