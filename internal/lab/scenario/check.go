package scenario

import (
	"cmp"
	"fmt"
	"io"

	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
)

// maxPods is how many pods a node may have.
const maxPods = 10_000

// check reports values that do not fit each other, and reads traces. Values by themselves follow the
// rules of their fields.
func (r *report) check(s *Scenario, open opener) {
	r.checkNode(&s.Node)
	if s.Length > 0 && s.WarmUp >= s.Length {
		r.add("warmUp", "%v leaves nothing of the length, %v; make it shorter", s.WarmUp, s.Length)
	}
	for i, at := range s.LoadSteps {
		if at >= s.Length {
			r.add(fmt.Sprintf("loadSteps[%d]", i), "%v is not before the end, %v", at, s.Length)
		}
	}
	for i, o := range s.Outages {
		if o.At >= s.Length {
			r.add(fmt.Sprintf("outages[%d].at", i), "%v is not before the end, %v", o.At, s.Length)
		}
	}
	known := map[string]string{}
	for i := range s.Pods {
		r.checkPod(fmt.Sprintf("pods[%d]", i), s, &s.Pods[i], open)
		r.checkUnique(fmt.Sprintf("pods[%d]", i), &s.Pods[i], known)
	}
	r.checkFit(s)
}

func (r *report) checkNode(n *Node) {
	whole := cpu.Milli(n.Cores) * cpu.Core
	n.Allocatable = cmp.Or(n.Allocatable, whole)
	if whole > 0 && n.Allocatable > whole {
		r.add("node.allocatable", "%s is more than the node has, %d", cores(n.Allocatable), n.Cores)
	}
	if whole > 0 && n.SystemUsage >= whole {
		r.add("node.systemUsage", "%s leaves nothing of the node, %d", cores(n.SystemUsage), n.Cores)
	}
}

// opener opens a trace file.
type opener func(path string) (io.ReadCloser, error)

// cores writes an amount in cores, as short as it goes.
func cores(m cpu.Milli) string { return strings.TrimSuffix(fmt.Sprintf("%g", m.Cores()), ".0") }

func (r *report) checkPod(field string, s *Scenario, p *Pod, open opener) {
	if p.Limit > 0 && p.Request > p.Limit {
		r.add(field+".limit", "%s is less than the request, %s, which Kubernetes refuses", cores(p.Limit), cores(p.Request))
	}
	if p.End > 0 && p.End <= p.Start {
		r.add(field+".end", "%v is not after the start, %v", p.End, p.Start)
	}
	if last := p.last(p.StartInterval); s.Length > 0 && last >= s.Length {
		r.add(field+".start", "the last replica would come at %v, which is not before the end of the scenario, %v", last, s.Length)
	} else if last := p.last(p.StartInterval + p.Stagger); last > longest {
		r.add(field+".stagger", "the load of the last replica would begin at %v; want a time up to %v", last, longest)
	}
	if k := p.Constraints; k.Ceiling > 0 && k.Floor > k.Ceiling {
		r.add(field+".constraints.floor", "%s is above the ceiling, %s", cores(k.Floor), cores(k.Ceiling))
	}
	for i, c := range p.ExternalChanges {
		if c.Limit <= p.Request || c.At >= s.Length {
			r.add(fmt.Sprintf("%s.externalChanges[%d]", field, i), "want a limit above the request, and a time before the end, %v", s.Length)
		}
	}
	if q := p.Load.Requests; q != nil {
		r.checkProfile(field+".load.requests.rate", &q.Rate, s.Length, open)
	}
	if p.Load.Spin != nil {
		r.checkProfile(field+".load.spin", p.Load.Spin, s.Length, open)
		if t := p.Load.Spin.Trace; t != nil && t.Format != FormatUsage {
			r.add(field+".load.spin.trace.format", "%s counts requests, not threads; use it as the rate of load.requests", t.Format)
		}
	}
}

// last is the time of the last replica where each is so much later than the one before it; at most
// the longest time there is.
func (p *Pod) last(every time.Duration) time.Duration {
	n := time.Duration(p.Replicas - 1)
	if n > 0 && every > (load.Forever-p.Start)/n {
		return load.Forever
	}
	return p.Start + n*every
}

// checkUnique reports pods that would have the same name.
func (r *report) checkUnique(field string, p *Pod, known map[string]string) {
	for i := range p.Replicas {
		n := p.replica(i)
		if other, taken := known[n]; taken {
			r.add(field+".name", "the pod %s is in %s, too; give one of them another name", n, other)
			return
		}
		known[n] = field
	}
	if len(known) > maxPods {
		r.add("pods", "there are more than %d on a node", maxPods)
	}
}

// checkFit reports the first time at which the requests of the pods that run do not fit: Kubernetes
// would not place them.
func (r *report) checkFit(s *Scenario) {
	if len(r.found) > 0 {
		return
	}
	type change struct {
		at   time.Duration
		more cpu.Milli
	}
	var changes []change
	for _, p := range s.Pods {
		for i := range p.Replicas {
			later := time.Duration(i) * p.StartInterval
			changes = append(changes, change{p.Start + later, p.Request})
			if p.End > 0 {
				changes = append(changes, change{p.End + later, -p.Request})
			}
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.more, b.more)) })
	var sum cpu.Milli
	for _, c := range changes {
		if sum += c.more; sum > s.Node.Allocatable {
			r.add("pods", "at %v the requests sum to %s, more than the node's allocatable %s: the scheduler would not place them all", c.at, cores(sum), cores(s.Node.Allocatable))
			return
		}
	}
}

// checkProfile reports what does not fit in a profile.
func (r *report) checkProfile(field string, p *Profile, length time.Duration, open opener) {
	var kinds, given []string
	for i, kind := range rulesOf(reflect.TypeFor[Profile]()) {
		kinds = append(kinds, kind.field)
		if !reflect.ValueOf(p).Elem().Field(i).IsNil() {
			given = append(given, kind.field)
		}
	}
	if len(given) != 1 {
		r.add(field, "want a number, or exactly one of %s; it has %d", strings.Join(kinds, ", "), len(given))
		return
	}
	at := func(name string) string { return field + "." + given[0] + "." + name }
	switch {
	case p.Ramp != nil && p.Ramp.End <= p.Ramp.Start:
		r.add(at("end"), "%v is not after the start, %v", p.Ramp.End, p.Ramp.Start)
	case p.Burst != nil && p.Burst.Period > 0 && p.Burst.Period < p.Burst.Length:
		r.add(at("period"), "%v is shorter than the length, %v", p.Burst.Period, p.Burst.Length)
	case p.Burst != nil && p.Burst.Period == 0 && p.Burst.Jitter > 0:
		r.add(at("jitter"), "a single burst has no jitter; set a period, or leave jitter out")
	case p.Noise != nil && p.Noise.Interval > 0 && length/p.Noise.Interval > maxSteps:
		r.add(at("interval"), "%v makes more than %d steps until the end; make it longer", p.Noise.Interval, maxSteps)
	case p.Trace != nil && p.Trace.File != "" && p.Trace.Format != "":
		r.checkTrace(field+".trace", p.Trace, open)
	}
}

// checkTrace reads the file.
func (r *report) checkTrace(field string, t *Trace, open opener) {
	in, err := open(t.File)
	if err != nil {
		r.add(field+".file", "%v", err)
		return
	}
	defer in.Close()
	if t.recorded, err = readTrace(t.Format, in); err != nil {
		r.add(field+".file", "%s, read as %s: %v", t.File, t.Format, err)
		return
	}
	length := time.Duration(len(t.recorded.values)) * t.recorded.step
	if t.From >= length {
		r.add(field+".from", "%v is not before the end of the trace, %v", t.From, length)
	}
	if step := time.Duration(float64(t.recorded.step) / t.Speed); t.Speed > 0 && step < time.Millisecond {
		r.add(field+".speed", "at %g a step of the trace takes %v, less than 1ms; make it slower", t.Speed, step)
	}
}
