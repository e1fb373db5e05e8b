package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/mbcas/mbcas/test/cluster/internal/must"
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
		must.Succeed(t, binary.Write(&buf, binary.LittleEndian, part))
	}
	path := filepath.Join(t.TempDir(), "mbcas-agent")
	must.Succeed(t, os.WriteFile(path, buf.Bytes(), 0o755))
	return path
}

func TestDeterministic(t *testing.T) {
	p := program(t, elf.PT_LOAD)
	read := func() []byte {
		archive := filepath.Join(t.TempDir(), "out", "agent.tar")
		must.Succeed(t, Write(tag, p, archive))
		raw, err := os.ReadFile(archive)
		must.Succeed(t, err)
		return raw
	}
	first := read()
	touched := time.Now().Add(-time.Hour)
	must.Succeed(t, os.Chtimes(p, touched, touched))
	if !bytes.Equal(first, read()) {
		t.Error("the same program with another time gives other bytes")
	}
}

func TestContents(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "agent.tar")
	must.Succeed(t, Write(tag, program(t, elf.PT_LOAD), archive))
	img, err := tarball.ImageFromPath(archive, nil)
	must.Succeed(t, err)
	cf, err := img.ConfigFile()
	must.Succeed(t, err)
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

func TestWriteRefuses(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	must.Succeed(t, os.WriteFile(text, []byte("a: 1\n"), 0o755))
	for name, tt := range map[string]struct{ tag, program, want string }{
		"name without registry": {"agent", program(t, elf.PT_LOAD), "agent"},
		"dynamic program":       {tag, program(t, elf.PT_INTERP), "CGO_ENABLED=0"},
		"missing file":          {tag, text + "-gone", "no such file"},
		"text":                  {tag, text, "Linux program"},
	} {
		archive := filepath.Join(t.TempDir(), "x.tar")
		if err := Write(tt.tag, tt.program, archive); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: err = %v, want %q", name, err, tt.want)
		}
		if _, err := os.Stat(archive); err == nil {
			t.Errorf("%s: an archive was written all the same", name)
		}
	}
}
