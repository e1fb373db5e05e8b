// Command chart writes the Helm chart charts/mbcas, from config, monitoring and the flags of the programs. Written by
// hand are the templates of what has values in it: agent, controller, restore, network policies, monitors, rules,
// dashboards, bindings and notes.
//
// Promises:
//   - What is copied is copied word by word. It gets Helm's labels, CRDs get the annotation that keeps them, and the
//     policy mbcas-controller gets the mode: TestCopy.
//   - Rules and dashboards are those of monitoring, byte by byte: TestFiles.
//   - A text that cannot be found where it is to be replaced is an error, never a chart without it: TestCopyRefuses.
//   - Values, schema and both tables are made of one list: TestSchemaIsClosed, TestValuesFile.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mbcas/mbcas/internal/program"
)

// dir is the folder of the chart, page the documentation that has the table of values.
const (
	dir  = "charts/mbcas"
	page = "docs/helm.md"
)

func main() {
	root := flag.String("root", ".", "root of the repository")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// run writes every generated file of the chart.
func run(root string) error {
	agent, err := flagsOf(root, "mbcas-agent")
	if err != nil {
		return err
	}
	controller, err := flagsOf(root, "mbcas-controller")
	if err != nil {
		return err
	}
	files, err := generate(root, agent, controller)
	if err != nil {
		return err
	}
	for _, sub := range []string{"templates/crds", "templates/rbac", "templates/policy", "files"} {
		if err := os.RemoveAll(filepath.Join(root, dir, sub)); err != nil { // a file without a source goes
			return err
		}
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the text of each file by its path below root.
func generate(root string, agent, controller []program.Flag) (map[string]string, error) {
	all, err := copies(root)
	if err != nil {
		return nil, err
	}
	read, err := files(root)
	if err != nil {
		return nil, err
	}
	maps.Copy(all, read)
	rows, err := values(agent, controller)
	if err != nil {
		return nil, err
	}
	made := map[string]func() (string, error){
		"Chart.yaml":         func() (string, error) { return chartFile(root) },
		"values.yaml":        func() (string, error) { return valuesFile(rows) },
		"values.schema.json": func() (string, error) { return schemaFile(rows) },
		"README.md":          func() (string, error) { return readme(rows), nil },
	}
	for name, text := range made {
		if all[filepath.Join(dir, name)], err = text(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	all[page], err = withTable(filepath.Join(root, page), rows)
	return all, err
}

// flagsOf asks a program for its flags.
func flagsOf(root, name string) ([]program.Flag, error) {
	cmd := exec.Command("go", "run", "./cmd/"+name, program.PrintFlags)
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return readFlags(stderr.String())
}
