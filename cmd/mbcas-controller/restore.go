package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"time"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/controller"
	"github.com/mbcas/mbcas/internal/kube"
)

// restore returns every pod to its declared limits.
func restore(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("mbcas-controller restore", flag.ContinueOnError)
	all := fs.Bool("all", false, "restore every pod of the cluster; must be given")
	timeout := fs.Duration("timeout", 2*time.Minute, "give up after this time")
	namespace := fs.String("namespace", kube.SystemNamespace, "namespace that MBCAS runs in")
	kubeconfig := fs.String("kubeconfig", "", "kubeconfig file (default: the pod's service account, else $KUBECONFIG)")
	if err := parse(fs, args, stderr); err != nil {
		return err
	}
	if !*all {
		return usageError{errors.New("restore wants --all: it touches every pod of the cluster; for one namespace use kubectl label namespace NAME mbcas.io/mode=restore --overwrite")}
	}
	c, err := newClient(*kubeconfig)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	r := &controller.Restorer{
		Client: c, Resize: podresize.New(c, kube.FieldManager), Namespace: *namespace, Out: stdout,
		Pods: 8, Now: time.Now, Look: 500 * time.Millisecond,
	}
	return r.All(ctx)
}
