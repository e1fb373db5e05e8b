package vm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
)

// Image is what every virtual node starts from. It is in the cache, because it is
// the same for all.
type Image struct {
	Dir      string
	Emulator string
}

func (i Image) Kernel() string { return filepath.Join(i.Dir, "vmlinuz") }

func (i Image) disk() string { return filepath.Join(i.Dir, "disk.raw") }

const (
	suite    = "bookworm"
	packages = "linux-image-cloud-amd64,containerd,runc,containernetworking-plugins,kmod,mount,base-files"
	diskSize = "6G" // sparse: it takes what is written

	// recipe counts changes of how the image is built: each makes a new one.
	recipe = "1"
)

// wanted are the modules without which the machine has no disk and no network.
var wanted = []string{"virtio_pci", "virtio_blk", "virtio_net"}

// Open finds the image, and the programs that it takes to build and to run it.
func Open(cache build.Cache) (Image, error) {
	inputs := []string{suite, packages, diskSize, recipe, strings.Join(wanted, ",")}
	sum := sha256.Sum256([]byte(strings.Join(inputs, " ")))
	img := Image{Dir: filepath.Join(cache.Dir(), fmt.Sprintf("vm-%x", sum[:6]))}
	var missing []string
	for _, p := range [][2]string{
		{"qemu-system-x86_64", "qemu-system-x86"}, {"mmdebstrap", "mmdebstrap"}, {"mke2fs", "e2fsprogs"},
	} {
		path, err := exec.LookPath(p[0])
		if err != nil {
			missing = append(missing, p[1])
		}
		if p[0] == "qemu-system-x86_64" {
			img.Emulator = path
		}
	}
	if len(missing) > 0 {
		return img, fmt.Errorf("no virtual node: install the Debian packages %s", strings.Join(missing, ", "))
	}
	return img, nil
}

// Ensure builds the image if it is missing.
func (i Image) Ensure(ctx context.Context, cache build.Cache, out io.Writer) error {
	if _, err := os.Stat(i.disk()); err == nil {
		return nil
	}
	fmt.Fprintf(out, "building the disk of a virtual node from Debian packages into %s (once; about a minute)\n", i.Dir)
	tmp, err := os.MkdirTemp(cache.Dir(), "vm.new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := (Image{Dir: tmp}).build(ctx, cache.Program("kube"), out); err != nil {
		return err
	}
	if err := os.Rename(tmp, i.Dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err // it exists when another command has built it meanwhile
	}
	return nil
}

func (i Image) build(ctx context.Context, kube string, out io.Writer) error {
	tree := filepath.Join(i.Dir, "tree")
	fmt.Fprintln(out, "  packages")
	if err := run(ctx, "mmdebstrap", "--quiet", "--variant=extract", "--include="+packages, suite, tree); err != nil {
		return err
	}
	kernels, err := filepath.Glob(filepath.Join(tree, "lib/modules/*"))
	if err != nil || len(kernels) != 1 {
		return fmt.Errorf("kernels in %s: %v, want one", tree, kernels)
	}
	version := filepath.Base(kernels[0])
	// The packages' scripts were not run, which would need the machine itself; this
	// is what of their work a node needs.
	if err := run(ctx, "chroot", tree, "/sbin/depmod", version); err != nil {
		return err
	}
	for path, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"etc/group":       "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
		"etc/hosts":       "127.0.0.1 localhost\n",
		"etc/resolv.conf": "",
	} {
		if err := os.WriteFile(filepath.Join(tree, path), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, c := range [][2]string{
		{kube, filepath.Join(tree, config.VMKubelet)},
		{filepath.Join(tree, "boot", "vmlinuz-"+version), i.Kernel()},
	} {
		if err := run(ctx, "cp", c[0], c[1]); err != nil {
			return err
		}
	}
	if err := i.copyModules(ctx, tree, version); err != nil {
		return err
	}
	fmt.Fprintln(out, "  file system")
	if err := run(ctx, "mke2fs", "-q", "-t", "ext4", "-d", tree, i.disk(), diskSize); err != nil {
		return err
	}
	return os.RemoveAll(tree)
}

// copyModules takes the wanted modules out, and all they depend on, numbered in the order of loading.
func (i Image) copyModules(ctx context.Context, tree, version string) error {
	args := append([]string{tree, "/sbin/modprobe", "--set-version=" + version, "--show-depends", "--all"}, wanted...)
	out, err := exec.CommandContext(ctx, "chroot", args...).Output()
	if err != nil {
		return fmt.Errorf("modprobe --show-depends: %w", err)
	}
	if err := os.Mkdir(i.modules(), 0o755); err != nil {
		return err
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "insmod" || seen[f[1]] { // others are built into the kernel
			continue
		}
		to := filepath.Join(i.modules(), fmt.Sprintf("%02d-%s", len(seen), filepath.Base(f[1])))
		if err := run(ctx, "cp", filepath.Join(tree, f[1]), to); err != nil {
			return err
		}
		seen[f[1]] = true
	}
	return nil
}

func (i Image) modules() string { return filepath.Join(i.Dir, "modules") }

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}
