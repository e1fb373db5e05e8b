//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/test/demo/internal/board"
	"github.com/mbcas/mbcas/test/demo/internal/ledger"
	"github.com/mbcas/mbcas/test/demo/internal/record"
	"github.com/mbcas/mbcas/test/demo/internal/script"
	"github.com/mbcas/mbcas/test/demo/internal/shop"
	"github.com/mbcas/mbcas/test/demo/internal/show"
	"github.com/mbcas/mbcas/test/demo/internal/stage"
	"github.com/mbcas/mbcas/test/demo/internal/summary"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/cluster"
	"github.com/mbcas/mbcas/test/internal/machine"
	"github.com/mbcas/mbcas/test/load/work"
)

// demo is one show from setting up to cleaning up.
type demo struct {
	settings
	out     io.Writer
	board   *board.Board
	cluster cluster.Cluster
	stage   stage.Stage
	show    show.Show
	facts   summary.Facts
	runs    []record.Run // in the order of play
	audited int64        // where the audit log ended before the first part
}

func newDemo(s settings, out io.Writer) *demo {
	b := &board.Board{Out: out, PlainEvery: 10 * time.Second}
	if f, ok := out.(*os.File); ok {
		b.Terminal = term.IsTerminal(int(f.Fd()))
	}
	return &demo{
		settings: s, out: out, board: b, cluster: cluster.Cluster{Out: out},
		facts: summary.Facts{Seed: s.seed, Quick: s.quick, Started: time.Now(), Runs: map[string]record.Run{}},
	}
}

// run plays the show and cleans up, whatever happens in between.
func (d *demo) run(ctx context.Context) (err error) {
	if err := os.MkdirAll(d.settings.out, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.cleanUp(context.WithoutCancel(ctx), err)) }()
	if err := d.setUp(ctx); err != nil {
		return err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx)) // to the end of the show
	var watch sync.WaitGroup
	watch.Go(func() { d.stage.Ledger.Follow(watching, d.stage.Client) })
	defer watch.Wait()
	defer stop()

	played := d.play(ctx)
	if errors.Is(played, context.Canceled) {
		d.board.Say("stopped; cleaning up")
		played = errors.Join(played, d.leave(ctx))
		return played
	}
	// What was measured is worth reading even if a later part failed.
	return errors.Join(played, d.report(), d.leave(ctx))
}

// setUp brings up the cluster, MBCAS and the clients.
func (d *demo) setUp(ctx context.Context) error {
	d.board.Say("1. cluster")
	if err := d.cluster.Up(ctx); err != nil {
		return err
	}
	d.board.Say("2. images and MBCAS")
	names := []string{"load"}
	if d.needsMBCAS() && d.install {
		names = []string{"agent", "controller", "load"}
	}
	if err := d.cluster.Load(ctx, names...); err != nil {
		return err
	}
	if d.needsMBCAS() && d.install {
		if err := d.cluster.Install(ctx, d.config); err != nil {
			return err
		}
	} else if d.needsMBCAS() {
		if err := d.cluster.Ready(ctx); err != nil {
			return err
		}
	}
	if err := d.connect(); err != nil {
		return err
	}
	var err error
	if d.show.Node, err = cgroup.Detect("/sys/fs/cgroup"); err != nil {
		return err
	}
	d.facts.Cgroup, d.facts.PSI = d.show.Node.Cgroup, d.show.Node.PSI
	if d.facts.Iterations, err = work.Calibrate(script.RequestWork); err != nil {
		return err
	}
	d.show.Iterations, d.show.Seed, d.show.Ledger = d.facts.Iterations, d.seed, d.stage.Ledger
	d.show.Watch = func(m show.Moment) { d.board.Show(m.Run, m.Phase.Name, m.At, m.End, m.Samples) }
	d.board.Say("   %v of CPU per request are %d iterations, in every run", script.RequestWork, d.facts.Iterations)
	if d.audited, err = audit.Size(d.cluster.Log("audit")); err != nil {
		return err
	}
	return machine.Prefer()
}

func (d *demo) connect() error {
	cfg, err := clientcmd.BuildConfigFromFlags("", d.cluster.Kubeconfig)
	if err != nil {
		return err
	}
	versions, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	v, err := versions.ServerVersion()
	if err != nil {
		return fmt.Errorf("API server: %w; look at: %s status", err, cluster.Program)
	}
	d.facts.Kubernetes = v.GitVersion
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, schedulingv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	node, err := d.cluster.Node()
	if err != nil {
		return err
	}
	d.stage = stage.Stage{Client: c, Ledger: ledger.New(), Node: node}
	return nil
}

// leave takes the workload away, or leaves it for the user.
func (d *demo) leave(ctx context.Context) error {
	if d.keep && ctx.Err() == nil {
		// Something to look at: a hog that wants more than the node sells.
		return errors.Join(d.stage.SetMode(ctx, "enforce"), d.show.Spin(ctx, script.Hog, script.HogThreads, time.Now(), time.Time{}))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	d.board.Say("cleaning up: workload")
	return d.stage.Close(ctx)
}

// cleanUp takes away everything that the demo brought, unless it is to be kept.
func (d *demo) cleanUp(ctx context.Context, failed error) error {
	if d.keep && d.cluster.Kubeconfig != "" && !errors.Is(failed, context.Canceled) {
		d.board.Say(kept, d.cluster.Kubeconfig, shop.Namespaces[0])
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var err error
	if d.cluster.Installed {
		d.board.Say("cleaning up: MBCAS")
		err = d.cluster.Uninstall(ctx)
	}
	if d.cluster.Found {
		d.board.Say("the cluster ran before and is left running; stop it with: %s down", cluster.Program)
		return err
	}
	return errors.Join(err, d.cluster.Down(ctx))
}

const kept = `
The cluster, MBCAS and the workload are left running, with a hog that spins:

  export KUBECONFIG=%s
  bin/kubectl-mbcas list -A           what MBCAS does to each pod
  kubectl get pa -A -w                its decisions, as they come
  kubectl label ns %s mbcas.io/mode=restore --overwrite
                                      back to the declared limits
  bin/mbcas-cluster down              stop everything and remove it without a trace
`
