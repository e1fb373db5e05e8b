package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"time"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/program"
	"github.com/mbcas/mbcas/internal/restore"
)

// restoreAll returns every pod to its declared limits.
func restoreAll(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("mbcas-controller restore", flag.ContinueOnError)
	all := fs.Bool("all", false, "restore every pod of the cluster; must be given")
	timeout := fs.Duration("timeout", 2*time.Minute, "give up after this time")
	namespace := fs.String("namespace", kube.SystemNamespace, "namespace that MBCAS runs in")
	kubeconfig := fs.String("kubeconfig", "", "kubeconfig file (default: the pod's service account, else $KUBECONFIG)")
	if err := parse(fs, args, stderr); err != nil {
		return err
	}
	if !*all {
		return program.UsageError{Err: errors.New("restore wants --all: it touches every pod of the cluster; for one namespace use kubectl label namespace NAME mbcas.io/mode=restore --overwrite")}
	}
	c, err := newClient(*kubeconfig)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	cluster := &restore.Cluster{
		Client: c, Resize: podresize.New(c, kube.FieldManager), Namespace: *namespace, Out: stdout,
		Parallel: 8, Now: time.Now, Interval: 500 * time.Millisecond,
	}
	return cluster.Restore(ctx)
}
