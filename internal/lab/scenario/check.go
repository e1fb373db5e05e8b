package scenario

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
)

// What a file may ask for at most; more is taken for a slip.
const (
	maxCores  = 1024
	maxNodes  = 10_000
	maxPods   = 10_000
	maxLength = 30 * 24 * time.Hour
	maxSpin   = 4096
	maxRate   = 1e6
)

// name is what Kubernetes takes for a name of a pod, a namespace or a workload, without dots.
var name = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// check reports whatever is wrong with the values, and gives those that are left out.
func (r *report) check(s *Scenario, open opener) {
	r.name("name", s.Name, true)
	r.name("reference", s.Reference, false)
	if strings.TrimSpace(s.Description) == "" {
		r.add("description", "it is missing; say what the scenario shows")
	}
	r.checkNode(&s.Node)
	r.atLeast("nodes", &s.Nodes, 1, maxNodes)
	if s.Length == 0 {
		r.add("length", "want a time above 0 and up to %v, such as 300s", maxLength)
	}
	if s.Length > 0 && s.WarmUp >= s.Length {
		r.add("warmUp", "%v leaves nothing of the length, %v; make it shorter", s.WarmUp, s.Length)
	}
	for i, at := range s.LoadSteps {
		if at >= s.Length {
			r.add(fmt.Sprintf("loadSteps[%d]", i), "%v is not before the end, %v", at, s.Length)
		}
	}
	if len(s.Pods) == 0 {
		r.add("pods", "there are none; write one at least")
	}
	r.checkKubernetes(s)
	known := map[string]string{}
	for i := range s.Pods {
		r.checkPod(fmt.Sprintf("pods[%d]", i), s, &s.Pods[i], open)
		r.unique(fmt.Sprintf("pods[%d]", i), &s.Pods[i], known)
	}
	r.checkFit(s)
}

func (r *report) checkNode(n *Node) {
	if n.Cores < 1 || n.Cores > maxCores {
		r.add("node.cores", "want 1 to %d", maxCores)
	}
	whole := cpu.Milli(n.Cores) * cpu.Core
	if n.Allocatable == 0 {
		n.Allocatable = whole
	}
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

func (r *report) name(field, value string, needed bool) {
	switch {
	case value == "" && needed:
		r.add(field, "it is missing")
	case value != "" && !name.MatchString(value):
		r.add(field, "%q is no name: want lower-case letters, digits and dashes, at most 63", value)
	}
}

// atLeast gives a whole number that is left out its least value.
func (r *report) atLeast(field string, value *int, least, most int) {
	if *value == 0 && r.lines[field] == 0 {
		*value = least
	}
	if *value < least || *value > most {
		r.add(field, "want %d to %d, not %d", least, most, *value)
	}
}

func (r *report) checkPod(field string, s *Scenario, p *Pod, open opener) {
	r.name(field+".name", p.Name, true)
	r.name(field+".namespace", p.Namespace, false)
	r.name(field+".workload", p.Workload, false)
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	if !slices.Contains(Roles, p.Role) {
		oneOf(r, field+".role", p.Role, Roles)
	}
	if p.Limit > 0 && p.Request > p.Limit {
		r.add(field+".limit", "%s is less than the request, %s, which Kubernetes refuses", cores(p.Limit), cores(p.Request))
	}
	r.atLeast(field+".replicas", &p.Replicas, 1, maxPods)
	r.atLeast(field+".parallelism", &p.Parallelism, 0, maxSpin)
	if p.End > 0 && p.End <= p.Start {
		r.add(field+".end", "%v is not after the start, %v", p.End, p.Start)
	}
	if last := p.last(p.StartInterval); s.Length > 0 && last >= s.Length {
		r.add(field+".start", "the last replica would come at %v, which is not before the end of the scenario, %v", last, s.Length)
	} else if last := p.last(p.StartInterval + p.Stagger); last > maxLength {
		r.add(field+".stagger", "the load of the last replica would begin at %v; want a time up to %v", last, maxLength)
	}
	if q := p.Load.Requests; q != nil {
		r.checkRequests(field+".load.requests", q, open)
	}
	if p.Load.Spin != nil {
		r.checkProfile(field+".load.spin", p.Load.Spin, maxSpin, open)
		if t := p.Load.Spin.Trace; t != nil && t.Format != FormatUsage {
			r.add(field+".load.spin.trace.format", "%s counts requests, not threads; use it as the rate of load.requests", t.Format)
		}
	}
	r.checkNoise(field+".load", s.Length, &p.Load)
}

// last is the time of the last replica where each is so much later than the one before it; at most
// the longest time there is.
func (p *Pod) last(every time.Duration) time.Duration {
	if n := time.Duration(p.Replicas - 1); n > 0 && every > (load.Forever-p.Start)/n {
		return load.Forever
	}
	return p.Start + time.Duration(p.Replicas-1)*every
}

// checkNoise reports random walks of more steps than a recording may have.
func (r *report) checkNoise(field string, length time.Duration, l *Load) {
	check := func(field string, p *Profile) {
		if p.Noise != nil && p.Noise.Interval > 0 && length/p.Noise.Interval > maxSteps {
			r.add(field+".noise.interval", "%v makes more than %d steps until the end; make it longer", p.Noise.Interval, maxSteps)
		}
	}
	if l.Requests != nil {
		check(field+".requests.rate", &l.Requests.Rate)
	}
	if l.Spin != nil {
		check(field+".spin", l.Spin)
	}
}

// oneOf reports a word that is none of those known.
func oneOf[T ~string](r *report, field string, value T, known []T) {
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
	}
	list := strings.Join(words, ", ")
	if value == "" {
		r.add(field, "it is missing; want one of %s", list)
		return
	}
	r.add(field, "want one of %s, not %q", list, value)
}

func (r *report) checkRequests(field string, q *Requests, open opener) {
	if q.ServiceTime < time.Microsecond || q.ServiceTime > time.Minute {
		r.add(field+".serviceTime", "want the CPU time of a request, 1us to 1m, such as 10ms")
	}
	if q.Distribution == "" {
		q.Distribution = Exponential
	}
	if q.Distribution != Fixed && q.Distribution != Exponential {
		oneOf(r, field+".distribution", q.Distribution, []Distribution{Fixed, Exponential})
	}
	r.checkProfile(field+".rate", &q.Rate, maxRate, open)
}

// unique reports pods that would have the same name.
func (r *report) unique(field string, p *Pod, known map[string]string) {
	if p.Name == "" || p.Replicas < 1 || p.Replicas > maxPods {
		return
	}
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

// checkKubernetes reports what is wrong with quotas, outages, constraints and external changes.
func (r *report) checkKubernetes(s *Scenario) {
	for i, q := range s.Quotas {
		field := fmt.Sprintf("quotas[%d]", i)
		r.name(field+".namespace", q.Namespace, true)
		if q.Limits == 0 {
			r.add(field+".limits", "want the sum of limits that the quota allows, such as 4")
		}
	}
	for i, o := range s.Outages {
		if o.Length == 0 || o.At >= s.Length {
			r.add(fmt.Sprintf("outages[%d]", i), "want a time before the end, %v, and a length above 0", s.Length)
		}
	}
	for i, p := range s.Pods {
		field := fmt.Sprintf("pods[%d]", i)
		if k := p.Constraints; k.Ceiling > 0 && k.Floor > k.Ceiling {
			r.add(field+".constraints.floor", "%s is above the ceiling, %s", cores(k.Floor), cores(k.Ceiling))
		}
		for j, c := range p.ExternalChanges {
			if c.Limit <= p.Request || c.At >= s.Length {
				r.add(fmt.Sprintf("%s.externalChanges[%d]", field, j), "want a limit above the request, and a time before the end, %v", s.Length)
			}
		}
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
	slices.SortFunc(changes, func(a, b change) int {
		if a.at != b.at {
			return int(min(1, max(-1, a.at-b.at)))
		}
		return int(a.more - b.more)
	})
	var sum cpu.Milli
	for _, c := range changes {
		if sum += c.more; sum > s.Node.Allocatable {
			r.add("pods", "at %v the requests sum to %s, more than the node's allocatable %s: the scheduler would not place them all", c.at, cores(sum), cores(s.Node.Allocatable))
			return
		}
	}
}
