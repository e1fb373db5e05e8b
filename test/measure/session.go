//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/cluster"
	"github.com/mbcas/mbcas/test/internal/machine"
	"github.com/mbcas/mbcas/test/measure/internal/figures"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// overlay is what is installed, and defaultLimits what is added for runs with default limits.
const (
	overlay       = "config/overlays/local"
	defaultLimits = "config/components/default-limits/policy.yaml"
)

// session is the time from starting the cluster to removing everything.
type session struct {
	settings
	console    *console
	cluster    cluster.Cluster
	config     *rest.Config
	client     client.Client
	node       corev1.Node
	kernel     cgroup.Node
	kubernetes string
	busy       int64
	// defaultLimits: the component may be there.
	defaultLimits bool
}

func newSession(s settings, out io.Writer) *session {
	return &session{settings: s, console: &console{out: out}, cluster: cluster.Cluster{Out: out}}
}

// run plays the scripts and cleans up, whatever happens in between.
func (s *session) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.cleanUp(context.WithoutCancel(ctx), err)) }()
	if err := s.setUp(ctx); err != nil {
		return err
	}
	var missed error
	for i, x := range s.scripts {
		if err := os.MkdirAll(s.folder(x), 0o755); err != nil {
			return err
		}
		m, err := newMeasurement(s, x)
		if err != nil {
			return err
		}
		last := i == len(s.scripts)-1
		if err := m.run(ctx, s.keep && last); errors.Is(err, errMissed) {
			missed = errors.Join(missed, fmt.Errorf("%s: %w", x.Name, err))
		} else if err != nil {
			return fmt.Errorf("%s: %w", x.Name, err)
		}
	}
	return missed
}

// setUp starts the cluster with its add-ons, installs MBCAS and connects.
func (s *session) setUp(ctx context.Context) error {
	s.console.Say("cluster")
	if err := s.cluster.Up(ctx); err != nil {
		return err
	}
	for _, x := range s.scripts {
		for _, name := range x.Addons {
			if err := s.cluster.Addon(ctx, name); err != nil {
				return err
			}
		}
	}
	s.console.Say("images and MBCAS")
	images, config := []string{"agent", "controller", "load"}, overlay
	if slices.ContainsFunc(s.scripts, (*script.Script).Weighs) {
		var err error
		if config, err = cluster.WithWeights(overlay, s.out); err != nil {
			return err
		}
		images = append(images, "weights")
	}
	if err := s.cluster.Load(ctx, images...); err != nil {
		return err
	}
	if err := s.cluster.Install(ctx, config); err != nil {
		return err
	}
	if slices.ContainsFunc(s.scripts, (*script.Script).DefaultsLimits) {
		s.defaultLimits = true
		if _, err := s.cluster.Kubectl(ctx, "apply", "-f", defaultLimits); err != nil {
			return err
		}
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	s.busy = machine.Busy(ctx, 2*time.Second)
	if s.busy > figures.TooBusy {
		s.console.Say("note: other programs use %dm of CPU; that shows in the latencies", s.busy)
	}
	return machine.Prefer()
}

func (s *session) connect(ctx context.Context) error {
	log.SetLogger(logr.Discard()) // else the library complains with a stack trace
	var err error
	if s.config, err = clientcmd.BuildConfigFromFlags("", s.cluster.Kubeconfig); err != nil {
		return err
	}
	s.config.QPS, s.config.Burst = 50, 100
	discover, err := discovery.NewDiscoveryClientForConfig(s.config)
	if err != nil {
		return err
	}
	v, err := discover.ServerVersion()
	if err != nil {
		return fmt.Errorf("API server: %w; look at: %s status", err, cluster.Program)
	}
	s.kubernetes = v.GitVersion
	if s.client, err = client.New(s.config, client.Options{}); err != nil {
		return err
	}
	name, err := s.cluster.Node()
	if err != nil {
		return err
	}
	if err := s.client.Get(ctx, client.ObjectKey{Name: name}, &s.node); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	s.kernel, err = cgroup.Detect("/sys/fs/cgroup")
	return err
}

// cleanUp removes MBCAS and the cluster, unless they are to be kept or were there before.
func (s *session) cleanUp(ctx context.Context, failed error) error {
	if s.keep && s.cluster.Kubeconfig != "" && !errors.Is(failed, context.Canceled) {
		s.console.Say(kept, s.cluster.Kubeconfig, s.scripts[len(s.scripts)-1].Namespaces[0])
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var err error
	if s.defaultLimits {
		_, err = s.cluster.Kubectl(ctx, "delete", "--ignore-not-found", "-f", defaultLimits)
	}
	if s.cluster.Installed {
		s.console.Say("cleaning up: MBCAS")
		err = errors.Join(err, s.cluster.Uninstall(ctx))
	}
	if s.cluster.Found {
		s.console.Say("the cluster ran before and is left running; stop it with: %s down", cluster.Program)
		return err
	}
	return errors.Join(err, s.cluster.Down(ctx))
}

const kept = `
The cluster, MBCAS and the workload are left running, with a hog that spins:

  export KUBECONFIG=%s
  bin/kubectl-mbcas list -A           what MBCAS does to each pod
  kubectl get podallocations -A -w    its decisions, as they come
  kubectl label ns %s mbcas.io/mode=restore --overwrite
                                      back to the declared limits
  bin/mbcas-cluster down              stop everything and remove it without a trace
`
