package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/vm"
)

// Folders of the state folder with a record, and a folder, for each node that was added.
const (
	localNodes   = "nodes" // those of this machine
	virtualNodes = "vms"   // those in emulated machines
)

// recorded are the nodes of one kind, in the order of their slots.
func recorded[N any](c Cluster, kind string, index func(N) int) ([]N, error) {
	files, err := filepath.Glob(c.Config.Path(kind, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []N
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var n N
		if err := json.Unmarshal(raw, &n); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b N) int { return index(a) - index(b) })
	return all, nil
}

// record writes down what the next up starts.
func (c Cluster) record(kind, name string, n any) error {
	if err := os.MkdirAll(c.Config.Path(kind), 0o755); err != nil {
		return err
	}
	return writeJSON(c.recordOf(kind, name), n)
}

// deleteRecord removes the records of a node and of its processes.
func (c Cluster) deleteRecord(kind, name string, processes ...string) error {
	for _, p := range processes {
		if err := c.records().Delete(p); err != nil {
			return err
		}
	}
	return os.Remove(c.recordOf(kind, name))
}

func (c Cluster) recordOf(kind, name string) string { return c.Config.Path(kind, name+".json") }

// added are the nodes that were added to the first.
type added struct {
	local   []node.LocalNode
	virtual []vm.Node
}

func (c Cluster) added() (a added, err error) {
	if a.local, err = c.LocalNodes(); err != nil {
		return a, err
	}
	a.virtual, err = c.VirtualNodes()
	return a, err
}

// slots are what the nodes take of the addresses.
func (a added) slots(c config.Config) []config.Slot {
	var all []config.Slot
	for _, s := range a.local {
		all = append(all, s.Slot(c))
	}
	for _, m := range a.virtual {
		all = append(all, m.Slot(c))
	}
	return all
}

// processes are the names of their processes in the order of their end.
func (a added) processes() []string {
	var all []string
	for _, s := range a.local {
		all = append(all, s.Processes()...)
	}
	for _, m := range a.virtual {
		all = append(all, m.Process())
	}
	return all
}

// allocateSlot gives a node the first free slot, and a name by that if it has none.
func (c Cluster) allocateSlot(name string, usual func(index int) string) (index int, called string, err error) {
	if !c.Config.Node {
		return 0, "", errors.New("a further node needs the network of this machine's node, and the cluster has none")
	}
	if _, up, err := clean.LoadBefore(c.Config.Before()); err != nil || !up {
		return 0, "", errors.Join(err, errors.New("the cluster has not been up yet: run up first"))
	}
	have, err := c.added()
	if err != nil {
		return 0, "", err
	}
	return freeSlot(c.Config, have.slots(c.Config), name, usual)
}

func freeSlot(c config.Config, have []config.Slot, name string, usual func(index int) string) (index int, called string, err error) {
	for i := 1; i < config.Slots && index == 0; i++ {
		if !slices.ContainsFunc(have, func(s config.Slot) bool { return s.Index == i }) {
			index = i
		}
	}
	if index == 0 {
		return 0, "", fmt.Errorf("the cluster has %d further nodes already; remove one with: mbcas-cluster node remove %s", len(have), have[0].Node)
	}
	taken := func(name string) bool {
		return name == c.NodeName || slices.ContainsFunc(have, func(s config.Slot) bool { return s.Node == name })
	}
	for i := index; name == ""; i++ {
		if !taken(usual(i)) {
			name = usual(i)
		}
	}
	if !config.ValidName(name) {
		return 0, "", fmt.Errorf("node name %q: want a DNS label", name)
	}
	if taken(name) {
		return 0, "", fmt.Errorf("a node %s exists already", name)
	}
	return index, name, nil
}

// exportImages writes the images of the first node to an archive, but for those that a new node has. It returns "" if there are none.
// The caller removes the archive.
func (c Cluster) exportImages(ctx context.Context, host node.Host, has []string) (archive string, err error) {
	images, err := node.Images(ctx, c.Config, host)
	if err != nil {
		return "", err
	}
	images = slices.DeleteFunc(images, func(name string) bool { return slices.Contains(has, name) })
	if len(images) == 0 {
		return "", nil
	}
	archive = c.Config.Path("images.tar")
	return archive, node.Export(ctx, c.Config, host, archive, images...)
}

// RemoveNode stops a node that was added and removes all of it.
func (c Cluster) RemoveNode(ctx context.Context, name string) error {
	release, err := lock(ctx, c.Config.State)
	if err != nil {
		return err
	}
	defer release()
	have, err := c.added()
	if err != nil {
		return err
	}
	for _, s := range have.local {
		if s.Name == name {
			return c.removeLocalNode(ctx, s)
		}
	}
	for _, m := range have.virtual {
		if m.Name == name {
			return c.removeVirtualNode(ctx, m)
		}
	}
	return fmt.Errorf("no node %s that was added", name)
}
