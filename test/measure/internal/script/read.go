package script

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Open reads a script by its name among those that ship, or by its path.
func Open(shipped fs.FS, name string) (*Script, error) {
	text, err := fs.ReadFile(shipped, name+".yaml")
	if err != nil && strings.Contains(name, ".yaml") {
		text, err = os.ReadFile(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		all, _ := fs.Glob(shipped, "*.yaml")
		return nil, fmt.Errorf("no script %q: want the path of a YAML file, or one of %s",
			name, strings.ReplaceAll(strings.Join(all, ", "), ".yaml", ""))
	}
	if err != nil {
		return nil, err
	}
	s, err := Read(text)
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", name, err)
	}
	return s, nil
}

// Read reads a script and checks it.
func Read(text []byte) (*Script, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	s := &Script{}
	if err := d.Decode(s); err != nil {
		return nil, err
	}
	s.expand()
	return s, s.check()
}

// expand makes Count workloads of one.
func (s *Script) expand() {
	var all []Workload
	for _, w := range s.Workloads {
		w.group = w.Name
		if w.Kind == "" {
			w.Kind = Serve
		}
		for i := range max(1, w.Count) {
			one := w
			if w.Count > 0 {
				one.Name = fmt.Sprintf("%s-%d", w.Name, i+1)
			}
			all = append(all, one)
		}
	}
	s.Workloads = all
	for i := range s.Phases {
		if p := &s.Phases[i]; p.Service == "" {
			p.Service = s.Service
		}
		if p := &s.Phases[i]; p.Hog == "" {
			p.Hog = s.Hog
		}
	}
}

// check finds every name that nothing has.
func (s *Script) check() error {
	c := checker{script: s}
	c.need(s.Name != "" && s.Title != "", "it has no name or no title")
	c.need(s.RequestCPU > 0, "requestCPU: want a time above 0")
	c.need(len(s.Runs) > 0 && len(s.Phases) > 0 && len(s.Workloads) > 0, "it has no runs, no phases or no workloads")
	for _, w := range s.Workloads {
		at := "workload " + w.Name
		c.known(at+": namespace", w.Namespace, s.Namespaces)
		c.known(at+": kind", w.Kind, []string{Serve, Spin})
		c.known(at+": priorityClass", w.Class, slices.Collect(maps.Keys(s.Classes)), "")
	}
	for _, r := range s.Runs {
		c.known("run "+r.Name+": mode", r.Mode, []string{"off", "recommend", "enforce", "restore"})
	}
	c.need(len(s.Runs) == 0 || !s.Runs[0].KeepPods, "run %s: keepPods: no run before it has pods", first(s.Runs).Name)
	for _, p := range s.Phases {
		c.phase(p)
	}
	if r := s.React; r != nil {
		c.workload("reaction: service", r.Service, Serve)
		c.workload("reaction: hog", r.Hog, Spin)
	}
	c.where("headline: p99", s.Headline.P99)
	c.where("headline: throttled", s.Headline.Throttled)
	for _, r := range s.Rows {
		c.where("row "+r.Title, r.Where)
	}
	for _, t := range s.Targets {
		c.where("target "+t.Title, t.Where)
		c.run("target "+t.Title+": run", t.Run)
		c.run("target "+t.Title+": over", t.Over)
	}
	for _, x := range s.Charts {
		c.run("chart "+x.Title+": run", x.Run)
	}
	return errors.Join(c.errs...)
}

func first(runs []Run) (r Run) {
	if len(runs) > 0 {
		r = runs[0]
	}
	return r
}

// checker collects mistakes.
type checker struct {
	script *Script
	errs   []error
}

func (c *checker) need(ok bool, format string, args ...any) {
	if !ok {
		c.errs = append(c.errs, fmt.Errorf(format, args...))
	}
}

func (c *checker) known(at, name string, names []string, also ...string) {
	slices.Sort(names)
	c.need(slices.Contains(names, name) || slices.Contains(also, name), "%s: %q is none of %s", at, name, strings.Join(names, ", "))
}

// workload checks the name of a workload of a kind.
func (c *checker) workload(at, name, kind string) {
	w, ok := c.script.Find(name)
	c.need(ok && w.Kind == kind, "%s: %q is no workload of kind %s", at, name, kind)
}

// run checks the name of a run; none is fine.
func (c *checker) run(at, name string) {
	for _, r := range c.script.Runs {
		if r.Name == name {
			return
		}
	}
	c.need(name == "", "%s: there is no run %q", at, name)
}

// where checks a service and a phase; none is fine.
func (c *checker) where(at string, w Where) {
	if w.Service != "" {
		c.workload(at+": service", w.Service, Serve)
	}
	played := slices.ContainsFunc(c.script.Phases, func(p Phase) bool { return p.Name == w.Phase })
	c.need(w.Phase == "" || played, "%s: there is no phase %q", at, w.Phase)
}

func (c *checker) phase(p Phase) {
	at := "phase " + p.Name
	c.need(p.Short >= 0 && p.Full >= p.Short && p.Full > 0, "%s: short %v, full %v: want the full length above 0 and not below the short one",
		at, p.Short, p.Full)
	for name, rate := range p.Rates {
		c.workload(at+": rates", name, Serve)
		c.need(rate >= 0, "%s: rates: %s: %v is negative", at, name, rate)
	}
	for _, name := range p.Spin {
		c.workload(at+": spin", name, Spin)
	}
	for _, name := range p.Runs {
		c.run(at+": runs", name)
	}
	if m := p.Moving; m != nil {
		n := len(c.script.group(m.Workload))
		c.need(n > 0 && m.Busy <= n && len(m.BusyRates) > 0 && m.Every > 0,
			"%s: moving: want a workload of at least %d, busy rates, and every above 0", at, m.Busy)
	}
}

// group is the workloads that share a name in the file.
func (s *Script) group(name string) (all []Workload) {
	for _, w := range s.Workloads {
		if w.group == name {
			all = append(all, w)
		}
	}
	return all
}
