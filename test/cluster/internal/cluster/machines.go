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
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/plane"
	"github.com/mbcas/mbcas/test/cluster/internal/vm"
)

// machineLimit is for a virtual node, from its start to Ready. An emulated
// processor beside a busy cluster takes its time.
const machineLimit = 10 * time.Minute

// Machines are the virtual nodes of the cluster, in the order of their slots.
func (c Cluster) Machines() ([]vm.Machine, error) {
	return recorded(c, machines, func(m vm.Machine) int { return m.Index })
}

// AddMachine records a virtual node and starts it.
func (c Cluster) AddMachine(ctx context.Context, cache build.Cache, m vm.Machine) error {
	release, err := hold(ctx, c.Config.State)
	if err != nil {
		return err
	}
	defer release()
	if m.Index, m.Name, err = c.place(m.Name, vm.Name); err != nil {
		return err
	}
	img, err := vm.Open(cache)
	if err != nil {
		return err
	}
	if err := img.Ensure(ctx, cache, c.Out); err != nil {
		return err
	}
	if err := c.record(machines, m.Name, m); err != nil {
		return err
	}
	if err := c.startMachines(ctx, cache, []vm.Machine{m}); err != nil {
		return fmt.Errorf("%w\nremove it with: mbcas-cluster node remove %s", err, m.Name)
	}
	return nil
}

// startMachines starts those that do not run and waits until their nodes are Ready.
func (c Cluster) startMachines(ctx context.Context, cache build.Cache, all []vm.Machine) error {
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
		if err := c.machineReady(ctx, m, img, began); err != nil {
			return err
		}
	}
	return nil
}

// machineReady waits for the machine's first process, then for its node.
func (c Cluster) machineReady(ctx context.Context, m vm.Machine, img vm.Image, began time.Time) error {
	stop := build.Report(c.Out, 15*time.Second, func() string {
		return fmt.Sprintf("  %s: starting for %s; it writes to %s", m.Name, time.Since(began).Round(time.Second), c.Config.Log(m.Process()))
	})
	defer stop()
	rec, _ := c.records().Load(m.Process())
	for _, stage := range []struct {
		name string
		run  func() error
	}{
		{m.Name + " booted", func() error { return wait(ctx, machineLimit, m.Program(c.Config, img).Ready, rec.Alive) }},
		{"load images into " + m.Name, func() error { return c.loadMachine(ctx, m) }},
		{m.Name + " Ready", func() error {
			return wait(ctx, machineLimit, func(ctx context.Context) error { return node.Ready(ctx, c.Config, m.Name, began) }, rec.Alive)
		}},
	} {
		if err := c.step(stage.name, stage.run); err != nil {
			return fmt.Errorf("%s: %w\n%s", m.Name, err, tail(c.Config.Log(m.Process())))
		}
	}
	return nil
}

// loadMachine gives a virtual node the images that were loaded before it was added, once.
func (c Cluster) loadMachine(ctx context.Context, m vm.Machine) error {
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
	return c.record(machines, m.Name, m)
}

// removeMachine stops a virtual node and removes all of it.
func (c Cluster) removeMachine(ctx context.Context, m vm.Machine) error {
	if err := c.stop(ctx, m.Process()); err != nil {
		return err
	}
	if err := clean.RemoveLink(c.Config.Tap(m.Index)); err != nil {
		return err
	}
	// What is left of its pods is removed by the cluster's own garbage collection.
	if err := plane.Delete(ctx, c.Config, "/api/v1/nodes/"+m.Name); err != nil {
		return err
	}
	if err := os.RemoveAll(m.Dir(c.Config)); err != nil {
		return err
	}
	return c.forget(machines, m.Name, m.Process())
}
