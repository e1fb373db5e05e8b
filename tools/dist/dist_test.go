package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// fake is a release whose plugins are texts in archives, of which packing is quick. In bills of materials, which
// are made after the archives, each program is this one.
func fake(t *testing.T) release {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000") // the checkout may have no history
	self, err := os.ReadFile(os.Args[0])
	must.Succeed(t, err)
	packed := map[platform]bool{}
	return release{
		root: "../..", version: "v0.1.0", registry: "ghcr.io/mbcas", platforms: platforms,
		compile: func(_ release, p platform, name string) ([]byte, error) {
			if name == plugin && !packed[p] {
				packed[p] = true
				return []byte(p.os + p.arch), nil
			}
			return self, nil
		},
	}
}

// released are the files of the fake release, made by the first test that asks for them. Tests only read them.
var released map[string][]byte

func fakeFiles(t *testing.T) map[string][]byte {
	t.Helper()
	if released == nil {
		released = made(t, fake(t))
	}
	return released
}

// made are the files that a release writes.
func made(t *testing.T, r release) map[string][]byte {
	t.Helper()
	out := t.TempDir()
	must.Succeed(t, run(r, out, false))
	files := map[string][]byte{}
	entries, err := os.ReadDir(filepath.Join(out, r.version))
	must.Succeed(t, err)
	for _, e := range entries {
		files[e.Name()], err = os.ReadFile(filepath.Join(out, r.version, e.Name()))
		must.Succeed(t, err)
	}
	return files
}

// TestReproducible: made twice, all files are there and have the same bytes.
func TestReproducible(t *testing.T) {
	first, second := fakeFiles(t), made(t, fake(t))
	want := strings.Fields(`RELEASE_NOTES.md checksums.txt crds.yaml install.yaml kubectl-mbcas.spdx.json
		kubectl-mbcas_darwin_amd64.tar.gz kubectl-mbcas_darwin_arm64.tar.gz kubectl-mbcas_linux_amd64.tar.gz
		kubectl-mbcas_linux_arm64.tar.gz kubectl-mbcas_windows_amd64.zip mbcas-0.1.0.tgz mbcas-agent.spdx.json
		mbcas-controller.spdx.json mbcas.yaml namespace.yaml`)
	if have := slices.Sorted(maps.Keys(first)); !slices.Equal(have, want) {
		t.Errorf("files %v, want %v", have, want)
	}
	for name := range first {
		if !bytes.Equal(first[name], second[name]) {
			t.Errorf("%s differs the second time", name)
		}
	}
}

// TestArchives: each line of checksums.txt is that of its file, no file is without one, and each archive has its
// program, which may be run, the licence, and the time of the commit.
func TestArchives(t *testing.T) {
	r, files := fake(t), fakeFiles(t)
	when := time.Unix(1e9, 0)
	lines := strings.Split(strings.TrimSpace(string(files["checksums.txt"])), "\n")
	if len(lines) != len(files)-1 {
		t.Errorf("%d checksums of %d files", len(lines), len(files)-1)
	}
	for _, line := range lines {
		sha, name, _ := strings.Cut(line, "  ")
		if sha != sum(files[name]) || files[name] == nil {
			t.Errorf("checksum %q is not that of the file", line)
		}
	}
	for _, p := range platforms {
		entries := unpack(t, p.archive(), files[p.archive()])
		for _, name := range []string{p.program(), "LICENSE"} {
			e, ok := entries[name]
			if !ok || !e.when.Equal(when) || name == p.program() && e.mode&0o111 == 0 {
				const fault = "%s: %s is there: %t, with mode %o and time %v, want %v"
				t.Errorf(fault, p.archive(), name, ok, e.mode, e.when, when)
			}
		}
		if want, err := r.compile(r, p, plugin); err != nil || !bytes.Equal(entries[p.program()].text, want) {
			t.Errorf("%s has another program than that of its platform: %v", p.archive(), err)
		}
	}
}

type entry struct {
	text []byte
	mode int64
	when time.Time
}

func unpack(t *testing.T, name string, archive []byte) map[string]entry {
	t.Helper()
	entries := map[string]entry{}
	if strings.HasSuffix(name, ".zip") {
		r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
		must.Succeed(t, err)
		for _, f := range r.File {
			part, err := f.Open()
			must.Succeed(t, err)
			text, err := io.ReadAll(part)
			must.Succeed(t, err)
			entries[f.Name] = entry{text, int64(f.Mode()), f.Modified}
		}
		return entries
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	must.Succeed(t, err)
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		must.Succeed(t, err)
		text, err := io.ReadAll(r)
		must.Succeed(t, err)
		entries[h.Name] = entry{text, h.Mode, h.ModTime}
	}
}

// manifest is that of krew, with the fields that it documents.
type manifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string `json:"version"`
		Homepage         string `json:"homepage"`
		ShortDescription string `json:"shortDescription"`
		Description      string `json:"description"`
		Caveats          string `json:"caveats"`
		Platforms        []struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			URI    string `json:"uri"`
			Sha256 string `json:"sha256"`
			Bin    string `json:"bin"`
			Files  []struct {
				From string `json:"from"`
				To   string `json:"to"`
			} `json:"files"`
		} `json:"platforms"`
	} `json:"spec"`
}

// TestKrew: the manifest has the fields that krew documents and no others, in its form; each platform has its archive,
// and what it copies is in there.
func TestKrew(t *testing.T) {
	files := fakeFiles(t)
	var m manifest
	must.Succeed(t, yaml.UnmarshalStrict(files["mbcas.yaml"], &m))
	for what, ok := range map[string]bool{
		"apiVersion":       m.APIVersion == "krew.googlecontainertools.github.com/v1alpha2",
		"kind":             m.Kind == "Plugin",
		"name":             "kubectl-"+m.Metadata.Name == plugin,
		"version":          regexp.MustCompile(`^v\d+\.\d+\.\d+(-.+)?$`).MatchString(m.Spec.Version),
		"shortDescription": m.Spec.ShortDescription != "" && len(m.Spec.ShortDescription) <= 50,
		"description":      m.Spec.Description != "",
		"homepage":         strings.HasPrefix(m.Spec.Homepage, "https://"),
		"platforms":        len(m.Spec.Platforms) == len(platforms),
	} {
		if !ok {
			t.Errorf("%s is not as krew wants it:\n%s", what, files["mbcas.yaml"])
		}
	}
	for _, p := range m.Spec.Platforms {
		name := p.URI[strings.LastIndex(p.URI, "/")+1:]
		if p.Sha256 != sum(files[name]) || !strings.Contains(p.URI, "/"+m.Spec.Version+"/") {
			t.Errorf("%s: the checksum or the address is not that of the archive", p.URI)
		}
		labels := p.Selector.MatchLabels
		if want := fmt.Sprintf("%s_%s_%s.", plugin, labels["os"], labels["arch"]); !strings.HasPrefix(name, want) {
			t.Errorf("%v has the archive %s", labels, name)
		}
		entries := unpack(t, name, files[name])
		copies := map[string]bool{}
		for _, f := range p.Files {
			if copies[f.From] = true; entries[f.From].text == nil || f.To != "." {
				t.Errorf("%s: %s is not in the archive, or goes to %s", name, f.From, f.To)
			}
		}
		if !copies[p.Bin] || !copies["LICENSE"] {
			t.Errorf("%s: %v is copied, want the program %s and the licence", name, copies, p.Bin)
		}
	}
}

// TestMaterials: a bill of materials has every module that Go recorded in the program, and no identifier twice.
func TestMaterials(t *testing.T) {
	files := fakeFiles(t)
	info, err := buildinfo.ReadFile(os.Args[0])
	must.Succeed(t, err)
	var d document
	must.Succeed(t, json.Unmarshal(files["mbcas-agent.spdx.json"], &d))
	ids, locators := map[string]bool{}, map[string]bool{}
	for _, p := range d.Packages {
		if ids[p.SPDXID] || !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(p.SPDXID) {
			t.Errorf("identifier %q is used twice, or is none", p.SPDXID)
		}
		ids[p.SPDXID] = true
		for _, ref := range p.ExternalRefs {
			locators[ref.Locator] = true
		}
	}
	for _, dep := range info.Deps {
		if want := "pkg:golang/" + dep.Path + "@" + dep.Version; !locators[want] {
			t.Errorf("%s is not listed", want)
		}
	}
	if len(info.Deps) == 0 || len(locators) != len(info.Deps)+1 { // and the standard library
		t.Errorf("%d modules are listed, the program has %d", len(locators), len(info.Deps))
	}
	for _, r := range d.Relationships {
		if r.Type == "DEPENDS_ON" && (!ids[r.Element] || !ids[r.Related]) {
			t.Errorf("%v relates what is not listed", r)
		}
	}
	if strings.Contains(d.DocumentNamespace, "#") || d.SPDXVersion != "SPDX-2.3" || d.DataLicense != "CC0-1.0" {
		t.Errorf("document %s %s %s", d.DocumentNamespace, d.SPDXVersion, d.DataLicense)
	}
}

// TestPrograms: compiled twice, the plugin for linux/amd64 has the same bytes, which tell their version. That an
// archive has these bytes is TestArchives, and that packing twice gives the same is TestReproducible.
func TestPrograms(t *testing.T) {
	linux := platform{"linux", "amd64"}
	r := release{root: "../..", version: "v0.1.0", platforms: []platform{linux}, compile: compile}
	program, err := r.compile(r, linux, plugin)
	must.Succeed(t, err)
	again, err := r.compile(r, linux, plugin)
	must.Succeed(t, err)
	if !bytes.Equal(program, again) {
		t.Error("the program differs the second time")
	}
	path := filepath.Join(t.TempDir(), plugin)
	must.Succeed(t, os.WriteFile(path, program, 0o700))
	info, err := buildinfo.ReadFile(path)
	must.Succeed(t, err)
	for _, s := range info.Settings {
		if strings.HasPrefix(s.Key, "vcs") || strings.Contains(s.Value, string(filepath.Separator)) {
			t.Errorf("the program holds something of this checkout: %s=%s", s.Key, s.Value)
		}
	}
	out, err := exec.Command(path, "version", "--client").CombinedOutput()
	if want := regexp.MustCompile(`(?m)\bv0\.1\.0$`); err != nil || !want.Match(out) {
		t.Errorf("version --client: %v, %q", err, out)
	}
}

// TestNotes: the notes of a release are its own section of the changelog, else what is unreleased.
func TestNotes(t *testing.T) {
	const changelog = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.10.0 - 2026-01-02\n\n- ten\n\n" +
		"## [0.1.0]\n\n### Area\n\n- one\n"
	for version, want := range map[string]string{
		"v0.1.0": "# MBCAS v0.1.0\n\n### Area\n\n- one\n", "v0.10.0": "# MBCAS v0.10.0\n\n- ten\n",
		"v0.2.0": "# MBCAS v0.2.0\n\n- new\n",
	} {
		if got, err := notes(changelog, version); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", version, got, err, want)
		}
	}
	_, err := notes("# Changelog\n", "v0.1.0")
	if err == nil || !strings.Contains(err.Error(), "no section of v0.1.0") {
		t.Errorf("an empty changelog: %v", err)
	}
}

// TestRefused: what cannot be released is refused with what to do, and no file is written.
func TestRefused(t *testing.T) {
	broken := func(root string) release {
		return release{root: root, version: "v1.0.0", registry: "a", compile: compile}
	}
	empty := t.TempDir()
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	for want, r := range map[string]release{
		"make dist VERSION=v0.1.0":  {root: "../..", version: "ea8838b-dirty", registry: "a"},
		"without https://":          {root: "../..", version: "v1.0.0", registry: "https://a"},
		"config/base/kustomization": broken(empty),
	} {
		out := t.TempDir()
		err := run(r, out, true)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	today := fake(t)
	t.Setenv("SOURCE_DATE_EPOCH", "today")
	if err := run(today, t.TempDir(), true); err == nil || !strings.Contains(err.Error(), "seconds since 1970") {
		t.Errorf("%v, want what SOURCE_DATE_EPOCH has to be", err)
	}
	r := release{platforms: platforms}
	if _, err := r.krew(nil); err == nil || !strings.Contains(err.Error(), "there is no archive kubectl-mbcas_linux") {
		t.Errorf("a manifest without archives: %v", err)
	}
	_, err := r.versioned("Chart.yaml", []byte("version: 1\n"))
	if err == nil || !strings.Contains(err.Error(), "has 0 times") {
		t.Errorf("a chart without the version to replace: %v", err)
	}
}
