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
	if s.React != nil && len(s.React.Kinds) == 0 {
		s.React.Kinds = []string{Freed}
	}
	for i := range s.Phases {
		if p := &s.Phases[i]; p.Service == "" {
			p.Service = s.Service
		}
		if p := &s.Phases[i]; p.Hog == "" {
			p.Hog = s.Hog
		}
	}
}

// problems collects what is wrong with a script.
type problems []error

func (p *problems) need(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// known needs a name to be one of names, or empty.
func (p *problems) known(at, name string, names []string) {
	slices.Sort(names)
	p.need(name == "" || slices.Contains(names, name), "%s: %q is none of %s", at, name, strings.Join(names, ", "))
}

// check finds every name that nothing has.
func (s *Script) check() error {
	var p problems
	p.need(s.Name != "" && s.Title != "" && s.RequestCPU > 0, "want a name, a title, and requestCPU above 0")
	p.need(len(s.Runs) > 0 && len(s.Phases) > 0 && len(s.Workloads) > 0, "want runs, phases and workloads")
	for _, w := range s.Workloads {
		p.known("workload "+w.Name+": kind", w.Kind, []string{Serve, Spin})
		p.known("workload "+w.Name+": priorityClass", w.Class, slices.Collect(maps.Keys(s.Classes)))
		p.known("workload "+w.Name+": namespace", w.Namespace, slices.Clone(s.Namespaces))
	}
	var runs, phases []string
	for i, r := range s.Runs {
		runs = append(runs, r.Name)
		p.known("run "+r.Name+": mode", r.Mode, []string{"off", "recommend", "enforce", "restore"})
		p.need(i > 0 || !r.KeepPods, "run %s: keepPods: no run before it has pods", r.Name)
		s.checkOrder(&p, r.Name)
	}
	services, hogs := s.names(Serve), s.names(Spin)
	for _, x := range s.Phases {
		phases = append(phases, x.Name)
		s.checkPhase(&p, x, runs)
	}
	where := func(at string, w Where, more ...string) {
		p.known(at+": service", w.Service, services)
		for _, phase := range append(more, w.Phase) {
			p.known(at+": phase", phase, phases)
		}
	}
	where("headline: p99", s.Headline.P99)
	where("headline: throttled", s.Headline.Throttled, s.Headline.Steady)
	for _, r := range s.Rows {
		where("row "+r.Title, r.Where)
	}
	for _, t := range s.Targets {
		where("target "+t.Title, t.Where, t.Phases...)
		p.known("target "+t.Title+": run", t.Run, runs)
		p.known("target "+t.Title+": over", t.Over, runs)
	}
	if r := s.React; r != nil {
		p.known("reaction: hog", r.Hog, hogs)
		p.known("reaction: beside", r.Beside, hogs)
		p.need(r.Hog != "" && r.Pod.Threads > 0 && r.Pod.Limit > 0,
			"reaction: want a hog, and a pod with threads and a limit")
		for _, kind := range r.Kinds {
			p.known("reaction: kind", kind, []string{Freed, OwnDecrease, OtherDecrease, NewPodUnderLoad})
			p.need(kind != OwnDecrease && kind != OtherDecrease || r.Beside != "" && r.HogLimit > 0,
				"reaction: %s: want beside and hogLimit", kind)
		}
	}
	return errors.Join(p...)
}

// checkOrder needs the phases of one name in a run to follow each other: figures are of them as one.
func (s *Script) checkOrder(p *problems, run string) {
	var played []string
	for _, x := range s.Phases {
		if !x.plays(run) {
			continue
		}
		n := len(played)
		p.need(n == 0 || played[n-1] == x.Name || !slices.Contains(played, x.Name),
			"phase %s: run %s plays it again after another phase", x.Name, run)
		played = append(played, x.Name)
	}
}

func (s *Script) checkPhase(p *problems, x Phase, runs []string) {
	at := "phase " + x.Name
	p.need(x.Short >= 0 && x.Full >= max(1, x.Short),
		"%s: short %v, full %v: want full above 0 and not below short", at, x.Short, x.Full)
	for name, rate := range x.Rates {
		p.known(at+": rates", name, s.names(Serve))
		p.need(rate >= 0, "%s: rates: %s: %v is negative", at, name, rate)
	}
	for _, name := range x.Spin {
		p.known(at+": spin", name, s.names(Spin))
	}
	for _, name := range x.Runs {
		p.known(at+": runs", name, runs)
	}
	if m := x.Moving; m != nil {
		ok := m.Busy <= len(s.group(m.Workload)) && len(m.BusyRates) > 0 && m.Every > 0
		p.need(ok, "%s: moving: want at least %d workloads, busy rates, and every above 0", at, m.Busy)
	}
}

// names are the workloads of a kind.
func (s *Script) names(kind string) (names []string) {
	for _, w := range s.Workloads {
		if w.Kind == kind {
			names = append(names, w.Name)
		}
	}
	return names
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
