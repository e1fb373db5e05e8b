package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/mbcas/mbcas/config"
)

// manifests are the files that kubectl and Helm install from.
func (r release) manifests() (map[string][]byte, error) {
	base, err := r.objects("base")
	if err != nil {
		return nil, err
	}
	crds, err := r.objects("crd")
	if err != nil {
		return nil, err
	}
	namespace := slices.DeleteFunc(slices.Clone(base), func(o string) bool { return !isKind(o, "Namespace") })
	if len(namespace) != 1 {
		return nil, fmt.Errorf("config/base has %d Namespaces, want one", len(namespace))
	}
	chart, err := r.chart()
	if err != nil {
		return nil, err
	}
	head := func(command string) string { return "# MBCAS " + r.version + ". " + command + "\n" }
	file := func(command string, objects []string) []byte {
		return []byte(head(command) + strings.Join(objects, "---\n"))
	}
	images := fmt.Sprintf("%[1]s/agent:%[2]s\n%[1]s/controller:%[2]s\n%[1]s/weights:%[2]s\n", r.registry, r.version)
	return map[string][]byte{
		"install.yaml":   file("kubectl apply --server-side -f install.yaml", base),
		"crds.yaml":      file("With crds.install=false of the chart: kubectl apply --server-side -f crds.yaml", crds),
		"namespace.yaml": file("Before helm install: kubectl apply -f namespace.yaml", namespace),
		"images.txt":     []byte(images),
		"mbcas-" + strings.TrimPrefix(r.version, "v") + ".tgz": chart,
	}, nil
}

// objects are those of a kustomization of config, with the images of the release.
func (r release) objects(dir string) ([]string, error) {
	all, err := config.Objects(dir)
	for i := range all {
		all[i] = images.ReplaceAllString(all[i], "image: "+r.registry+"/$1:"+r.version)
	}
	return all, err
}

// images are those of MBCAS in a manifest.
var images = regexp.MustCompile(`image: mbcas\.io/(agent|controller|weights):dev\b`)

func isKind(object, kind string) bool { return strings.Contains("\n"+object, "\nkind: "+kind+"\n") }

// chart is the archive of the Helm chart with the versions of the release.
func (r release) chart() ([]byte, error) {
	var files []file
	dir := filepath.Join(r.root, "charts", "mbcas")
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == ".helmignore" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if text, err = r.versioned(name, text); err != nil {
			return fmt.Errorf("charts/mbcas/%s: %w", name, err)
		}
		files = append(files, file{"mbcas/" + filepath.ToSlash(name), 0o644, text})
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Helm reads Chart.yaml first.
	slices.SortStableFunc(files, func(a, b file) int {
		first := func(f file) int { return map[bool]int{true: 0, false: 1}[f.name == "mbcas/Chart.yaml"] }
		return first(a) - first(b)
	})
	return r.tarball(files)
}

// versioned is a file of the chart as the release has it.
func (r release) versioned(name string, text []byte) ([]byte, error) {
	number := strings.TrimPrefix(r.version, "v")
	places := map[string][][2]string{
		"Chart.yaml": {
			{"\nversion: 0.0.0-dev\n", "\nversion: " + number + "\n"},
			{"\nappVersion: dev\n", "\nappVersion: " + r.version + "\n"},
			{
				"\n  artifacthub.io/prerelease: \"true\"\n",
				fmt.Sprintf("\n  artifacthub.io/prerelease: \"%t\"\n", strings.Contains(number, "-")),
			},
			{
				"\n  artifacthub.io/links: |\n",
				"\n  artifacthub.io/images: |\n" + r.image("agent") + r.image("controller") + r.image("weights") +
					"  artifacthub.io/links: |\n",
			},
		},
		"values.yaml": {{"\n  registry: mbcas.io\n", "\n  registry: " + r.registry + "\n"}},
	}
	changed := string(text)
	for _, c := range places[name] {
		if n := strings.Count(changed, c[0]); n != 1 {
			return nil, fmt.Errorf("has %d times %q, want it once", n, strings.TrimSpace(c[0]))
		}
		changed = strings.Replace(changed, c[0], c[1], 1)
	}
	if name == "Chart.yaml" {
		changelog, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
		if err != nil {
			return nil, err
		}
		notes, err := notes(string(changelog), r.version)
		if err != nil {
			return nil, err
		}
		changed += changes(string(notes))
	}
	return []byte(changed), nil
}

// mostChanges bounds what Artifact Hub shows; the notes of the release have all.
const mostChanges = 50

var (
	point    = regexp.MustCompile(`(?m)^- (.+(?:\n  .+)*)`)
	sentence = regexp.MustCompile(`^.*?[.:](?: |$)`)
)

// changes is what Artifact Hub reads of the notes of a release: the first sentence of each point.
func changes(notes string) string {
	points := point.FindAllStringSubmatch(notes, -1)
	if len(points) == 0 {
		return ""
	}
	out := "  artifacthub.io/changes: |\n"
	for i, p := range points {
		if i == mostChanges {
			return out + fmt.Sprintf("    - %q\n", fmt.Sprintf("%d more, in the notes of the release", len(points)-i))
		}
		text := strings.Join(strings.Fields(p[1]), " ")
		if first := sentence.FindString(text); first != "" {
			text = first
		}
		out += fmt.Sprintf("    - %q\n", strings.TrimRight(text, ".: "))
	}
	return out
}

// image is what Artifact Hub reads of an image.
func (r release) image(name string) string {
	return fmt.Sprintf("    - name: %s\n      image: %s/%[1]s:%[3]s\n", name, r.registry, r.version)
}
