//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
	"github.com/mbcas/mbcas/test/evaluation/internal/runner"
	"github.com/mbcas/mbcas/test/evaluation/internal/stage"
	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/cluster"
	"github.com/mbcas/mbcas/test/internal/machine"
)

// overlay is what is installed.
const overlay = "config/overlays/local"

// session is the time from starting the cluster to removing everything.
type session struct {
	settings
	out     io.Writer
	cluster cluster.Cluster
	stage   stage.Stage
	started time.Time
}

func newSession(s settings, out io.Writer) *session {
	return &session{settings: s, out: out, cluster: cluster.Cluster{Out: out}, started: time.Now()}
}

func (s *session) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%s "+format+"\n", append([]any{time.Now().UTC().Format("15:04:05")}, args...)...)
}

// run plays what is left of the plan, and cleans up whatever happens in between.
func (s *session) run(ctx context.Context) (err error) {
	if _, err := os.Stat(s.root); err != nil {
		return fmt.Errorf("%w; build it with: make %s", err, s.root)
	}
	s.say("%d cells, about %v when nothing is measured yet", len(s.plan.Cells()), s.plan.Takes().Round(time.Minute))
	watching, stop := context.WithCancel(context.WithoutCancel(ctx)) // to the end
	defer stop()
	defer func() { err = errors.Join(err, s.cleanUp(context.WithoutCancel(ctx))) }()
	if err := s.setUp(ctx); err != nil {
		return err
	}
	if err := s.connect(ctx, watching); err != nil {
		return err
	}
	if err := machine.Prefer(); err != nil {
		return err
	}
	calibration, err := s.calibrate(ctx)
	if err != nil {
		return err
	}
	s.stage.RequestMS = calibration.RequestMS
	parts, err := stage.ReadParts(ctx, s.stage.Client, "/proc", s.plan.Policies)
	if err != nil {
		return err
	}
	r := runner.Runner{
		Plan: s.plan, Results: s.folder(), Calibration: calibration, Setup: s.stage.Setup,
		Settings: parts.Settings, Play: s.stage.Play, Say: s.say,
	}
	until := time.Time{}
	if s.stopAfter > 0 {
		until = s.started.Add(s.stopAfter)
	}
	left, err := r.Run(ctx, until)
	if left.Cells > 0 {
		s.say("%d cells are left, about %v; the same command goes on with them",
			left.Cells, left.Takes.Round(time.Minute))
	}
	return err
}

// setUp starts the cluster with its add-ons, and installs MBCAS with the component weights, which does nothing in a
// cell whose namespace does not allow it. So no cell follows an installation of its own.
func (s *session) setUp(ctx context.Context) error {
	if err := s.cluster.Up(ctx); err != nil {
		return err
	}
	for _, addon := range s.addons() {
		if err := s.cluster.Addon(ctx, addon); err != nil {
			return err
		}
	}
	config, err := cluster.WithWeights(overlay, s.settings.out)
	if err != nil {
		return err
	}
	if err := s.cluster.Load(ctx, "agent", "controller", "weights"); err != nil {
		return err
	}
	if err := s.cluster.LoadOn(ctx, s.root, "workload"); err != nil {
		return err
	}
	return s.cluster.Install(ctx, config)
}

// addons are those that a policy of the plan needs. They run in every cell, so that they cost the same.
func (s *session) addons() (names []string) {
	if slices.ContainsFunc(s.plan.Policies, func(p plan.Policy) bool { return p.HPA }) {
		names = append(names, "metrics-server")
	}
	if slices.ContainsFunc(s.plan.Policies, func(p plan.Policy) bool { return p.VPA != "" }) {
		names = append(names, "vpa")
	}
	return names
}

// connect connects to the cluster; the pods are watched as long as watching lasts.
func (s *session) connect(ctx, watching context.Context) error {
	log.SetLogger(logr.Discard()) // else the library complains with a stack trace
	config, err := clientcmd.BuildConfigFromFlags("", s.cluster.Kubeconfig)
	if err != nil {
		return err
	}
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	served, err := discover.ServerVersion()
	if err != nil {
		return fmt.Errorf("API server: %w; look at: %s status", err, cluster.Program)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	name, err := s.cluster.Node()
	if err != nil {
		return err
	}
	var node corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	kernel, err := cgroup.Detect("/sys/fs/cgroup")
	if err != nil {
		return err
	}
	pods, err := stage.Watch(watching, config)
	if err != nil {
		return err
	}
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return fmt.Errorf("model of the CPU: %w", err)
	}
	packages, err := s.packages()
	if err != nil {
		return err
	}
	info := node.Status.NodeInfo
	s.stage = stage.Stage{
		Client: c, Pods: pods, Node: name, Kernel: kernel, Audit: s.cluster.Log("audit"), Plan: s.plan,
		Setup: results.Setup{
			MBCAS: version, Kubernetes: served.GitVersion, Kernel: info.KernelVersion, Cgroup: kernel.Cgroup,
			Runtime: info.ContainerRuntimeVersion, Cores: runtime.NumCPU(),
			CPU: results.CPUModel(string(cpuinfo)), Packages: packages, Seed: s.plan.Seed,
		},
	}
	return nil
}

// packages are the versions of the packages in the workloads' image, which root.sh writes beside it.
func (s *session) packages() (string, error) {
	text, err := os.ReadFile(s.root + ".packages")
	if err != nil {
		return "", fmt.Errorf("versions of the workloads' packages: %w; build the image again: remove %s", err, s.root)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", ", "), nil
}

// calibrate measures what a request of each kind of service costs, unless the folder has that of this setup: rates must
// not change between the cells of an evaluation.
func (s *session) calibrate(ctx context.Context) (results.Calibration, error) {
	kinds, setup := s.plan.Kinds(), s.stage.Setup.Identity()
	was, ok, err := s.folder().ReadCalibration(setup, kinds)
	if err != nil || ok {
		return was, err
	}
	c := results.Calibration{Taken: time.Now().UTC(), Setup: setup, RequestMS: map[string]float64{}}
	for _, kind := range kinds {
		ms, known := was.RequestMS[kind]
		if !known {
			if ms, err = s.stage.Calibrate(ctx, kind); err != nil {
				return c, fmt.Errorf("calibration: %w", err)
			}
		}
		s.say("a request of %s takes %.2f ms of CPU", kind, ms)
		c.RequestMS[kind] = ms
	}
	return c, s.folder().WriteCalibration(c)
}

// cleanUp removes MBCAS and the cluster, unless they were there before.
func (s *session) cleanUp(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if s.cluster.Installed {
		s.say("cleaning up: MBCAS")
		err = s.cluster.Uninstall(ctx)
	}
	if s.cluster.Found {
		s.say("the cluster ran before and is left running; stop it with: %s down", cluster.Program)
		return err
	}
	return errors.Join(err, s.cluster.Down(ctx))
}
