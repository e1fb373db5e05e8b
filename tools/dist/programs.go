package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// plugin is the program of kubectl mbcas.
const plugin = "kubectl-mbcas"

// completion has kubectl complete the plugin's commands; it goes by the name kubectl_complete-mbcas into PATH.
const completion = "#!/bin/sh\nexec kubectl-mbcas __complete \"$@\"\n"

// compile builds a program without anything of this machine in it.
func compile(r release, p platform, name string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "mbcas-dist-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, name)
	const install = "github.com/mbcas/mbcas/internal/cli/install"
	flags := "-s -w -X main.version=" + r.version + " -X " + install + ".registry=" + r.registry
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", path, "./cmd/"+name)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOFLAGS=-mod=readonly",
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s for %s/%s: %w: %s", name, p.os, p.arch, err, out)
	}
	return os.ReadFile(path)
}

// file is one in an archive.
type file struct {
	name string
	mode int64
	text []byte
}

// archive is the name of the plugin's archive for a platform.
func (p platform) archive() string {
	name := fmt.Sprintf("%s_%s_%s", plugin, p.os, p.arch)
	if p.os == "windows" {
		return name + ".zip"
	}
	return name + ".tar.gz"
}

// program is the name of the plugin's file on a platform.
func (p platform) program() string {
	if p.os == "windows" {
		return plugin + ".exe"
	}
	return plugin
}

// plugins are the archives of the plugin, by name.
func (r release) plugins() (map[string][]byte, error) {
	licence, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	archives := map[string][]byte{}
	for _, p := range r.platforms {
		program, err := r.compile(r, p, plugin)
		if err != nil {
			return nil, err
		}
		files := []file{{"LICENSE", 0o644, licence}, {p.program(), 0o755, program}}
		pack := r.zip
		if p.os != "windows" {
			files, pack = append(files, file{"kubectl_complete-mbcas", 0o755, []byte(completion)}), r.tarball
		}
		if archives[p.archive()], err = pack(files); err != nil {
			return nil, fmt.Errorf("%s: %w", p.archive(), err)
		}
	}
	return archives, nil
}

// tarball is a compressed tar without anything of this machine or this moment in it.
func (r release) tarball(files []file) ([]byte, error) {
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(zipped)
	for _, f := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.text)), ModTime: r.made,
			Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	err = errors.Join(w.Close(), zipped.Close())
	return out.Bytes(), err
}

// zip is the same for Windows.
func (r release) zip(files []file) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.made}
		header.SetMode(os.FileMode(f.mode))
		part, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := part.Write(f.text); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// krew is the manifest by which kubectl krew installs the plugin.
func (r release) krew(archives map[string][]byte) ([]byte, error) {
	out := fmt.Sprintf(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: mbcas
spec:
  version: %s
  homepage: https://github.com/mbcas/mbcas
  shortDescription: Explain and steer market-based CPU limits
  description: |
    Shows what MBCAS (market-based CPU allocation) does to the CPU limits of
    pods and why, installs, upgrades and removes it, resizes and restores by
    hand, and sets the mode of namespaces.
  caveats: |
    install, upgrade and uninstall need the rights of a cluster administrator.
    An installation begins in mode recommend, which changes no pod.
  platforms:
`, r.version)
	for _, p := range r.platforms {
		text, ok := archives[p.archive()]
		if !ok {
			return nil, fmt.Errorf("mbcas.yaml: there is no archive %s", p.archive())
		}
		out += fmt.Sprintf(`    - selector:
        matchLabels:
          os: %s
          arch: %s
      uri: https://github.com/mbcas/mbcas/releases/download/%s/%s
      sha256: %s
      bin: %s
      files:
        - from: %[6]s
          to: .
        - from: LICENSE
          to: .
`, p.os, p.arch, r.version, p.archive(), sum(text), p.program())
	}
	return []byte(out), nil
}
