// Package bundle collects what a report of a fault needs into one zip file.
//
// Promises:
//   - A part that cannot be read costs itself alone, and the index names it: TestBundlePartFails.
//   - Each part is bounded in time and size, and what was cut is named: TestBundleBounds.
//   - A node that does not answer leaves time for the others: TestBundleSilentNodes.
//   - An anonymized bundle has no name of a node, namespace, pod or container, and no UID or address: TestBundleAnonymized.
package bundle

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/record"
)

// Options are what goes into a bundle.
type Options struct {
	// File is the zip file to write. It must not exist.
	File      string
	Anonymize bool
	// Nodes is of how many nodes recordings and logs are read: those with the highest prices.
	Nodes int
	// Version is that of the plugin, and Versions tells those of the installation and the cluster.
	Version  string
	Versions func(context.Context) (string, error)
}

// Bounds of a part: in time, and of each of its files in size.
const (
	partTimeout = 2 * time.Minute
	mostBytes   = 16 << 20
	mostObjects = 5000 // of one kind
	mostLog     = 2 << 20
)

// Index says what is in a bundle.
type Index struct {
	At         time.Time `json:"at"`
	Plugin     string    `json:"plugin"`
	Anonymized bool      `json:"anonymized"`
	Parts      []Part    `json:"parts"`
}

// Part is a part of a bundle.
type Part struct {
	Name  string   `json:"name"`
	Files []string `json:"files,omitempty"`
	// Errors say what could not be read, or was cut.
	Errors []string `json:"errors,omitempty"`
}

// file is one of the zip: of the three one is set.
type file struct {
	name   string
	object any // as JSON has it; written as YAML
	text   string
	rec    *record.Recording
}

// collector collects files, and the names in them.
type collector struct {
	*cluster.Access
	options Options
	names   *pseudonyms
	part    *Part
	files   []file
}

// Write collects all parts and writes the file. Progress goes to Err.
func Write(ctx context.Context, a *cluster.Access, s format.Streams, o Options) error {
	if _, err := os.Lstat(o.File); err == nil {
		return fmt.Errorf("%s exists; name another file with -o", o.File)
	}
	c := &collector{Access: a, options: o, names: newPseudonyms(kept...)}
	c.names.off = !o.Anonymize
	index := Index{At: a.Now().UTC(), Plugin: o.Version, Anonymized: o.Anonymize}
	for i, p := range parts {
		fmt.Fprintf(s.Err, "%s (%d of %d)\n", p.name, i+1, len(parts))
		part := Part{Name: p.name}
		c.part = &part
		c.collect(ctx, p.read)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, e := range part.Errors {
			fmt.Fprintf(s.Err, "  %s\n", e)
		}
		index.Parts = append(index.Parts, part)
	}
	data, err := c.zip(&index)
	if err != nil {
		return err
	}
	for _, p := range index.Parts[len(parts):] { // of what was written
		for _, e := range p.Errors {
			fmt.Fprintf(s.Err, "  %s\n", e)
		}
	}
	if err := write(o.File, data); err != nil {
		return err
	}
	failed := 0
	for _, p := range index.Parts {
		failed += len(p.Errors)
	}
	fmt.Fprintf(s.Out, "%s: %s, %.1f MiB\n", o.File, format.Plural(len(c.files)+1, "file"), float64(len(data))/(1<<20))
	if failed > 0 {
		fmt.Fprintf(s.Out, "%s could not be read in full: see index.json in it.\n", format.Plural(failed, "thing"))
	}
	if !o.Anonymize {
		fmt.Fprintln(s.Out, "It has the names of namespaces, pods, containers and nodes. --anonymize replaces them.")
	}
	return nil
}

// kept are the names that every installation has.
var kept = []string{
	kube.SystemNamespace, "mbcas", cluster.AgentName, cluster.ControllerName, "agent", "controller", "default", "kube-system", "kube-public",
	"kube-node-lease", cluster.CRDName, cluster.NodeCRDName, cluster.SignalCRDName, kube.SettingsName,
}

// collect reads a part.
func (c *collector) collect(ctx context.Context, read func(*collector, context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	if err := read(c, ctx); err != nil {
		c.failed(err)
	}
}

func (c *collector) failed(err error) {
	c.part.Errors = append(c.part.Errors, format.OneLine(err.Error()))
}

func (c *collector) add(f file) {
	c.files = append(c.files, f)
	c.part.Files = append(c.part.Files, f.name)
}

// zip writes the files, under pseudonyms if that is asked for. What cannot be written is an error of the index.
func (c *collector) zip(index *Index) ([]byte, error) {
	text, value, name := func(s string) string { return s }, func(v any) any { return v }, func(s string) string { return s }
	if c.options.Anonymize {
		text, value, name = c.names.text, c.names.value, c.names.of
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	extra := Part{Name: "writing"}
	for _, f := range c.files {
		data, cut, err := f.fit(mostBytes, text, value, name, c.options.Anonymize)
		if cut != "" {
			extra.Errors = append(extra.Errors, fmt.Sprintf("%s is cut: %s; a file has at most %d bytes", f.name, cut, mostBytes))
		}
		if err != nil {
			extra.Errors = append(extra.Errors, fmt.Sprintf("%s is left out: %s", f.name, format.OneLine(err.Error())))
			continue
		}
		if err := c.entry(z, text(f.name), data); err != nil {
			return nil, err
		}
	}
	if len(extra.Errors) > 0 {
		index.Parts = append(index.Parts, extra)
	}
	as, err := generic(index)
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(value(as), "", "  ")
	if err != nil {
		return nil, err
	}
	err = errors.Join(c.entry(z, "index.json", append(data, '\n')), z.Close())
	return b.Bytes(), err
}

func (c *collector) entry(z *zip.Writer, name string, data []byte) error {
	w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: c.Now()})
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

// fit is the file in at most so many bytes; cut says what is missing of it.
func (f *file) fit(
	most int, text func(string) string, value func(any) any, name func(string) string, rename bool,
) (data []byte, cut string, err error) {
	if data, err = f.encode(text, value, name, rename); err != nil || len(data) <= most {
		return data, "", err
	}
	object, _ := f.object.(map[string]any)
	items, _ := object["items"].([]any)
	switch {
	case len(items) > 0:
		fewer := max(1, len(items)*most/len(data)*9/10)
		head := file{name: f.name, object: map[string]any{"items": items[:fewer]}}
		if data, err = head.encode(text, value, name, rename); err == nil && len(data) <= most {
			return data, fmt.Sprintf("it has the first %d of %d objects", fewer, len(items)), nil
		}
	case f.text != "":
		return data[len(data)-most:], "it has its end", nil
	}
	return nil, "", errors.Join(err, fmt.Errorf("%d bytes are too many; a file has at most %d", len(data), most))
}

func (f *file) encode(text func(string) string, value func(any) any, name func(string) string, rename bool) ([]byte, error) {
	switch {
	case f.rec != nil:
		rec := f.rec
		if rename {
			var err error
			if rec, err = rec.Rename(name, text); err != nil {
				return nil, err
			}
		}
		var b bytes.Buffer
		err := rec.Write(&b)
		return b.Bytes(), err
	case f.object != nil:
		return yaml.Marshal(value(f.object))
	}
	return []byte(text(f.text)), nil
}

// write writes a new file, which the user alone may read.
func write(path string, data []byte) (err error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = out.Write(data)
	return err
}
