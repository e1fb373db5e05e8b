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
	s := &Scenario{}
	r := &report{file: file, lines: map[string]int{}}
	if r.decode(data, s) {
		r.check(s, func(file string) (io.ReadCloser, error) {
			if !filepath.IsAbs(file) {
				file = filepath.Join(dir, file)
			}
			return os.Open(file)
		})
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return s, nil
}

// Catalogue are the scenarios that ship, by name.
func Catalogue() (all []*Scenario) {
	files, _ := fs.Glob(catalogueFiles, "catalogue/*.yaml") // the pattern is valid
	for _, file := range files {
		s, err := Find(strings.TrimSuffix(path.Base(file), ".yaml"))
		if err != nil {
			panic(err)
		}
		all = append(all, s)
	}
	return all
}

// Text is the file of a scenario that ships.
func Text(name string) ([]byte, error) {
	data, err := catalogueFiles.ReadFile(path.Join("catalogue", name+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("there is no scenario %q: see \"mbcas-lab scenarios\", or give the path of a file: .yaml for a scenario, .csv or .txt for recorded load", name)
	}
	return data, nil
}

// Find is a scenario of the catalogue, or that of a file: what ends in .yaml or .yml or holds a slash is the path of a
// scenario, and what ends in .csv or .txt, or in one of them with "=" and a scale, that of recorded load.
func Find(what string) (*Scenario, error) {
	if m := isTrace.FindStringSubmatch(what); m != nil {
		return ofTrace(m[1], m[2])
	}
	if strings.ContainsRune(what, '/') || strings.HasSuffix(what, ".yaml") || strings.HasSuffix(what, ".yml") {
		return Read(what)
	}
	data, err := Text(what)
	if err != nil {
		return nil, err
	}
	return Parse(what+".yaml", data, "")
}
