package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/image"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/pki"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

const (
	startLimit = 60 * time.Second  // of one program, to serve
	nodeLimit  = 120 * time.Second // of the node, to be Ready
)

// Up starts what does not run and waits until the cluster can be used. It builds
// the programs in the folder source first if need be.
func (c Cluster) Up(ctx context.Context, source string) error {
	if err := c.Config.Validate(); err != nil {
		return err
	}
	if err := c.checkConflicts(); err != nil {
		return err
	}
	cache, err := Assets(ctx, source, "", c.Out)
	if err != nil {
		return err
	}
	start := time.Now()
	release, err := c.claim(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := pki.Issue(c.Config.PKI(""), pki.Leaves(c.Config.NodeName, c.Config.ServiceIP(), c.Config.NodeIP())); err != nil {
		return err
	}
	if err := controlplane.WriteFiles(c.Config); err != nil {
		return err
	}
	started, err := c.startFirst(ctx, cache)
	if err != nil {
		return err
	}
	have, err := c.added()
	if err != nil {
		return err
	}
	n, broken := c.startLocalNodes(ctx, cache, have.local) // which keeps nothing else from starting
	started += n
	if err := c.startVirtualNodes(ctx, cache, have.virtual); err != nil {
		return err
	}
	if err := c.step("default service account", func() error { return c.defaultServiceAccount(ctx) }); err != nil {
		return err
	}
	addons, err := c.startAddons(ctx, source)
	if err != nil {
		return err
	}
	started += addons
	if broken != nil {
		return broken
	}
	if started == 0 {
		c.say("already running: export KUBECONFIG=%s", c.Config.Kubeconfig("admin"))
		return nil
	}
	c.say("up in %.1f s: export KUBECONFIG=%s", time.Since(start).Seconds(), c.Config.Kubeconfig("admin"))
	return nil
}

// startFirst starts what does not run of the control plane and the first node, waits for it, and returns how many processes it started.
func (c Cluster) startFirst(ctx context.Context, cache build.Cache) (started int, err error) {
	began := time.Now()
	var host node.Host
	if c.Config.Node {
		if host, err = c.prepareNode(); err != nil {
			return 0, err
		}
	}
	run := func(programs ...proc.Program) error {
		for _, p := range programs {
			n, err := c.ensure(ctx, p, startLimit)
			if err != nil {
				return err
			}
			started += n
		}
		return nil
	}
	if err := run(controlplane.Programs(c.Config, cache.Program)...); err != nil || !c.Config.Node {
		return started, err
	}
	if err := run(node.Runtime(c.Config, host)); err != nil {
		return started, err
	}
	if err := c.pauseImage(ctx, cache, host); err != nil {
		return started, err
	}
	if err := run(node.Kubelet(c.Config, cache.Program)); err != nil {
		return started, err
	}
	if started == 0 {
		began = time.Time{} // nothing was down: any heartbeat is good
	}
	err = c.step("node Ready", func() error {
		return wait(ctx, nodeLimit, func(ctx context.Context) error { return node.Ready(ctx, c.Config, c.Config.NodeName, began) }, nil)
	})
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, tail(c.Config.Log("kubelet")))
	}
	return started, err
}

// prepareNode records the state of the machine before it changes it, then makes the bridge
// and the node's files.
func (c Cluster) prepareNode() (node.Host, error) {
	host, missing := node.Inspect(c.Config)
	if len(missing) > 0 {
		return host, errors.New(strings.Join(missing, "; "))
	}
	if _, err := os.Stat(c.Config.Before()); errors.Is(err, fs.ErrNotExist) {
		if found := node.Conflicts(c.Config); len(found) > 0 {
			return host, errors.New(strings.Join(found, "; "))
		}
		before, err := clean.Observe()
		if err != nil {
			return host, err
		}
		if err := before.Save(c.Config.Before()); err != nil {
			return host, err
		}
	}
	if err := node.AddBridge(c.Config); err != nil {
		return host, err
	}
	return host, node.WriteFiles(c.Config, host)
}

// ensure starts p unless it runs, waits up to the limit until it serves, and returns
// how many processes it started.
func (c Cluster) ensure(ctx context.Context, p proc.Program, limit time.Duration) (int, error) {
	if rec, ok := c.records().Load(p.Name); ok && rec.Alive() {
		if err := wait(ctx, limit, p.Ready, rec.Alive); err != nil {
			return 0, fmt.Errorf("%s runs (pid %d) but does not serve: %w; run down, then up", p.Name, rec.PID, err)
		}
		return 0, nil
	}
	return 1, c.step(p.Name, func() error {
		log := c.Config.Log(p.Name)
		rec, err := c.records().Start(p, log)
		if err != nil {
			return err
		}
		if err := wait(ctx, limit, p.Ready, rec.Alive); err != nil {
			return fmt.Errorf("%s: %w\n%s", p.Name, err, tail(log))
		}
		return nil
	})
}

// defaultServiceAccount waits for the one that every pod of the namespace
// "default" needs.
func (c Cluster) defaultServiceAccount(ctx context.Context) error {
	return wait(ctx, startLimit, func(ctx context.Context) error {
		var got struct{}
		return controlplane.Get(ctx, c.Config, "/api/v1/namespaces/default/serviceaccounts/default", &got)
	}, nil)
}

func (c Cluster) pauseArchive() string { return c.Config.Path("pause.tar") }

// pauseImage builds and imports the image without which no pod starts.
func (c Cluster) pauseImage(ctx context.Context, cache build.Cache, host node.Host) error {
	archive := c.pauseArchive()
	if _, err := os.Stat(archive); err == nil {
		return nil // imported by a former up
	}
	return c.step("pause image", func() error {
		building := archive + ".build"
		err := image.Write(image.Spec{
			Name:       node.PauseImage,
			Entrypoint: []string{"/pause"},
			User:       image.NonRoot,
			Files:      []image.File{{From: cache.Program("pause"), To: "/pause"}},
		}, building)
		if err != nil {
			return err
		}
		if err := node.Load(ctx, c.Config, host, building); err != nil {
			return err
		}
		return os.Rename(building, archive)
	})
}

// wait calls ready every 100 ms until it is nil. It gives up at the limit, or when
// the process behind it is no longer alive.
func wait(ctx context.Context, limit time.Duration, ready func(context.Context) error, alive func() bool) error {
	deadline := time.Now().Add(limit)
	for {
		err := ready(ctx)
		switch {
		case err == nil:
			return nil
		case alive != nil && !alive():
			return errors.New("ended while it started")
		case time.Now().After(deadline):
			return fmt.Errorf("not after %s: %w", limit, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// tail is the end of a log, for an error message.
func tail(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) > 10 {
		lines = lines[len(lines)-10:]
	}
	return path + " ends with:\n  " + strings.Join(lines, "\n  ")
}

// Settings returns the recorded settings of the cluster in want.State, or want if
// there is none. Settings of a cluster do not change while it exists.
func Settings(want config.Config, chosen bool) (config.Config, error) {
	have, ok, err := Recorded(want.State)
	if err != nil || !ok {
		return want, err
	}
	if chosen && have != want {
		return have, fmt.Errorf("%s holds a cluster with other settings; run down first", want.State)
	}
	return have, nil
}
