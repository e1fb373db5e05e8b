package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/addon"
	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/pki"
)

// addonLimit is for a program of an add-on, from its start to its first answer.
// metrics-server needs two scrapes of the nodes for that.
const addonLimit = 3 * time.Minute

// addonRecord is an add-on that the cluster has. Its file in the state folder makes
// it come back with the cluster after a crash.
type addonRecord struct {
	Interval time.Duration `json:"interval"`
}

func addonFile(c config.Config, a addon.Addon) string {
	return filepath.Join(a.Dir(c), "addon.json")
}

// addonOf reads the add-on's record; ok is false when the cluster has none.
func (c Cluster) addonOf(a addon.Addon) (rec addonRecord, ok bool, err error) {
	path := addonFile(c.Config, a)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return rec, false, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &rec)
	}
	if err != nil {
		return rec, false, fmt.Errorf("%s: %w", path, err)
	}
	return rec, true, nil
}

// AddonUp runs the add-on beside the cluster, after what it needs, and waits until
// it answers. Zero is the interval that it has, or has as shipped. programs is the
// folder test/cluster/programs.
func (c Cluster) AddonUp(ctx context.Context, programs string, a addon.Addon, interval time.Duration) error {
	if !c.Config.Node {
		return fmt.Errorf("%s watches pods, and this cluster has no node for any", a.Name)
	}
	kube, err := Assets(ctx, programs, "", c.Out)
	if err != nil {
		return err
	}
	if a.Needs != "" {
		needed, err := addon.Find(a.Needs)
		if err != nil {
			return err
		}
		if err := c.AddonUp(ctx, programs, needed, 0); err != nil {
			return fmt.Errorf("%s, which %s needs: %w", needed.Name, a.Name, err)
		}
	}
	cache, err := c.addonPrograms(ctx, programs, a)
	if err != nil {
		return err
	}
	release, err := lock(ctx, c.Config.State)
	if err != nil {
		return err
	}
	defer release()
	rec, have, err := c.addonOf(a)
	switch {
	case err != nil:
		return err
	case have && interval != 0 && interval != rec.Interval:
		return fmt.Errorf("%s runs with --interval %v; run addon down %[1]s first", a.Name, rec.Interval)
	case !have:
		rec.Interval = interval
		if interval == 0 {
			rec.Interval = a.Interval
		}
		if err := c.prepareAddon(a); err != nil {
			return err
		}
	}
	if err := c.step(a.Name+" objects", func() error { return c.applyAddon(ctx, kube, a, cache) }); err != nil {
		return err
	}
	if !have {
		if err := writeJSON(addonFile(c.Config, a), rec); err != nil {
			return err
		}
	}
	if _, err := c.startAddon(ctx, cache, a, rec); err != nil {
		return fmt.Errorf("%w\nremove it with: mbcas-cluster addon down %s", err, a.Name)
	}
	return nil
}

// addonPrograms builds the add-on's programs if they are missing.
func (c Cluster) addonPrograms(ctx context.Context, programs string, a addon.Addon) (build.Cache, error) {
	cache, err := a.Open(ctx, programs)
	if err != nil {
		return cache, err
	}
	return cache, cache.Ensure(ctx, c.Out)
}

// prepareAddon writes what the add-on's programs read. A former, interrupted one is
// written over.
func (c Cluster) prepareAddon(a addon.Addon) error {
	if err := pki.IssueMore(a.PKI(c.Config), a.Leaves(c.Config), c.Config.PKI("")); err != nil {
		return err
	}
	files, err := a.Files(c.Config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.Dir(c.Config), 0o755); err != nil {
		return err
	}
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// applyAddon makes the add-on's API objects as they should be.
func (c Cluster) applyAddon(ctx context.Context, kube build.Cache, a addon.Addon, cache build.Cache) error {
	for _, path := range a.Manifests(c.Config, cache) {
		// Server-side: the client would note the whole of a CRD in an annotation.
		err := c.kubectl(ctx, kube, "apply", "--server-side", "--force-conflicts", "--field-manager=mbcas-cluster", "--filename="+path)
		if err != nil {
			return err
		}
	}
	if a.Serves == "" {
		return nil
	}
	return wait(ctx, startLimit, func(ctx context.Context) error {
		var got struct{}
		return controlplane.Get(ctx, c.Config, a.Serves, &got)
	}, nil)
}

// startAddon starts what of the add-on does not run, and returns how much that was.
func (c Cluster) startAddon(ctx context.Context, cache build.Cache, a addon.Addon, rec addonRecord) (started int, err error) {
	programs := a.Programs(c.Config, rec.Interval, cache.Program)
	alive := false
	for _, p := range programs {
		r, ok := c.records().Load(p.Name)
		alive = alive || ok && r.Alive()
	}
	if !alive {
		if err := c.deleteMade(ctx, a); err != nil {
			return 0, err
		}
	}
	for _, p := range programs {
		n, err := c.ensure(ctx, p, addonLimit)
		if err != nil {
			return started, err
		}
		started += n
	}
	return started, nil
}

// startAddons brings back the add-ons that the cluster has.
func (c Cluster) startAddons(ctx context.Context, programs string) (started int, err error) {
	for _, a := range addon.All() {
		rec, ok, err := c.addonOf(a)
		if err != nil {
			return started, err
		}
		if !ok {
			continue
		}
		cache, err := c.addonPrograms(ctx, programs, a)
		if err != nil {
			return started, err
		}
		n, err := c.startAddon(ctx, cache, a, rec)
		if err != nil {
			return started, err
		}
		started += n
	}
	return started, nil
}

// deleteMade deletes what the add-on's programs had made for themselves.
func (c Cluster) deleteMade(ctx context.Context, a addon.Addon) error {
	for _, path := range a.Makes {
		if err := controlplane.Delete(ctx, c.Config, path); err != nil {
			return err
		}
	}
	return nil
}

// AddonDown stops the add-on and removes it from the cluster. Its rights go before
// its programs, so that these make nothing anew.
func (c Cluster) AddonDown(ctx context.Context, programs string, a addon.Addon) error {
	kube, err := Assets(ctx, programs, "", c.Out)
	if err != nil {
		return err
	}
	cache, err := c.addonPrograms(ctx, programs, a)
	if err != nil {
		return err
	}
	release, err := lock(ctx, c.Config.State)
	if err != nil {
		return err
	}
	defer release()
	if err := c.checkUnneeded(a); err != nil {
		return err
	}
	if _, err := os.Stat(a.Dir(c.Config)); errors.Is(err, fs.ErrNotExist) {
		c.say("nothing to do: %s is not up", a.Name)
		return nil
	}
	err = c.step("remove "+a.Name, func() error {
		for _, path := range a.Manifests(c.Config, cache) {
			if err := c.kubectl(ctx, kube, "delete", "--ignore-not-found", "--filename="+path); err != nil {
				return err
			}
		}
		return c.deleteMade(ctx, a)
	})
	if err != nil {
		return err
	}
	for _, name := range a.Names(c.Config) {
		if err := errors.Join(c.stop(ctx, name), c.records().Delete(name)); err != nil {
			return err
		}
	}
	return errors.Join(c.deleteMade(ctx, a), os.RemoveAll(a.PKI(c.Config)), os.RemoveAll(a.Dir(c.Config)))
}

// checkUnneeded is an error while the cluster has an add-on that needs this one.
func (c Cluster) checkUnneeded(a addon.Addon) error {
	for _, other := range addon.All() {
		_, has, err := c.addonOf(other)
		if err != nil {
			return err
		}
		if has && other.Needs == a.Name {
			return fmt.Errorf("%s needs %s; first run: mbcas-cluster addon down %[1]s", other.Name, a.Name)
		}
	}
	return nil
}

// kubectl runs the cluster's own kubectl as its administrator. What the user of this
// program has set for theirs is left out.
func (c Cluster) kubectl(ctx context.Context, kube build.Cache, args ...string) error {
	args = append(args, "--kubeconfig="+c.Config.Kubeconfig("admin"), "--cache-dir="+c.Config.Path("kubectl"))
	cmd := exec.CommandContext(ctx, kube.Program("kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBERC=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

func writeJSON(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.WriteFile(path+".tmp", raw, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
