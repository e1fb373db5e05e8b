package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/plane"
	"github.com/mbcas/mbcas/test/cluster/internal/vm"
)

// machineLimit is for a virtual node, from its start to Ready. An emulated
// processor beside a busy cluster takes its time.
const machineLimit = 10 * time.Minute

// Machines are the virtual nodes of the cluster, in the order of their slots.
func (c Cluster) Machines() ([]vm.Machine, error) {
	files, err := filepath.Glob(c.Config.Path("vms", "*.json"))
	if err != nil {
		return nil, err
	}
	var all []vm.Machine
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var m vm.Machine
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b vm.Machine) int { return a.Index - b.Index })
	return all, nil
}

func (c Cluster) machineFile(name string) string { return c.Config.Path("vms", name+".json") }

// AddMachine records a virtual node and starts it.
func (c Cluster) AddMachine(ctx context.Context, cache build.Cache, m vm.Machine) error {
	release, err := hold(ctx, c.Config.State)
	if err != nil {
		return err
	}
	defer release()
	if !c.Config.Node {
		return errors.New("a virtual node needs the network of this machine's node, and the cluster has none")
	}
	have, err := c.Machines()
	if err != nil {
		return err
	}
	if m, err = place(c.Config, have, m); err != nil {
		return err
	}
	img, err := vm.Open(cache)
	if err != nil {
		return err
	}
	if err := img.Ensure(ctx, cache, c.Out); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Config.Path("vms"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(c.machineFile(m.Name), raw, 0o644); err != nil {
		return err
	}
	if err := c.startMachines(ctx, cache, []vm.Machine{m}); err != nil {
		return fmt.Errorf("%w\nremove it with: mbcas-cluster node remove %s", err, m.Name)
	}
	return nil
}

// place gives the machine the first free slot, and a name if it has none.
func place(c config.Config, have []vm.Machine, m vm.Machine) (vm.Machine, error) {
	for i := 1; i < config.Slots && m.Index == 0; i++ {
		if !slices.ContainsFunc(have, func(h vm.Machine) bool { return h.Index == i }) {
			m.Index = i
		}
	}
	if m.Index == 0 {
		return m, fmt.Errorf("the cluster has %d virtual nodes already; remove one with: mbcas-cluster node remove %s", len(have), have[0].Name)
	}
	if m.Name == "" {
		m.Name = fmt.Sprintf("mbcas-vm-%d", m.Index)
	}
	if !config.ValidName(m.Name) {
		return m, fmt.Errorf("node name %q: want a DNS label", m.Name)
	}
	taken := m.Name == c.NodeName || slices.ContainsFunc(have, func(h vm.Machine) bool { return h.Name == m.Name })
	if taken {
		return m, fmt.Errorf("a node %s exists already", m.Name)
	}
	return m, nil
}

// startMachines starts those that do not run and waits until their nodes are Ready.
func (c Cluster) startMachines(ctx context.Context, cache build.Cache, machines []vm.Machine) error {
	for _, m := range machines {
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
	limit := machineLimit
	for _, stage := range []struct {
		name  string
		ready func(context.Context) error
	}{
		{m.Name + " booted", m.Program(c.Config, img).Ready},
		{m.Name + " Ready", func(ctx context.Context) error { return node.Ready(ctx, c.Config, m.Name, began) }},
	} {
		err := c.step(stage.name, func() error { return wait(ctx, limit, stage.ready, rec.Alive) })
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", m.Name, err, tail(c.Config.Log(m.Process())))
		}
	}
	return nil
}

// RemoveMachine stops a virtual node and removes all of it.
func (c Cluster) RemoveMachine(ctx context.Context, name string) error {
	release, err := hold(ctx, c.Config.State)
	if err != nil {
		return err
	}
	defer release()
	machines, err := c.Machines()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(machines, func(m vm.Machine) bool { return m.Name == name })
	if i < 0 {
		return fmt.Errorf("no virtual node %s", name)
	}
	m := machines[i]
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
	if err := c.records().Forget(m.Process()); err != nil {
		return err
	}
	return os.Remove(c.machineFile(m.Name))
}
