package scenario

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

//go:embed catalogue
var catalogueFiles embed.FS

// Read reads a scenario from a file. Its traces are found from the folder of the file.
func Read(file string) (*Scenario, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("scenario: %w; name a YAML file, or one of those that `mbcas-lab scenarios` lists", err)
	}
	return Parse(file, data, filepath.Dir(file))
}

// Parse reads a scenario; file is its name in errors, and traces with relative paths are found from
// dir.
func Parse(file string, data []byte, dir string) (*Scenario, error) {
	return ParseFrom(file, data, func(file string) (io.ReadCloser, error) {
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		return os.Open(file)
	})
}

// ParseFrom is Parse with traces that open opens.
func ParseFrom(file string, data []byte, open func(path string) (io.ReadCloser, error)) (*Scenario, error) {
	s := &Scenario{}
	r := &report{file: file, lines: map[string]int{}}
	if r.decode(data, s) {
		r.check(s, open)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return s, nil
}

// Catalogue are the scenarios that ship and need no file, by name.
func Catalogue() []*Scenario { return all("catalogue", "") }

// Traced are the scenarios with the recorded load in a folder; those without a file there are left
// out.
func Traced(dir string) []*Scenario { return all("catalogue/traces", dir) }

// all are the shipped scenarios of a folder. Only a missing trace may keep one from being read.
func all(folder, traces string) (found []*Scenario) {
	files, _ := fs.Glob(catalogueFiles, folder+"/*.yaml") // the pattern is valid
	for _, file := range files {
		s, err := Find(strings.TrimSuffix(path.Base(file), ".yaml"), traces)
		switch {
		case err == nil:
			found = append(found, s)
		case traces == "":
			panic(err)
		}
	}
	return found
}

// Text is the file of a scenario that ships.
func Text(name string) ([]byte, error) {
	data, _, err := shipped(name)
	return data, err
}

// shipped is the file of a scenario that ships, and whether it plays recorded load.
func shipped(name string) (data []byte, traced bool, err error) {
	for _, folder := range []string{"catalogue", "catalogue/traces"} {
		if data, err := catalogueFiles.ReadFile(path.Join(folder, name+".yaml")); err == nil {
			return data, folder != "catalogue", nil
		}
	}
	return nil, false, fmt.Errorf("there is no scenario %q: see \"mbcas-lab scenarios\", or give the path of a file that ends in .yaml", name)
}

// Find is a scenario of the catalogue, or the one in a file: what ends in .yaml or .yml or holds a
// slash is a path. Where traces names a folder, the scenarios that play what is in it are found,
// too.
func Find(what, traces string) (*Scenario, error) {
	if strings.ContainsRune(what, '/') || strings.HasSuffix(what, ".yaml") || strings.HasSuffix(what, ".yml") {
		return Read(what)
	}
	data, traced, err := shipped(what)
	if err != nil {
		return nil, err
	}
	if traced && traces == "" {
		return nil, fmt.Errorf("scenario %q uses recorded load: name the folder of the traces with --traces", what)
	}
	return Parse(what+".yaml", data, traces)
}
