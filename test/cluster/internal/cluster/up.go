package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/image"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/pki"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// startLimit is for one program, to serve.
const startLimit = 60 * time.Second

// Up starts what does not run and waits until the cluster can be used. It builds
// the programs in the folder programs first if need be. chosen says that the settings are not just the defaults.
func Up(ctx context.Context, want config.Config, chosen bool, programs string, out io.Writer) error {
	var err error
	if want.State, err = resolve(want.State); err != nil {
		return err
	}
	if err := want.Validate(); err != nil {
		return err
	}
	made, err := makeFolder(want.State)
	if err != nil {
		return fmt.Errorf("no node can run here: %w; it needs root", err)
	}
	release, err := lock(ctx, want.State)
	if err != nil {
		return err
	}
	defer func() {
		if made {
			_ = unix.Rmdir(want.State) // if nothing came of it: then it is empty
		}
		_ = release()
	}()
	c, err := Read(want.State, programs, out)
	switch {
	case errors.Is(err, errNone):
		err = unclaimed(want.State)
		c = &Cluster{Config: want, Addons: map[string]time.Duration{}, programs: programs, out: out}
	case err == nil && chosen && c.Config != want:
		err = fmt.Errorf("%s holds a cluster with other settings; run down first", want.State)
	}
	if err != nil {
		return err
	}
	if err := c.canRun(); err != nil {
		return err
	}
	if c.kube, err = Assets(ctx, programs, "", out); err != nil {
		return err
	}
	return c.up(ctx)
}

// makeFolder says whether it has made the folder: otherwise it was there.
func makeFolder(dir string) (made bool, err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return false, err
	}
	err = os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return false, os.MkdirAll(dir, 0o755) // an error if it is no folder
	}
	return err == nil, err
}

// unclaimed is an error for a folder with files of others.
func unclaimed(state string) error {
	entries, err := os.ReadDir(state)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != unsaved }) {
		return fmt.Errorf("%s: has files but is no cluster's state folder; choose another with --state", state)
	}
	return nil
}

// Obstacle is why no cluster can run here, or nil. It is asked before a cluster is made.
func Obstacle(want config.Config) error { return (&Cluster{Config: want}).canRun() }

// canRun says what the machine lacks, or what else has it now.
func (c *Cluster) canRun() error {
	err := alone(c.State)
	if err == nil {
		err = c.inspect()
	}
	if err == nil && c.Before == nil {
		if found := node.Conflicts(c.Config); len(found) > 0 {
			err = errors.New(strings.Join(found, "; "))
		}
	}
	if err != nil {
		return fmt.Errorf("no node can run here: %w", err)
	}
	return nil
}

// alone is an error if another cluster has the machine: both would use the same
// interface, cgroups, ports and settings of the kernel.
func alone(state string) error {
	others, err := proc.Others(state)
	errs, named := []error{err}, map[string]bool{}
	for _, p := range others {
		if !named[p.State] {
			const what = "another cluster has this machine: %s (pid %d) runs; " +
				"stop it with: mbcas-cluster down --state %s"
			errs = append(errs, fmt.Errorf(what, p.Name, p.PID, p.State))
		}
		named[p.State] = true
	}
	return errors.Join(errs...)
}

func (c *Cluster) up(ctx context.Context) error {
	start := time.Now()
	if err := c.writeFiles(); err != nil {
		return err
	}
	prepared, unprepared, err := each(c.nodes(), c.prepareNode)
	if err != nil {
		return err
	}
	for _, p := range c.controlPlane() {
		if err := c.ensure(ctx, p, startLimit); err != nil {
			return err
		}
	}
	_, unstarted, err := each(prepared, func(n config.Node) error { return c.startNode(ctx, n) })
	if err != nil {
		return err
	}
	if err := c.step("default service account", func() error { return c.defaultServiceAccount(ctx) }); err != nil {
		return err
	}
	if err := c.startAddons(ctx); err != nil {
		return err
	}
	if err := errors.Join(unprepared, unstarted); err != nil {
		return err
	}
	if c.started == 0 {
		c.say("already running: export KUBECONFIG=%s", c.Kubeconfig("admin"))
		return nil
	}
	c.say("up in %.1f s: export KUBECONFIG=%s", time.Since(start).Seconds(), c.Kubeconfig("admin"))
	return nil
}

// writeFiles records the state of the machine before anything changes it, then writes what all components read.
func (c *Cluster) writeFiles() (err error) {
	if c.Before == nil {
		if err := c.canRun(); err != nil { // again: building the programs takes minutes
			return err
		}
		if c.Before, err = clean.Observe(); err != nil {
			return err
		}
		if err := c.save(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.Path("logs"), 0o755); err != nil {
		return err
	}
	if err := pki.Create(c.PKI(""), pki.Leaves(c.APIAddress())); err != nil {
		return err
	}
	if _, err := os.Stat(c.PauseArchive()); err != nil {
		if err := image.Write(node.PauseImage, c.kube.Program("pause"), "", c.PauseArchive()); err != nil {
			return err
		}
	}
	return controlplane.WriteFiles(c.Config)
}

func (c *Cluster) controlPlane() []proc.Program {
	return controlplane.Programs(c.Config, c.kube.Program)
}

// ensure starts p unless it runs, and waits up to the limit until it serves.
func (c *Cluster) ensure(ctx context.Context, p proc.Program, limit time.Duration) error {
	if running, ok := proc.Find(c.State, p.Name); ok {
		if err := wait(ctx, limit, p.Ready, running.Alive); err != nil {
			return fmt.Errorf("%s runs (pid %d) but does not serve: %w; run down, then up", p.Name, running.PID, err)
		}
		return nil
	}
	c.started++
	return c.step(p.Name, func() error {
		log := c.Log(p.Name)
		process, err := proc.Start(ctx, p, c.State, log)
		if err != nil {
			return err
		}
		if err := wait(ctx, limit, p.Ready, process.Alive); err != nil {
			return fmt.Errorf("%s: %w\n%s", p.Name, err, tail(log))
		}
		return nil
	})
}

// defaultServiceAccount waits for the one that every pod of the namespace
// "default" needs.
func (c *Cluster) defaultServiceAccount(ctx context.Context) error {
	return wait(ctx, startLimit, func(ctx context.Context) error {
		var got struct{}
		return controlplane.Get(ctx, c.Config, "/api/v1/namespaces/default/serviceaccounts/default", &got)
	}, nil)
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
	return path + " ends with:\n  " + strings.Join(lines[max(0, len(lines)-10):], "\n  ")
}
