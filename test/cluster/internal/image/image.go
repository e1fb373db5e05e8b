// Package image builds container images from static programs, without a
// container engine.
//
// Promises:
//   - The same files give the same bytes: TestDeterministic.
//   - A program that needs a dynamic loader is refused: TestDynamicProgramIsRefused.
package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// NonRoot is the user and group that most base images call "nonroot".
const NonRoot = "65532:65532"

// Spec says what goes into an image. There is no base: the files are all of it.
type Spec struct {
	Name       string   // such as mbcas.io/agent:dev
	Entrypoint []string // the program in the image and its fixed arguments
	User       string   // uid:gid
	Files      []File
}

// File is one file of the image.
type File struct {
	From string // path on this machine
	To   string // absolute path in the image
}

// ParseFile reads SRC or SRC:DST; without DST the file goes to the root.
func ParseFile(s string) (File, error) {
	from, to, ok := strings.Cut(s, ":")
	if !ok {
		to = "/" + filepath.Base(from)
	}
	if from == "" || !path.IsAbs(to) || path.Clean(to) != to || to == "/" {
		return File{}, fmt.Errorf("file %q: want SRC or SRC:DST with an absolute DST", s)
	}
	return File{From: from, To: to}, nil
}

// Write builds the image and writes it as a Docker archive, which both
// `docker load` and containerd's `ctr images import` read.
func Write(s Spec, archive string) error {
	img, ref, err := build(s)
	if err != nil {
		return fmt.Errorf("image %s: %w", s.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return err
	}
	tmp := archive + ".new"
	if err := tarball.WriteToFile(tmp, ref, img); err != nil {
		return fmt.Errorf("image %s: %w", s.Name, err)
	}
	return os.Rename(tmp, archive)
}

func build(s Spec) (v1.Image, name.Tag, error) {
	ref, err := name.NewTag(s.Name, name.StrictValidation)
	if err != nil {
		return nil, name.Tag{}, err
	}
	if len(s.Entrypoint) == 0 || !slices.ContainsFunc(s.Files, func(f File) bool { return f.To == s.Entrypoint[0] }) {
		return nil, ref, fmt.Errorf("entrypoint %q is none of its files", strings.Join(s.Entrypoint, " "))
	}
	arch, err := architecture(s.Files)
	if err != nil {
		return nil, ref, err
	}
	raw, err := layer(s.Files)
	if err != nil {
		return nil, ref, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(raw)), nil
	})
	if err != nil {
		return nil, ref, err
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, ref, err
	}
	cf, err := img.ConfigFile()
	if err != nil {
		return nil, ref, err
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", arch
	cf.Config.Entrypoint = s.Entrypoint
	cf.Config.User = s.User
	cf.Config.Env = []string{"PATH=/"}
	img, err = mutate.ConfigFile(img, cf)
	return img, ref, err
}

// layer is a tar of the files and the folders above them, sorted, without times
// and owners.
func layer(files []File) ([]byte, error) {
	byPath := map[string]string{}
	for _, f := range files {
		if _, twice := byPath[f.To]; twice {
			return nil, fmt.Errorf("two files for %s", f.To)
		}
		byPath[f.To] = f.From
		for dir := path.Dir(f.To); dir != "/"; dir = path.Dir(dir) {
			byPath[dir] = ""
		}
	}
	paths := make([]string, 0, len(byPath))
	for p := range byPath {
		paths = append(paths, p)
	}
	slices.Sort(paths)

	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, p := range paths {
		if err := add(w, p, byPath[p]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

func add(w *tar.Writer, to, from string) error {
	head := &tar.Header{Name: strings.TrimPrefix(to, "/"), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
	if from == "" {
		head.Typeflag, head.Name, head.Mode = tar.TypeDir, head.Name+"/", 0o755
		return w.WriteHeader(head)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	head.Typeflag, head.Size, head.Mode = tar.TypeReg, int64(len(data)), 0o644
	if info.Mode()&0o111 != 0 {
		head.Mode = 0o755
	}
	if err := w.WriteHeader(head); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// architecture is the one all programs among the files are built for.
func architecture(files []File) (string, error) {
	arch := ""
	for _, f := range files {
		a, err := programArchitecture(f.From)
		if err != nil {
			return "", err
		}
		if a != "" && arch != "" && a != arch {
			return "", fmt.Errorf("%s is for %s, another file for %s", f.From, a, arch)
		}
		if a != "" {
			arch = a
		}
	}
	if arch == "" {
		return "", errors.New("none of its files is a Linux program")
	}
	return arch, nil
}

// programArchitecture is "" for a file that is no program. Programs that request
// for a dynamic loader are refused: the image has none.
func programArchitecture(file string) (string, error) {
	f, err := elf.Open(file)
	var format *elf.FormatError
	if errors.As(err, &format) || errors.Is(err, io.EOF) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%s is dynamically linked: build it with CGO_ENABLED=0", file)
		}
	}
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	default:
		return "", fmt.Errorf("%s: machine %v is not supported", file, f.Machine)
	}
}
