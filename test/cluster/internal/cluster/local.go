package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// LocalNodes are the further nodes of this machine, in the order of their slots.
func (c Cluster) LocalNodes() ([]node.LocalNode, error) {
	return recorded(c, localNodes, func(s node.LocalNode) int { return s.Index })
}

// AddLocalNode records a further node of this machine and starts it.
func (c Cluster) AddLocalNode(ctx context.Context, cache build.Cache, s node.LocalNode) error {
	release, err := lock(ctx, c.Config.State)
	if err != nil {
		return err
	}
	defer release()
	if s.Index, s.Name, err = c.allocateSlot(s.Name, node.LocalNodeName); err != nil {
		return err
	}
	if err := s.Inside(c.Config).Validate(); err != nil {
		return fmt.Errorf("node %s: %w", s.Name, err)
	}
	if err := c.record(localNodes, s.Name, s); err != nil {
		return err
	}
	_, err = c.startLocalNodes(ctx, cache, []node.LocalNode{s})
	return err
}

// startLocalNodes starts what does not run of the nodes, waits until they are Ready, and returns how many processes it started.
func (c Cluster) startLocalNodes(ctx context.Context, cache build.Cache, all []node.LocalNode) (started int, err error) {
	if len(all) == 0 {
		return 0, nil
	}
	host, missing := node.Inspect(c.Config)
	if len(missing) > 0 {
		return 0, errors.New(strings.Join(missing, "; "))
	}
	var errs []error
	for _, s := range all {
		n, err := c.startLocalNode(ctx, cache, host, s)
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w\nremove it with: mbcas-cluster node remove %[1]s", s.Name, err))
		}
		started += n
	}
	return started, errors.Join(errs...)
}

func (c Cluster) startLocalNode(ctx context.Context, cache build.Cache, host node.Host, s node.LocalNode) (started int, err error) {
	var began time.Time // nothing is down: any heartbeat is good
	programs := []proc.Program{s.Runtime(c.Config, host), s.Kubelet(c.Config, cache.Program)}
	if slices.ContainsFunc(programs, func(p proc.Program) bool { return !c.alive(p.Name) }) {
		began = time.Now()
	}
	if kubelet := programs[1]; !c.alive(kubelet.Name) { // which has new certificates looked at
		if err := s.Prepare(c.Config, host); err != nil {
			return 0, err
		}
	}
	for i, p := range programs {
		n, err := c.ensure(ctx, p, startLimit)
		if err != nil {
			return started, err
		}
		started += n
		if i == 0 { // at each start, as the one before may have been interrupted
			if err := c.copyImages(ctx, host, s); err != nil {
				return started, err
			}
		}
	}
	err = c.step(s.Name+" Ready", func() error {
		return wait(ctx, nodeLimit, func(ctx context.Context) error { return node.Ready(ctx, c.Config, s.Name, began) }, nil)
	})
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, tail(c.Config.Log(programs[1].Name)))
	}
	return started, err
}

// copyImages gives a node the images of the first one that it lacks: the pause image, and those that were loaded before it was added.
func (c Cluster) copyImages(ctx context.Context, host node.Host, s node.LocalNode) error {
	has, err := node.Images(ctx, s.Inside(c.Config), host)
	if err != nil {
		return err
	}
	archive, err := c.exportImages(ctx, host, has)
	if archive == "" || err != nil {
		return err
	}
	defer os.Remove(archive)
	return c.step("load images into "+s.Name, func() error { return node.Load(ctx, s.Inside(c.Config), host, archive) })
}

// removeLocalNode stops a further node of this machine and removes all of it.
func (c Cluster) removeLocalNode(ctx context.Context, s node.LocalNode) error {
	names := s.Processes()
	for _, name := range names {
		if err := c.stop(ctx, name); err != nil {
			return err
		}
	}
	if err := clean.RemoveLocalNode(ctx, s.Dir(c.Config), s.Name, c.records()); err != nil {
		return err
	}
	if err := s.RemoveAddress(c.Config); err != nil {
		return err
	}
	// What is left of its pods is removed by the cluster's own garbage collection.
	if err := controlplane.Delete(ctx, c.Config, "/api/v1/nodes/"+s.Name); err != nil {
		return err
	}
	if err := clean.RemoveState(s.Dir(c.Config)); err != nil {
		return err
	}
	return c.deleteRecord(localNodes, s.Name, names...)
}
