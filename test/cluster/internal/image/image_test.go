package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const tag = "mbcas.io/agent:dev"

// program writes the smallest file that counts as a Linux program.
func program(t *testing.T, segment elf.ProgType) string {
	t.Helper()
	var buf bytes.Buffer
	head := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1,
		Ehsize: 64, Phoff: 64, Phentsize: 56, Phnum: 1,
	}
	copy(head.Ident[:], elf.ELFMAG)
	copy(head.Ident[elf.EI_CLASS:], []byte{byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1})
	for _, part := range []any{head, elf.Prog64{Type: uint32(segment)}} {
		if err := binary.Write(&buf, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "mbcas-agent")
	if err := os.WriteFile(path, buf.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDeterministic(t *testing.T) {
	p := program(t, elf.PT_LOAD)
	read := func() []byte {
		archive := filepath.Join(t.TempDir(), "out", "agent.tar")
		if err := Write(tag, p, "", archive); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	first := read()
	touched := time.Now().Add(-time.Hour)
	if err := os.Chtimes(p, touched, touched); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, read()) {
		t.Error("the same program with another time gives other bytes")
	}
}

func TestContents(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "agent.tar")
	if err := Write(tag, program(t, elf.PT_LOAD), "", archive); err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{Entrypoint: []string{"/mbcas-agent"}, User: "65532:65532", Env: []string{"PATH=/"}}
	if d := cmp.Diff(want, cf.Config); d != "" || cf.OS != "linux" || cf.Architecture != "amd64" {
		t.Errorf("image for %s/%s (-want +got):\n%s", cf.OS, cf.Architecture, d)
	}
	files := mutate.Extract(img)
	defer files.Close()
	head, err := tar.NewReader(files).Next()
	if err != nil || head.Name != "mbcas-agent" || head.FileInfo().Mode().String() != "-rwxr-xr-x" {
		t.Errorf("file %+v, %v", head, err)
	}
}

// TestBase: the files of a root file system are in the image, and its programs are found by name.
func TestBase(t *testing.T) {
	dir := t.TempDir()
	base, archive := filepath.Join(dir, "root.tar"), filepath.Join(dir, "agent.tar")
	var root bytes.Buffer
	w := tar.NewWriter(&root)
	text := []byte("a real server")
	if err := w.WriteHeader(&tar.Header{Name: "usr/sbin/server", Mode: 0o755, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), os.WriteFile(base, root.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := Write(tag, program(t, elf.PT_LOAD), base, archive); err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}; !slices.Equal(cf.Config.Env, want) {
		t.Errorf("environment %v, want %v", cf.Config.Env, want)
	}
	files := mutate.Extract(img)
	defer files.Close()
	var names []string
	for r := tar.NewReader(files); ; {
		head, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, head.Name)
	}
	slices.Sort(names)
	if want := []string{"mbcas-agent", "usr/sbin/server"}; !slices.Equal(names, want) {
		t.Errorf("files %v, want %v", names, want)
	}
}

func TestWriteRefuses(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("a: 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ tag, program, base, want string }{
		"name without registry": {"agent", program(t, elf.PT_LOAD), "", "agent"},
		"dynamic program":       {tag, program(t, elf.PT_INTERP), "", "CGO_ENABLED=0"},
		"missing file":          {tag, text + "-gone", "", "no such file"},
		"text":                  {tag, text, "", "Linux program"},
		"missing base":          {tag, program(t, elf.PT_LOAD), text + "-gone", "root file system"},
	} {
		archive := filepath.Join(t.TempDir(), "x.tar")
		if err := Write(tt.tag, tt.program, tt.base, archive); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: err = %v, want %q", name, err, tt.want)
		}
		if _, err := os.Stat(archive); err == nil {
			t.Errorf("%s: an archive was written all the same", name)
		}
	}
}
