package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// claim makes the state folder this cluster's, and locks it until release.
func (c Cluster) claim(ctx context.Context) (release func(), err error) {
	entries, err := os.ReadDir(c.Config.State)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	_, ours, err := Recorded(c.Config.State)
	if err != nil {
		return nil, err
	}
	if len(entries) > 0 && !ours {
		return nil, fmt.Errorf("%s: has files but is no cluster's state folder; choose another with --state", c.Config.State)
	}
	if err := os.MkdirAll(c.Config.State, 0o755); err != nil {
		return nil, err
	}
	release, err = lock(ctx, c.Config.State)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"logs", "pids"} {
		if err := os.MkdirAll(c.Config.Path(dir), 0o755); err != nil {
			release()
			return nil, err
		}
	}
	raw, err := json.MarshalIndent(c.Config, "", "  ")
	if err == nil {
		err = os.WriteFile(c.Config.Marker(), raw, 0o644)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// Others returns the settings of the other clusters that run on this machine.
func Others(state string) ([]config.Config, error) {
	states, err := proc.States()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(states, config.RootState) && running(config.RootState) {
		states = append(states, config.RootState) // whose processes a plain user may not read
	}
	var others []config.Config
	for _, s := range states {
		if s == state {
			continue
		}
		// A folder that was removed below a running cluster has no settings.
		if other, ok, err := Recorded(s); err == nil && ok {
			others = append(others, other)
		}
	}
	return others, nil
}

// running says whether any recorded process of the cluster is alive.
func running(state string) bool {
	c := Cluster{Config: config.Config{State: state}}
	return slices.ContainsFunc(c.records().All(), proc.Record.Alive)
}

// Obstacles say why no node can run here beside the control plane that want
// describes. It is called before a cluster is made.
func Obstacles(want config.Config) ([]string, error) {
	if _, missing := node.Inspect(want); len(missing) > 0 {
		return missing, nil
	}
	others, err := Others(want.State)
	if err != nil {
		return nil, err
	}
	for _, o := range others {
		if o.Node {
			return []string{fmt.Sprintf("the cluster in %s has the nodes of this machine (stop it with: mbcas-cluster down --state=%[1]s)", o.State)}, nil
		}
	}
	return node.Conflicts(want), nil
}

// checkConflicts is an error when another cluster has what this one would take.
func (c Cluster) checkConflicts() error {
	others, err := Others(c.Config.State)
	if err != nil {
		return err
	}
	for _, other := range others {
		if what := c.Config.Conflict(other); what != "" {
			return fmt.Errorf("another cluster, in %s, has %s; stop it with: mbcas-cluster down --state=%[1]s", other.State, what)
		}
	}
	return nil
}

// lock locks the folder against other up and down commands. The lock is on the
// folder itself, so that down can remove it without leaving a lock file.
func lock(ctx context.Context, dir string) (release func(), err error) {
	for {
		f, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && same(f, dir) {
			return func() { f.Close() }, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: another command has it: %w", dir, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// same says whether path still is the open folder: the former holder of the lock
// may have removed it.
func same(f *os.File, path string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}
