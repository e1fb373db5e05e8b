package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/addon"
	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/pki"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// addonLimit is for a program of an add-on, from its start to its first answer.
// metrics-server needs two scrapes of the nodes for that.
const addonLimit = 3 * time.Minute

// AddonUp runs the add-on beside the cluster, after what it needs, and waits until
// it answers. Zero is the interval that it has, or has as shipped.
func (c *Cluster) AddonUp(ctx context.Context, a addon.Addon, interval time.Duration) (err error) {
	if c.kube, err = Assets(ctx, c.programs, "", c.out); err != nil {
		return err
	}
	if a.Needs != "" {
		needed, err := addon.Find(a.Needs)
		if err != nil {
			return err
		}
		if err := c.AddonUp(ctx, needed, 0); err != nil {
			return fmt.Errorf("%s, which %s needs: %w", needed.Name, a.Name, err)
		}
	}
	has, ok := c.Addons[a.Name]
	switch {
	case ok && interval != 0 && interval != has:
		return fmt.Errorf("%s runs with --interval %v; run addon down %[1]s first", a.Name, has)
	case !ok && interval == 0:
		interval = a.Interval
	case ok:
		interval = has
	}
	c.Addons[a.Name] = interval
	if err := c.save(); err != nil {
		return err
	}
	if err := c.startAddon(ctx, a); err != nil {
		return fmt.Errorf("%w\nremove it with: mbcas-cluster addon down %s", err, a.Name)
	}
	return nil
}

// addonPrograms builds the add-on's programs if they are missing.
func (c *Cluster) addonPrograms(ctx context.Context, a addon.Addon) (build.Cache, error) {
	cache, err := a.Open(ctx, c.programs)
	if err != nil {
		return cache, err
	}
	return cache, cache.Ensure(ctx, c.out)
}

// startAddons brings back the add-ons that the cluster has.
func (c *Cluster) startAddons(ctx context.Context) error {
	for _, a := range addon.All() {
		if _, ok := c.Addons[a.Name]; ok {
			if err := c.startAddon(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// startAddon starts what of the add-on does not run.
func (c *Cluster) startAddon(ctx context.Context, a addon.Addon) error {
	cache, err := c.addonPrograms(ctx, a)
	if err != nil {
		return err
	}
	programs := a.Programs(c.Config, c.Addons[a.Name], cache.Program)
	if !slices.ContainsFunc(programs, func(p proc.Program) bool { return c.alive(p.Name) }) {
		if err := c.prepareAddon(a); err != nil {
			return err
		}
		if err := c.step(a.Name+" objects", func() error { return c.applyAddon(ctx, a, cache) }); err != nil {
			return err
		}
		if err := c.deleteMade(ctx, a); err != nil {
			return err
		}
	}
	for _, p := range programs {
		if err := c.ensure(ctx, p, addonLimit); err != nil {
			return err
		}
	}
	return nil
}

// prepareAddon writes what the add-on's programs read.
func (c *Cluster) prepareAddon(a addon.Addon) error {
	if err := pki.Issue(a.PKI(c.Config), a.Leaves(c.Config), c.PKI("")); err != nil {
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
func (c *Cluster) applyAddon(ctx context.Context, a addon.Addon, cache build.Cache) error {
	for _, path := range a.Manifests(c.Config, cache) {
		// Server-side: the client would note the whole of a CRD in an annotation.
		err := c.kubectl(ctx, "apply", "--server-side", "--force-conflicts",
			"--field-manager=mbcas-cluster", "--filename="+path)
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

// deleteMade deletes what the add-on's programs had made for themselves.
func (c *Cluster) deleteMade(ctx context.Context, a addon.Addon) error {
	for _, path := range a.Makes {
		if err := controlplane.Delete(ctx, c.Config, path); err != nil {
			return err
		}
	}
	return nil
}

// AddonDown stops the add-on and removes it from the cluster. Its rights go before
// its programs, so that these make nothing anew.
func (c *Cluster) AddonDown(ctx context.Context, a addon.Addon) (err error) {
	if _, ok := c.Addons[a.Name]; !ok {
		c.say("nothing to do: %s is not up", a.Name)
		return nil
	}
	for _, other := range addon.All() {
		if _, has := c.Addons[other.Name]; has && other.Needs == a.Name {
			return fmt.Errorf("%s needs %s; first run: mbcas-cluster addon down %[1]s", other.Name, a.Name)
		}
	}
	if c.kube, err = Assets(ctx, c.programs, "", c.out); err != nil {
		return err
	}
	cache, err := c.addonPrograms(ctx, a)
	if err != nil {
		return err
	}
	err = c.step("remove "+a.Name, func() error {
		for _, path := range a.Manifests(c.Config, cache) {
			if err := c.kubectl(ctx, "delete", "--ignore-not-found", "--filename="+path); err != nil {
				return err
			}
		}
		return c.deleteMade(ctx, a)
	})
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(a.Programs(c.Config, a.Interval, cache.Program)) {
		if err := c.stop(ctx, p.Name); err != nil {
			return err
		}
	}
	delete(c.Addons, a.Name)
	return errors.Join(c.deleteMade(ctx, a), os.RemoveAll(a.PKI(c.Config)), os.RemoveAll(a.Dir(c.Config)), c.save())
}

// kubectl runs the cluster's own kubectl as its administrator. What the user of this
// program has set for theirs is left out.
func (c *Cluster) kubectl(ctx context.Context, args ...string) error {
	args = append(args, "--kubeconfig="+c.Kubeconfig("admin"), "--cache-dir="+c.Path("kubectl"))
	cmd := exec.CommandContext(ctx, c.kube.Program("kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBERC=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
