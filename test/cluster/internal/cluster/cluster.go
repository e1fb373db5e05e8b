// Package cluster starts a whole cluster, shows its state, and stops it.
//
// Promises:
//   - Up leaves alone what runs, starts what does not, and can be repeated after
//     any interruption; down removes all of it: TestClusterLifecycle.
//   - An add-on is part of the cluster until it is taken down: TestAddons.
//   - No folder is taken over or removed that is not a cluster's: TestFolderOfOthers.
//   - Nothing is done while another cluster has the machine: TestOneCluster.
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
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/mbcas/mbcas/test/cluster/internal/addon"
	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
	"github.com/mbcas/mbcas/test/cluster/internal/vm"
)

// Cluster is one cluster on this machine. Its file in the state folder makes that a cluster's.
type Cluster struct {
	config.Config
	Before *clean.Before            `json:"before"` // the first up
	Nodes  []config.Node            `json:"nodes"`  // added to the first, in the order of their slots
	Addons map[string]time.Duration `json:"addons"` // with their intervals

	programs string      // the folder test/cluster/programs
	kube     build.Cache // the programs built from it
	host     node.Host
	out      io.Writer // progress, one line per step
	started  int       // processes, by this command
}

// errNone says that a folder holds no cluster.
var errNone = errors.New("no cluster")

// Read reads the cluster in the folder state. programs is the folder test/cluster/programs.
func Read(state, programs string, out io.Writer) (*Cluster, error) {
	state, err := resolve(state)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Config: config.Config{State: state}, Addons: map[string]time.Duration{}, programs: programs, out: out}
	raw, err := os.ReadFile(c.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s; start one with: mbcas-cluster up", errNone, state)
	}
	if err == nil {
		err = json.Unmarshal(raw, c)
	}
	for _, n := range c.Nodes {
		err = errors.Join(err, n.ValidateAdded())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.file(), err)
	}
	if c.State != state {
		return nil, fmt.Errorf("%s: is the cluster of the folder %s; a state folder cannot be moved", state, c.State)
	}
	return c, nil
}

// resolve is the path without symlinks, as the table of mounts has it. Nothing need be there yet.
func resolve(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return resolved, err
	}
	if to, err := os.Readlink(path); err == nil { // to a folder that is not there, as after down
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		return resolve(to)
	}
	dir, err := resolve(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// Open locks the folder state and reads the cluster in it.
func Open(ctx context.Context, state, programs string, out io.Writer) (c *Cluster, release func() error, err error) {
	release, err = lock(ctx, state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w in %s; start one with: mbcas-cluster up", errNone, state)
	}
	if err != nil {
		return nil, nil, err
	}
	if c, err = Read(state, programs, out); err != nil {
		return nil, nil, errors.Join(err, release())
	}
	return c, release, nil
}

func (c *Cluster) file() string { return c.Path("cluster.json") }

// unsaved is what an interrupted save leaves.
const unsaved = "cluster.json.tmp"

func (c *Cluster) save() error {
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", c.file(), err)
	}
	part := c.Path(unsaved)
	err = os.WriteFile(part, raw, 0o644)
	if err == nil {
		err = os.Rename(part, c.file())
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return err
}

// lock locks the folder against other commands. The lock is on the
// folder itself, so that down can remove it without leaving a lock file.
func lock(ctx context.Context, dir string) (release func() error, err error) {
	for {
		l := flock.New(dir, flock.SetFlag(os.O_RDONLY))
		if _, err := l.TryLockContext(ctx, 200*time.Millisecond); err != nil {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		mine, err1 := l.Stat()
		now, err2 := os.Stat(dir)
		if err1 == nil && err2 == nil && os.SameFile(mine, now) {
			return l.Close, nil
		}
		_ = l.Close() // the former holder has removed the folder
	}
}

func (c *Cluster) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }

// step runs one step and says how long it took.
func (c *Cluster) step(name string, do func() error) error {
	start := time.Now()
	if err := do(); err != nil {
		return err
	}
	c.say("%-29s %5.1f s", name, time.Since(start).Seconds())
	return nil
}

// Load imports image archives into every node.
func (c *Cluster) Load(ctx context.Context, archives ...string) error {
	if err := c.inspect(); err != nil {
		return err
	}
	for _, archive := range archives {
		if _, err := os.Stat(archive); err != nil {
			return err
		}
		for _, n := range c.nodes() {
			name := "load " + filepath.Base(archive) + " into " + n.Name
			err := c.step(name, func() error { return c.load(ctx, n, archive) })
			if err != nil {
				return fmt.Errorf("load %s into %s: %w", archive, n.Name, err)
			}
		}
	}
	return nil
}

func (c *Cluster) load(ctx context.Context, n config.Node, archive string) error {
	if n.VM != nil {
		return vm.Load(ctx, c.Config, n, archive)
	}
	return node.Load(ctx, c.Inside(n), c.host, archive)
}

// inspect looks at the machine.
func (c *Cluster) inspect() error {
	host, missing := node.Inspect(c.Config)
	if len(missing) > 0 {
		return errors.New(strings.Join(missing, "; "))
	}
	c.host = host
	return nil
}

// Down stops the cluster in the folder state and removes all of it but the cache of built programs.
func Down(ctx context.Context, state string, out io.Writer) error {
	state, err := resolve(state)
	if err != nil {
		return err
	}
	if _, err := os.Stat(state); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(out, "nothing to do: %s does not exist\n", state)
		return nil
	}
	c, release, err := Open(ctx, state, "", out)
	if errors.Is(err, errNone) {
		return fmt.Errorf("%s: is no cluster's state folder; nothing was touched", state)
	}
	if err != nil {
		return err
	}
	defer func() { _ = release() }()
	if err := alone(state); err != nil {
		return err
	}
	// Users of a service stop before it: add-ons, the nodes, then the control plane.
	for _, p := range slices.Backward(c.components()) {
		if err := c.stop(ctx, p.Name); err != nil {
			return err
		}
	}
	if c.Before != nil {
		err = c.step("clean the nodes", func() error { return clean.Nodes(ctx, state, *c.Before) })
	}
	if err != nil {
		return fmt.Errorf("%w\nrun down again; the state folder %s is kept", err, state)
	}
	return clean.RemoveState(state)
}

// stop ends the named process if it runs.
func (c *Cluster) stop(ctx context.Context, name string) error {
	p, ok := proc.Find(c.State, name)
	if !ok {
		return nil
	}
	return c.step("stop "+name, func() error { return p.Stop(ctx, 5*time.Second) })
}

func (c *Cluster) alive(name string) bool {
	_, ok := proc.Find(c.State, name)
	return ok
}

// components are all processes of the cluster in the order of their start.
func (c *Cluster) components() []proc.Program {
	all := c.controlPlane()
	for _, n := range c.nodes() {
		if n.VM != nil {
			all = append(all, vm.Program(c.Config, n, vm.Image{}))
			continue
		}
		runtime, kubelet := node.Programs(c.Config, n, c.host, c.kube.Program)
		all = append(all, runtime, kubelet)
	}
	for _, a := range addon.All() {
		if interval, ok := c.Addons[a.Name]; ok {
			all = append(all, a.Programs(c.Config, interval, c.kube.Program)...)
		}
	}
	return all
}

// Assets builds the programs of a version of Kubernetes, "" for the cluster's own, if
// they are missing, and returns where they are. programs is the folder test/cluster/programs.
func Assets(ctx context.Context, programs, version string, out io.Writer) (build.Cache, error) {
	cache, err := build.OpenVersion(ctx, programs, version)
	if err != nil {
		return cache, err
	}
	return cache, cache.Ensure(ctx, out)
}
