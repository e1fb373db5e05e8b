// Package image builds container images from static programs, without a
// container engine: the program alone, or the program on a root file system of other programs.
//
// Promises:
//   - The same program gives the same bytes: TestDeterministic.
//   - A program that needs a dynamic loader is refused: TestWriteRefuses.
//   - A root file system lies below the program, and its programs are in PATH: TestBase.
package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// nonRoot is the user and group that most base images call "nonroot".
const nonRoot = "65532:65532"

// Write builds an image of the program and writes it as a Docker archive, which both `docker load` and
// containerd's `ctr images import` read. base is a tar archive of the root file system below the program;
// with "" the program is all of the image.
func Write(called, program, base, archive string) error {
	tag, err := name.NewTag(called, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("image %s: %w", called, err)
	}
	img, err := build(program, base)
	if err != nil {
		return fmt.Errorf("image %s: %s: %w", called, program, err)
	}
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return err
	}
	if err := tarball.WriteToFile(archive+".new", tag, img); err != nil {
		return fmt.Errorf("image %s: %w", called, err)
	}
	return os.Rename(archive+".new", archive)
}

func build(program, base string) (v1.Image, error) {
	arch, err := architecture(program)
	if err != nil {
		return nil, err
	}
	top, err := layer(program)
	if err != nil {
		return nil, err
	}
	layers, path := []v1.Layer{top}, "PATH=/"
	if base != "" {
		below, err := tarball.LayerFromFile(base)
		if err != nil {
			return nil, fmt.Errorf("root file system %s: %w", base, err)
		}
		layers, path = []v1.Layer{below, top}, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
	}
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, err
	}
	cf, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", arch
	cf.Config = v1.Config{Entrypoint: []string{"/" + filepath.Base(program)}, User: nonRoot, Env: []string{path}}
	return mutate.ConfigFile(img, cf)
}

// layer is the program in the root folder.
func layer(program string) (v1.Layer, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	head := tar.Header{
		Name: filepath.Base(program), Size: int64(len(data)), Mode: 0o755, ModTime: time.Unix(0, 0),
		Format: tar.FormatUSTAR,
	}
	if err := w.WriteHeader(&head); err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
}

// architecture is the one that a program is built for. One that needs a dynamic loader is refused: the image has none.
func architecture(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("not a Linux program: %w", err)
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return "", errors.New("dynamically linked: build it with CGO_ENABLED=0")
	}
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	default:
		return "", fmt.Errorf("machine %v is not supported", f.Machine)
	}
}
