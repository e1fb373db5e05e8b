package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// manifests are the files that kubectl and Helm install from.
func (r release) manifests() (map[string][]byte, error) {
	base, err := r.objects("config/base")
	if err != nil {
		return nil, err
	}
	crds, err := r.objects("config/crd")
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
	return map[string][]byte{
		"install.yaml":   file("kubectl apply --server-side -f install.yaml", base),
		"crds.yaml":      file("With crds.install=false of the chart: kubectl apply --server-side -f crds.yaml", crds),
		"namespace.yaml": file("Before helm install: kubectl apply -f namespace.yaml", namespace),
		"mbcas-" + strings.TrimPrefix(r.version, "v") + ".tgz": chart,
	}, nil
}

// objects are those of a kustomization that lists files and other kustomizations, and changes nothing. They stay as
// they are written, with comments, but for the images.
func (r release) objects(dir string) (all []string, err error) {
	text, err := os.ReadFile(filepath.Join(r.root, dir, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var k struct {
		APIVersion, Kind string
		Resources        []string
	}
	if err := yaml.UnmarshalStrict(text, &k); err != nil {
		return nil, fmt.Errorf("%s/kustomization.yaml: %w; tools/dist reads lists of resources alone", dir, err)
	}
	for _, resource := range k.Resources {
		path := filepath.Join(dir, resource)
		if filepath.Ext(path) != ".yaml" {
			more, err := r.objects(path)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
			continue
		}
		text, err := os.ReadFile(filepath.Join(r.root, path))
		if err != nil {
			return nil, err
		}
		for _, object := range strings.Split("\n"+strings.TrimPrefix(string(text), "---\n"), "\n---\n") {
			image := "image: " + r.registry + "/$1:" + r.version
			all = append(all, images.ReplaceAllString(strings.TrimSpace(object), image)+"\n")
		}
	}
	return all, nil
}

// images are those of MBCAS in a manifest.
var images = regexp.MustCompile(`image: mbcas\.io/(agent|controller):dev\b`)

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
	changes := map[string][][2]string{
		"Chart.yaml": {
			{"\nversion: 0.0.0-dev\n", "\nversion: " + number + "\n"},
			{"\nappVersion: dev\n", "\nappVersion: " + r.version + "\n"},
			{
				"\n  artifacthub.io/prerelease: \"true\"\n",
				fmt.Sprintf("\n  artifacthub.io/prerelease: \"%t\"\n", strings.Contains(number, "-")),
			},
			{
				"\n  artifacthub.io/links: |\n",
				"\n  artifacthub.io/images: |\n" + r.image("agent") + r.image("controller") +
					"  artifacthub.io/links: |\n",
			},
		},
		"values.yaml": {{"\n  registry: mbcas.io\n", "\n  registry: " + r.registry + "\n"}},
	}
	changed := string(text)
	for _, c := range changes[name] {
		if n := strings.Count(changed, c[0]); n != 1 {
			return nil, fmt.Errorf("has %d times %q, want it once", n, strings.TrimSpace(c[0]))
		}
		changed = strings.Replace(changed, c[0], c[1], 1)
	}
	return []byte(changed), nil
}

// image is what Artifact Hub reads of an image.
func (r release) image(name string) string {
	return fmt.Sprintf("    - name: %s\n      image: %s/%[1]s:%[3]s\n", name, r.registry, r.version)
}
