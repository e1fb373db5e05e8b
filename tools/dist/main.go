// Command dist writes the files of a release to dist/VERSION: the plugin for each platform, manifests, the Helm chart,
// a manifest of krew, bills of materials, release notes and checksums. It pushes and signs nothing.
//
// Promises:
//   - Made twice, the bytes are the same: TestReproducible, and TestPrograms for what is compiled.
//   - Every checksum is that of its file, and every archive has its program and the licence: TestArchives.
//   - Each command of the plugin and of the lab has its page of the manual, with all its flags: TestManPages.
//   - krew accepts the manifest by its documented rules: TestKrew.
//   - The manifests are those of config with the images of the release, and the chart renders the same: TestRelease in
//     test/chart.
package main

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	r := release{platforms: platforms, compile: compile}
	var out string
	var manifests bool
	flag.StringVar(&r.root, "root", ".", "root of the repository")
	flag.StringVar(&r.version, "version", "", "version of the release, such as v0.1.0")
	flag.StringVar(&r.registry, "registry", "mbcas.io", "registry, and path in it, of the images")
	flag.StringVar(&out, "out", "dist", "folder for the folder of the release")
	flag.BoolVar(&manifests, "manifests", false, "only what needs no program: manifests and the chart")
	flag.Parse()
	if err := run(r, out, manifests); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// release is what is released.
type release struct {
	root, version, registry string
	// made is the time of every file in an archive: that of the commit.
	made      time.Time
	platforms []platform
	compile   func(release, platform, string) ([]byte, error)
}

// platform is one for which the plugin is built.
type platform struct{ os, arch string }

var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"},
}

// Versions as krew and Helm take them, and registries.
var (
	versions   = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)
	registries = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
)

func run(r release, out string, manifestsOnly bool) error {
	if !versions.MatchString(r.version) {
		return fmt.Errorf("version %q: want one such as v0.1.0 (make dist VERSION=v0.1.0)", r.version)
	}
	if !registries.MatchString(r.registry) {
		return fmt.Errorf("registry %q: want one such as ghcr.io/mbcas, without https:// and a last /", r.registry)
	}
	var err error
	if r.made, err = commitTime(r.root); err != nil {
		return err
	}
	files, err := r.manifests()
	if err != nil {
		return err
	}
	if !manifestsOnly {
		if err := r.addPrograms(files); err != nil {
			return err
		}
	}
	files["checksums.txt"] = checksums(files)
	dir := filepath.Join(out, r.version)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("%s: %d files\n", dir, len(files))
	return nil
}

// addPrograms adds what is made of compiled programs, and what tells of it.
func (r release) addPrograms(files map[string][]byte) error {
	plugins, err := r.plugins()
	if err != nil {
		return err
	}
	maps.Copy(files, plugins)
	if files["mbcas.yaml"], err = r.krew(plugins); err != nil {
		return err
	}
	for _, name := range []string{"mbcas-agent", "mbcas-controller", "mbcas-weights", plugin} {
		if files[name+".spdx.json"], err = r.spdx(name); err != nil {
			return fmt.Errorf("%s.spdx.json: %w", name, err)
		}
	}
	if files[manPages], err = r.man(); err != nil {
		return fmt.Errorf("%s: %w", manPages, err)
	}
	changes, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	files["RELEASE_NOTES.md"], err = notes(string(changes), r.version)
	return err
}

// checksums are lines as sha256sum writes and checks them.
func checksums(files map[string][]byte) []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&out, "%s  %s\n", sum(files[name]), name)
	}
	return out.Bytes()
}

func sum(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// commitTime is when what is released was committed, or SOURCE_DATE_EPOCH.
func commitTime(root string) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		cmd := exec.Command("git", "log", "-1", "--format=%ct")
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			const fault = "time of the commit: git log: %w; outside of a checkout set SOURCE_DATE_EPOCH"
			return time.Time{}, fmt.Errorf(fault, err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("time of the commit %q: want seconds since 1970 in SOURCE_DATE_EPOCH", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// notes are the part of the changelog about a version; before it has one of its own, what is unreleased.
func notes(changelog, version string) ([]byte, error) {
	for _, title := range []string{strings.TrimPrefix(version, "v"), "Unreleased"} {
		heading := regexp.MustCompile(`(?m)^## \[?` + regexp.QuoteMeta(title) + `(?:\]?|[\](: ].*)\n`)
		at := heading.FindStringIndex(changelog)
		if at == nil {
			continue
		}
		text := changelog[at[1]:]
		if end := strings.Index(text, "\n## "); end >= 0 {
			text = text[:end+1]
		}
		return []byte("# MBCAS " + version + "\n\n" + strings.TrimSpace(text) + "\n"), nil
	}
	return nil, fmt.Errorf("CHANGELOG.md has no section of %s, and none that is unreleased", version)
}
