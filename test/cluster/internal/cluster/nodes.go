package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
	"github.com/mbcas/mbcas/test/cluster/internal/vm"
)

// Limits of a node, from its start to Ready. An emulated processor beside a busy cluster takes its time.
const (
	nodeLimit    = 120 * time.Second
	virtualLimit = 10 * time.Minute
	// virtualAttempts bounds the starts of a machine that stops while it starts.
	virtualAttempts = 3
)

// nodes are all nodes of the cluster.
func (c *Cluster) nodes() []config.Node { return append([]config.Node{c.First()}, c.Nodes...) }

// AddNode records a node and starts it.
func (c *Cluster) AddNode(ctx context.Context, n config.Node) (err error) {
	if c.Before == nil {
		return errors.New("the cluster has not been up yet: run up first")
	}
	if n.Index, n.Name, err = freeSlot(c.nodes(), n); err != nil {
		return err
	}
	if n.VM != nil {
		n.SystemReservedCPU = c.SystemReservedCPU
	}
	in := c.Inside(n)
	in.NodeName, in.SystemReservedCPU = n.Name, n.SystemReservedCPU
	if err := in.Validate(); err != nil {
		return err
	}
	if c.kube, err = Assets(ctx, c.programs, "", c.out); err != nil {
		return err
	}
	if err := c.inspect(); err != nil {
		return err
	}
	if n.VM != nil {
		if _, err := c.vmImage(ctx); err != nil {
			return err
		}
	}
	c.Nodes = append(c.Nodes, n)
	slices.SortFunc(c.Nodes, func(a, b config.Node) int { return a.Index - b.Index })
	if err := c.save(); err != nil {
		return err
	}
	if err := c.prepareNode(n); err != nil {
		return broken(n, err)
	}
	return broken(n, c.startNode(ctx, n))
}

// broken is the error of a node, with the way out for one that was added.
func broken(n config.Node, err error) error {
	if err != nil && n.Index > 0 {
		return fmt.Errorf("node %s: %w\nremove it with: mbcas-cluster node remove %[1]s", n.Name, err)
	}
	return err
}

// each calls do for the nodes and returns those for which it is done. An added node's error is one of
// failed, and keeps nothing else from starting; the first node's ends it.
func each(nodes []config.Node, do func(config.Node) error) (done []config.Node, failed, err error) {
	for _, n := range nodes {
		err := broken(n, do(n))
		switch {
		case err == nil:
			done = append(done, n)
		case n.Index == 0:
			return done, failed, err
		default:
			failed = errors.Join(failed, err)
		}
	}
	return done, failed, nil
}

// freeSlot is the first free slot for a node, and its name, or one by the slot if it has none.
func freeSlot(have []config.Node, n config.Node) (index int, name string, err error) {
	usual := func(i int) string { return fmt.Sprintf("mbcas-node-%d", i+1) }
	if n.VM != nil {
		usual = func(i int) string { return fmt.Sprintf("mbcas-vm-%d", i) }
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(have, func(n config.Node) bool { return n.Name == name })
	}
	for slices.ContainsFunc(have, func(n config.Node) bool { return n.Index == index }) {
		index++
	}
	if index == config.Slots {
		return 0, "", fmt.Errorf("the cluster has %d further nodes; remove one with: mbcas-cluster node remove %s",
			index-1, have[1].Name)
	}
	name = n.Name
	for i := index; name == ""; i++ {
		if !taken(usual(i)) {
			name = usual(i)
		}
	}
	if taken(name) {
		return 0, "", fmt.Errorf("a node %s exists already", name)
	}
	return index, name, nil
}

// prepareNode makes what a node of this machine needs, unless its kubelet runs.
func (c *Cluster) prepareNode(n config.Node) error {
	processes := n.Processes()
	if n.VM != nil || c.alive(processes[len(processes)-1]) {
		return nil
	}
	return node.Prepare(c.Config, n, c.host)
}

// startNode starts what does not run of the node and waits until it is Ready.
func (c *Cluster) startNode(ctx context.Context, n config.Node) error {
	if n.VM != nil {
		return c.startVirtual(ctx, n)
	}
	return c.startLocal(ctx, n)
}

// startLocal starts a node of this machine.
func (c *Cluster) startLocal(ctx context.Context, n config.Node) error {
	runtime, kubelet := node.Programs(c.Config, n, c.host, c.kube.Program)
	var began time.Time // nothing is down: any heartbeat is good
	if !c.alive(runtime.Name) || !c.alive(kubelet.Name) {
		began = time.Now()
	}
	if err := c.ensure(ctx, runtime, startLimit); err != nil {
		return err
	}
	if err := c.copyImages(ctx, n); err != nil { // at each start, as the one before may have been interrupted
		return err
	}
	if err := c.ensure(ctx, kubelet, startLimit); err != nil {
		return err
	}
	err := c.step(n.Name+" Ready", func() error {
		return wait(ctx, nodeLimit, c.ready(n, began), nil)
	})
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, tail(c.Log(kubelet.Name)))
	}
	return err
}

func (c *Cluster) ready(n config.Node, began time.Time) func(context.Context) error {
	return func(ctx context.Context) error { return node.Ready(ctx, c.Config, n.Name, began) }
}

// copyImages gives a node of this machine the images that it lacks: the first one the pause image, any
// other those of the first.
func (c *Cluster) copyImages(ctx context.Context, n config.Node) error {
	has, err := node.Images(ctx, c.Inside(n), c.host)
	if err != nil {
		return err
	}
	archive := c.PauseArchive()
	if n.Index > 0 {
		if archive, err = c.exportImages(ctx, has); archive == "" || err != nil {
			return err
		}
		defer os.Remove(archive)
	} else if slices.Contains(has, node.PauseImage) {
		return nil
	}
	return c.step("load images into "+n.Name, func() error { return c.load(ctx, n, archive) })
}

// exportImages writes the images of the first node to an archive, but for those that a new node has.
// It returns "" if there are none. The caller removes the archive.
func (c *Cluster) exportImages(ctx context.Context, has []string) (archive string, err error) {
	images, err := node.Images(ctx, c.Config, c.host)
	if err != nil {
		return "", err
	}
	images = slices.DeleteFunc(images, func(name string) bool { return slices.Contains(has, name) })
	if len(images) == 0 {
		return "", nil
	}
	archive = c.Path("images.tar")
	return archive, node.Export(ctx, c.Config, c.host, archive, images...)
}

func (c *Cluster) vmImage(ctx context.Context) (vm.Image, error) {
	img, err := vm.Open(c.kube)
	if err != nil {
		return img, err
	}
	return img, img.Ensure(ctx, c.kube, c.out)
}

// startVirtual starts a virtual node. A machine that stops while it starts is started anew, from a fresh disk.
func (c *Cluster) startVirtual(ctx context.Context, n config.Node) error {
	name := n.Processes()[0]
	if c.alive(name) {
		return nil
	}
	img, err := c.vmImage(ctx)
	if err != nil {
		return err
	}
	first := c.Path("node-init")
	if err := c.kube.NodeInit(ctx, first); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := c.bootVirtual(ctx, n, img, first)
		if attempt == virtualAttempts || !errors.As(err, new(vm.StuckError)) {
			return err
		}
		fmt.Fprintf(c.out, "  %s: start %d of %d failed: %v\n", n.Name, attempt, virtualAttempts, err)
		if err := c.stop(ctx, name); err != nil {
			return err
		}
		n.VM.Loaded = false // in c too: it is the same machine
		if err := errors.Join(vm.RemoveDisk(c.Config, n), c.save()); err != nil {
			return err
		}
	}
}

// bootVirtual starts the machine of a virtual node, that machine's first process, then the node. The error
// has a vm.StuckError if the machine stopped.
func (c *Cluster) bootVirtual(ctx context.Context, n config.Node, img vm.Image, first string) error {
	began, log, program := time.Now(), c.Log(n.Processes()[0]), vm.Program(c.Config, n, img)
	stop := build.Report(c.out, 15*time.Second, func() string {
		return fmt.Sprintf("  %s: starting for %s; it writes to %s", n.Name, time.Since(began).Round(time.Second), log)
	})
	defer stop()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var machine proc.Process
	for _, stage := range []struct {
		name string
		run  func() error
	}{
		{"start " + n.Name, func() (err error) {
			if err := vm.Prepare(ctx, c.Config, n, img, first); err != nil {
				return err
			}
			c.started++
			from := size(log)
			if machine, err = proc.Start(ctx, program, c.State, log); err == nil {
				go vm.Watch(ctx, log, from, end)
			}
			return err
		}},
		{n.Name + " booted", func() error { return wait(ctx, virtualLimit, program.Ready, machine.Alive) }},
		{"load images into " + n.Name, func() error { return c.loadVirtual(ctx, n) }},
		{n.Name + " Ready", func() error {
			return wait(ctx, virtualLimit, c.ready(n, began), machine.Alive)
		}},
	} {
		if err := c.step(stage.name, stage.run); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("%w\n%s", err, tail(log))
		}
	}
	return nil
}

// size is that of a file, or 0 if there is none.
func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// loadVirtual gives a virtual node the images that were loaded before it was added, once.
func (c *Cluster) loadVirtual(ctx context.Context, n config.Node) error {
	if n.VM.Loaded {
		return nil
	}
	archive, err := c.exportImages(ctx, []string{node.PauseImage})
	if err != nil {
		return err
	}
	if archive != "" {
		defer os.Remove(archive)
		if err := c.load(ctx, n, archive); err != nil {
			return err
		}
	}
	n.VM.Loaded = true // in c too: it is the same machine
	return c.save()
}

// RemoveNode stops a node that was added and removes all of it.
func (c *Cluster) RemoveNode(ctx context.Context, name string) error {
	i := slices.IndexFunc(c.Nodes, func(n config.Node) bool { return n.Name == name })
	if i < 0 {
		return fmt.Errorf("no node %s that was added", name)
	}
	n := c.Nodes[i]
	for _, process := range slices.Backward(n.Processes()) {
		if err := c.stop(ctx, process); err != nil {
			return err
		}
	}
	var err error
	if n.VM != nil {
		err = clean.RemoveLink(config.Tap(n.Index))
	} else if err = clean.LocalNode(ctx, c.State, c.Dir(n), n); err == nil {
		err = node.RemoveAddress(c.Config, n)
	}
	if err != nil {
		return err
	}
	// What is left of its pods is removed by the cluster's own garbage collection.
	if err := controlplane.Delete(ctx, c.Config, "/api/v1/nodes/"+name); err != nil {
		return err
	}
	if err := clean.RemoveState(c.Dir(n)); err != nil {
		return err
	}
	c.Nodes = slices.Delete(c.Nodes, i, i+1)
	return c.save()
}
