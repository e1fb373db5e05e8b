package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// program writes the smallest file that counts as a Linux program.
func program(t *testing.T, path string, machine elf.Machine, segment elf.ProgType) string {
	t.Helper()
	var buf bytes.Buffer
	head := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1}
	copy(head.Ident[:], elf.ELFMAG)
	head.Ident[elf.EI_CLASS], head.Ident[elf.EI_DATA], head.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	for _, part := range []any{head, elf.Prog64{Type: uint32(segment)}} {
		if err := binary.Write(&buf, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, buf.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func spec(t *testing.T) Spec {
	t.Helper()
	dir := t.TempDir()
	text := filepath.Join(dir, "defaults.yaml")
	if err := os.WriteFile(text, []byte("a: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Spec{
		Name:       "mbcas.io/agent:dev",
		Entrypoint: []string{"/mbcas-agent"},
		User:       NonRoot,
		Files: []File{
			{From: program(t, filepath.Join(dir, "agent"), elf.EM_X86_64, elf.PT_LOAD), To: "/mbcas-agent"},
			{From: text, To: "/etc/mbcas/defaults.yaml"},
		},
	}
}

func TestDeterministic(t *testing.T) {
	s := spec(t)
	read := func() []byte {
		archive := filepath.Join(t.TempDir(), "out", "agent.tar")
		if err := Write(s, archive); err != nil {
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
	if err := os.Chtimes(s.Files[0].From, touched, touched); err != nil {
		t.Fatal(err)
	}
	s.Files[0], s.Files[1] = s.Files[1], s.Files[0]
	if !bytes.Equal(first, read()) {
		t.Error("other times and another order of the same files give other bytes")
	}
}

func TestContents(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "agent.tar")
	if err := Write(spec(t), archive); err != nil {
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
	if got := []string{cf.OS, cf.Architecture, cf.Config.User, strings.Join(cf.Config.Entrypoint, " ")}; !cmp.Equal(got, []string{"linux", "amd64", "65532:65532", "/mbcas-agent"}) {
		t.Errorf("image config: %q", got)
	}
	files := mutate.Extract(img)
	defer files.Close()
	got := map[string]string{}
	for r := tar.NewReader(files); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[head.Name] = head.FileInfo().Mode().String()
	}
	want := map[string]string{
		"etc": "drwxr-xr-x", "etc/mbcas": "drwxr-xr-x", "etc/mbcas/defaults.yaml": "-rw-r--r--", "mbcas-agent": "-rwxr-xr-x",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
}

func TestDynamicProgramIsRefused(t *testing.T) {
	s := spec(t)
	program(t, s.Files[0].From, elf.EM_X86_64, elf.PT_INTERP)
	err := Write(s, filepath.Join(t.TempDir(), "x.tar"))
	if err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("err = %v, want one that says how to build a static program", err)
	}
}

func TestWriteRefuses(t *testing.T) {
	tests := map[string]struct {
		change func(t *testing.T, s *Spec)
		want   string
	}{
		"name without registry": {func(_ *testing.T, s *Spec) { s.Name = "agent" }, "agent"},
		"entrypoint elsewhere":  {func(_ *testing.T, s *Spec) { s.Entrypoint = []string{"/other"} }, "none of its files"},
		"one path twice":        {func(_ *testing.T, s *Spec) { s.Files[1].To = s.Files[0].To }, "two files"},
		"missing file":          {func(_ *testing.T, s *Spec) { s.Files[1].From += "-gone" }, "no such file"},
		"only text":             {func(_ *testing.T, s *Spec) { s.Files[0].From = s.Files[1].From }, "Linux program"},
		"two machines": {func(t *testing.T, s *Spec) {
			s.Files[1].From = program(t, filepath.Join(t.TempDir(), "arm"), elf.EM_AARCH64, elf.PT_LOAD)
		}, "arm64"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := spec(t)
			tt.change(t, &s)
			archive := filepath.Join(t.TempDir(), "x.tar")
			err := Write(s, archive)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %q", err, tt.want)
			}
			if _, err := os.Stat(archive); err == nil {
				t.Error("an archive was written all the same")
			}
		})
	}
}

func TestParseFile(t *testing.T) {
	tests := map[string]struct {
		want  File
		fails bool
	}{
		"bin/agent":           {want: File{From: "bin/agent", To: "/agent"}},
		"bin/agent:/usr/a":    {want: File{From: "bin/agent", To: "/usr/a"}},
		"bin/agent:usr":       {fails: true},
		"bin/agent:/":         {fails: true},
		"bin/agent:/../x":     {fails: true},
		":/x":                 {fails: true},
		"bin/agent:/a/../../": {fails: true},
	}
	for arg, tt := range tests {
		got, err := ParseFile(arg)
		if (err != nil) != tt.fails || got != tt.want {
			t.Errorf("ParseFile(%q) = %v, %v, want %v, failure %v", arg, got, err, tt.want, tt.fails)
		}
	}
}
