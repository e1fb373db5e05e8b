//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/cluster"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/internal/machine"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/internal/verdict"
	"github.com/mbcas/mbcas/test/load/work"
)

// show is everything from setting up to cleaning up.
type show struct {
	settings
	out        io.Writer
	cluster    cluster.Cluster
	client     client.Client
	guard      *guard.Guard
	node       string
	kernel     cgroup.Node
	iterations int // of work in one request
	facts      facts
	namespaces []string
}

func newShow(s settings, out io.Writer) *show {
	return &show{settings: s, out: out, cluster: cluster.Cluster{Out: out}, facts: facts{Seed: s.seed, Short: s.short, Limit: s.limit, Started: time.Now()}}
}

func (s *show) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// run plays the parts and cleans up, whatever happens in between.
func (s *show) run(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.settings.out, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cleanUp(context.WithoutCancel(ctx))) }()
	if err := s.setUp(ctx); err != nil {
		return err
	}
	var played error
	if s.plays(quotaPart) {
		played = s.playQuota(ctx)
	}
	if s.plays(scalePart) && played == nil {
		played = s.playScale(ctx)
	}
	if errors.Is(played, context.Canceled) {
		s.say("stopped; cleaning up")
		return played
	}
	s.facts.Guard = s.guard.End()
	s.facts.Seconds = time.Since(s.facts.Started).Seconds()
	// What was measured is worth reading even if a later part failed.
	if err := errors.Join(played, s.report()); err != nil || s.short {
		return err
	}
	if met, judged := verdict.Count(s.facts.checks()); met < judged {
		return fmt.Errorf("%d of %d targets missed", judged-met, judged)
	}
	return nil
}

// setUp brings up the cluster with its add-on, MBCAS and the clients.
func (s *show) setUp(ctx context.Context) error {
	s.say("1. cluster")
	if err := s.cluster.Up(ctx); err != nil {
		return err
	}
	if s.plays(scalePart) {
		if err := s.cluster.Addon(ctx, "metrics-server"); err != nil {
			return err
		}
	}
	s.say("2. images and MBCAS")
	if err := s.cluster.Load(ctx, "agent", "controller", "load"); err != nil {
		return err
	}
	if err := s.cluster.Install(ctx, "config/overlays/local"); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	s.facts.Busy = machine.Busy(ctx, 3*time.Second)
	if s.facts.Busy > tooBusy {
		s.say("   note: %dm of CPU are in use by something else; latencies will show that, too", s.facts.Busy)
	}
	return machine.Prefer()
}

func (s *show) connect() error {
	log.SetLogger(logr.Discard()) // else the library complains with a stack trace
	cfg, err := clientcmd.BuildConfigFromFlags("", s.cluster.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst = 50, 100
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if s.client, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if s.node, err = s.cluster.Node(); err != nil {
		return err
	}
	if s.kernel, err = cgroup.Detect("/sys/fs/cgroup"); err != nil {
		return err
	}
	if s.iterations, err = work.Calibrate(requestWork); err != nil {
		return err
	}
	s.guard, err = guard.New(s.cluster.Kubeconfig, s.cluster.Log("audit"))
	return err
}

// open makes a namespace for a part.
func (s *show) open(ctx context.Context, name, mode string) error {
	s.namespaces = append(s.namespaces, name)
	if err := s.client.Create(ctx, namespace(name, mode)); err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}

// close removes the namespace and waits until it is gone.
func (s *show) close(ctx context.Context, name string) error {
	ns := namespace(name, "")
	if err := client.IgnoreNotFound(s.client.Delete(ctx, ns)); err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return poll.Until(ctx, 2*time.Minute, func() string {
		if err := s.client.Get(ctx, client.ObjectKey{Name: name}, ns); apierrors.IsNotFound(err) {
			return ""
		}
		return "namespace " + name + " is still there"
	})
}

// cleanUp takes away everything that was brought.
func (s *show) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Minute)
	defer cancel()
	var err error
	for _, name := range s.namespaces {
		err = errors.Join(err, s.close(ctx, name))
	}
	if s.cluster.Installed {
		s.say("cleaning up: MBCAS")
		err = errors.Join(err, s.cluster.Uninstall(ctx))
	}
	if s.cluster.Found {
		s.say("the cluster ran before and is left running; stop it with: %s down", cluster.Program)
		return err
	}
	return errors.Join(err, s.cluster.Down(ctx))
}

// pods are those of the namespace that are not on their way out, in the order of their names.
func (s *show) pods(ctx context.Context, ns string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := s.client.List(ctx, &list, client.InNamespace(ns)); err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, nil
}

func ready(p *corev1.Pod) bool {
	return p.Status.PodIP != "" && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// limit is the pod's CPU limit in thousandths of a core.
func limit(p *corev1.Pod) (sum int64) {
	for _, c := range p.Spec.Containers {
		sum += c.Resources.Limits.Cpu().MilliValue()
	}
	return sum
}

// rest waits until a time; false when ctx has ended first.
func rest(ctx context.Context, until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
