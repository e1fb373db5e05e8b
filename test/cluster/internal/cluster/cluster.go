// Package cluster starts a whole cluster, shows its state, and stops it.
//
// Promises:
//   - Up leaves alone what runs, starts what does not, and can be repeated after
//     any interruption; down removes all of it: TestClusterLifecycle.
//   - An add-on is part of the cluster until it is taken down: TestAddons.
//   - No folder is taken over or removed that is not a cluster's: TestForeignFolder.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/addon"
	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// Cluster is one cluster on this machine.
type Cluster struct {
	Config config.Config
	Out    io.Writer // progress, one line per step
}

func (c Cluster) records() proc.Records {
	return proc.Records{Dir: c.Config.Path("pids"), State: c.Config.State}
}

func (c Cluster) say(format string, args ...any) { fmt.Fprintf(c.Out, format+"\n", args...) }

// step runs one step and says how long it took.
func (c Cluster) step(name string, do func() error) error {
	start := time.Now()
	if err := do(); err != nil {
		return err
	}
	c.say("%-29s %5.1f s", name, time.Since(start).Seconds())
	return nil
}

// Recorded reads the settings of the cluster in the folder state; ok is false
// when there is none.
func Recorded(state string) (c config.Config, ok bool, err error) {
	marker := config.Config{State: state}.Marker()
	raw, err := os.ReadFile(marker)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, err
	}
	c.HPASync = config.KubernetesHPASync // which clusters of former versions do not name
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, false, fmt.Errorf("%s: %w", marker, err)
	}
	if c.State != state {
		return c, false, fmt.Errorf("%s: it is for the folder %s; a state folder cannot be moved", marker, c.State)
	}
	return c, true, nil
}

// Load imports image archives into every node.
func (c Cluster) Load(ctx context.Context, archives ...string) error {
	if !c.Config.Node {
		return errors.New("this cluster has no node to load images into")
	}
	host, missing := node.Inspect(c.Config)
	if len(missing) > 0 {
		return errors.New(missing[0])
	}
	have, err := c.added()
	if err != nil {
		return err
	}
	for _, a := range archives {
		if err := c.step("load "+filepath.Base(a), func() error { return node.Load(ctx, c.Config, host, a) }); err != nil {
			return err
		}
		for _, s := range have.local {
			err := c.step("load "+filepath.Base(a)+" into "+s.Name, func() error { return node.Load(ctx, s.Inside(c.Config), host, a) })
			if err != nil {
				return err
			}
		}
		for _, m := range have.virtual {
			err := c.step("load "+filepath.Base(a)+" into "+m.Name, func() error { return m.Load(ctx, c.Config, a) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Down stops the cluster and removes all of it but the cache of built programs.
func (c Cluster) Down(ctx context.Context) error {
	release, err := lock(ctx, c.Config.State)
	if errors.Is(err, fs.ErrNotExist) {
		c.say("nothing to do: %s does not exist", c.Config.State)
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	if _, ours, err := Recorded(c.Config.State); err != nil || !ours {
		return errors.Join(err, fmt.Errorf("%s: is no cluster's state folder; nothing was touched", c.Config.State))
	}
	have, err := c.added()
	if err != nil { // what they left is found all the same
		c.say("the nodes that were added cannot all be read: %v", err)
	}
	// Users of a service stop before it: add-ons, the nodes, then the control plane.
	var names []string
	for _, a := range addon.All() {
		names = append(names, a.Names(c.Config)...)
	}
	names = append(names, have.processes()...)
	names = append(names, "kubelet", "containerd", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
	for _, name := range names {
		if err := c.stop(ctx, name); err != nil {
			return err
		}
	}
	before, hadNode, err := clean.LoadBefore(c.Config.Before())
	if err != nil {
		return err
	}
	if hadNode {
		err = c.step("clean the node", func() error {
			return clean.Node(ctx, c.Config.State, c.Config.Links(), before, c.records())
		})
	} else {
		err = clean.Strays(ctx, c.records())
	}
	if err != nil {
		return fmt.Errorf("%w\nrun down again; the state folder %s is kept", err, c.Config.State)
	}
	return clean.RemoveState(c.Config.State)
}

// alive says whether the named process runs.
func (c Cluster) alive(name string) bool {
	rec, ok := c.records().Load(name)
	return ok && rec.Alive()
}

// stop ends the named process if it runs.
func (c Cluster) stop(ctx context.Context, name string) error {
	rec, ok := c.records().Load(name)
	if !ok || !rec.Alive() {
		return nil
	}
	return c.step("stop "+name, func() error { return rec.Stop(ctx, 5*time.Second) })
}

// Assets builds the programs of a version of Kubernetes, "" for the cluster's own, if
// they are missing, and returns where they are.
func Assets(ctx context.Context, source, version string, out io.Writer) (build.Cache, error) {
	open := func() (build.Cache, error) { return build.Open(ctx, source, build.Kubernetes) }
	if version != "" {
		open = func() (build.Cache, error) { return build.OpenVersion(ctx, source, version) }
	}
	cache, err := open()
	if err != nil {
		return cache, err
	}
	return cache, cache.Ensure(ctx, out)
}
