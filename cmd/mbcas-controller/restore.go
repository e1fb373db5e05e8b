package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/program"
	"github.com/mbcas/mbcas/internal/restore"
)

// restoreFlags reads the flags of the command restore: all but the connection is in the Cluster.
func restoreFlags(args []string, stderr io.Writer) (c *restore.Cluster, kubeconfig string, timeout time.Duration, err error) {
	c = &restore.Cluster{Now: time.Now, Interval: 500 * time.Millisecond}
	fs := flag.NewFlagSet("mbcas-controller restore", flag.ContinueOnError)
	all := fs.Bool("all", false, "restore every pod of the cluster; must be given")
	fs.DurationVar(&timeout, "timeout", 30*time.Minute, "give up after this time, and say what is left; another run does the rest")
	fs.IntVar(&c.Workers, "workers", 32, "pods that are restored at the same time")
	fs.Float64Var(&c.Rate, "rate", 200, "pods per second that are begun at most")
	fs.StringVar(&c.Namespace, "namespace", kube.SystemNamespace, "namespace that MBCAS runs in")
	fs.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's service account, else $KUBECONFIG)")
	if err := parse(fs, args, stderr); err != nil {
		return nil, "", 0, err
	}
	switch {
	case !*all:
		err = errors.New("restore wants --all: it touches every pod of the cluster; for one namespace use kubectl label namespace NAME mbcas.io/mode=restore --overwrite")
	case c.Workers < 1 || !(c.Rate > 0):
		err = fmt.Errorf("--workers and --rate are %d and %v: want at least 1 and more than 0", c.Workers, c.Rate)
	}
	if err != nil {
		return nil, "", 0, program.UsageError{Err: err}
	}
	return c, kubeconfig, timeout, nil
}

// restoreAll returns every pod to its declared limits. Audit lines go to stdout, as the controller's
// do; what people read goes to stderr.
func restoreAll(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cluster, kubeconfig, timeout, err := restoreFlags(args, stderr)
	if err != nil {
		return err
	}
	// A pod costs one request to resize it, and sometimes a dry run and a read.
	c, err := newClient(kubeconfig, 3*cluster.Rate)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cluster.Client, cluster.Resize, cluster.Out = c, podresize.New(c, kube.FieldManager), stderr
	cluster.Audit = slog.New(slog.NewJSONHandler(stdout, nil)).With("audit", true)
	return cluster.Restore(ctx)
}
