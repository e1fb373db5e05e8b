package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/vm"
)

// virtualNodeLimit is for a virtual node, from its start to Ready. An emulated
// processor beside a busy cluster takes its time.
const virtualNodeLimit = 10 * time.Minute

// VirtualNodes are the virtual nodes of the cluster, in the order of their slots.
func (c Cluster) VirtualNodes() ([]vm.Node, error) {
	return recorded(c, virtualNodes, func(m vm.Node) int { return m.Index })
}

// AddVirtualNode records a virtual node and starts it.
func (c Cluster) AddVirtualNode(ctx context.Context, cache build.Cache, m vm.Node) error {
	release, err := lock(ctx, c.Config.State)
	if err != nil {
		return err
	}
	defer release()
	if m.Index, m.Name, err = c.allocateSlot(m.Name, vm.Name); err != nil {
		return err
	}
	img, err := vm.Open(cache)
	if err != nil {
		return err
	}
	if err := img.Ensure(ctx, cache, c.Out); err != nil {
		return err
	}
	if err := c.record(virtualNodes, m.Name, m); err != nil {
		return err
	}
	if err := c.startVirtualNodes(ctx, cache, []vm.Node{m}); err != nil {
		return fmt.Errorf("%w\nremove it with: mbcas-cluster node remove %s", err, m.Name)
	}
	return nil
}

// startVirtualNodes starts those that do not run and waits until their nodes are Ready.
func (c Cluster) startVirtualNodes(ctx context.Context, cache build.Cache, all []vm.Node) error {
	for _, m := range all {
		if rec, ok := c.records().Load(m.Process()); ok && rec.Alive() {
			continue
		}
		img, err := vm.Open(cache)
		if err != nil {
			return err
		}
		if err := img.Ensure(ctx, cache, c.Out); err != nil {
			return err
		}
		first := filepath.Join(c.Config.Path("vms"), "init")
		if err := cache.NodeInit(ctx, first); err != nil {
			return err
		}
		began := time.Now()
		err = c.step("start "+m.Name, func() error {
			if err := m.Prepare(ctx, c.Config, img, first, began); err != nil {
				return err
			}
			_, err := c.records().Start(m.Program(c.Config, img), c.Config.Log(m.Process()))
			return err
		})
		if err != nil {
			return err
		}
		if err := c.virtualNodeReady(ctx, m, img, began); err != nil {
			return err
		}
	}
	return nil
}

// virtualNodeReady waits for the machine's first process, then for its node.
func (c Cluster) virtualNodeReady(ctx context.Context, m vm.Node, img vm.Image, began time.Time) error {
	stop := build.Report(c.Out, 15*time.Second, func() string {
		return fmt.Sprintf("  %s: starting for %s; it writes to %s", m.Name, time.Since(began).Round(time.Second), c.Config.Log(m.Process()))
	})
	defer stop()
	rec, _ := c.records().Load(m.Process())
	for _, stage := range []struct {
		name string
		run  func() error
	}{
		{m.Name + " booted", func() error { return wait(ctx, virtualNodeLimit, m.Program(c.Config, img).Ready, rec.Alive) }},
		{"load images into " + m.Name, func() error { return c.loadVirtualNode(ctx, m) }},
		{m.Name + " Ready", func() error {
			return wait(ctx, virtualNodeLimit, func(ctx context.Context) error { return node.Ready(ctx, c.Config, m.Name, began) }, rec.Alive)
		}},
	} {
		if err := c.step(stage.name, stage.run); err != nil {
			return fmt.Errorf("%s: %w\n%s", m.Name, err, tail(c.Config.Log(m.Process())))
		}
	}
	return nil
}

// loadVirtualNode gives a virtual node the images that were loaded before it was added, once.
func (c Cluster) loadVirtualNode(ctx context.Context, m vm.Node) error {
	if m.Loaded {
		return nil
	}
	host, missing := node.Inspect(c.Config)
	if len(missing) > 0 {
		return errors.New(strings.Join(missing, "; "))
	}
	archive, err := c.exportImages(ctx, host, []string{node.PauseImage})
	if err != nil {
		return err
	}
	if archive != "" {
		defer os.Remove(archive)
		if err := m.Load(ctx, c.Config, archive); err != nil {
			return err
		}
	}
	m.Loaded = true
	return c.record(virtualNodes, m.Name, m)
}

// removeVirtualNode stops a virtual node and removes all of it.
func (c Cluster) removeVirtualNode(ctx context.Context, m vm.Node) error {
	if err := c.stop(ctx, m.Process()); err != nil {
		return err
	}
	if err := clean.RemoveLink(c.Config.Tap(m.Index)); err != nil {
		return err
	}
	// What is left of its pods is removed by the cluster's own garbage collection.
	if err := controlplane.Delete(ctx, c.Config, "/api/v1/nodes/"+m.Name); err != nil {
		return err
	}
	if err := os.RemoveAll(m.Dir(c.Config)); err != nil {
		return err
	}
	return c.deleteRecord(virtualNodes, m.Name, m.Process())
}
