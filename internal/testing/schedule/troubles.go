package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/internal/testing/faults"
)

// trouble is a step of a soak, and the one that ends it after a while. %n stands for a node, %p for a pod,
// %s for a namespace and %d for a deployment's pod; *x means one of a list.
type trouble struct {
	weight     int
	begin, end string
	least      time.Duration // how long it lasts, up to
	most       time.Duration
	early      bool // it ends a life of the controller: not in the second half, so that leaks show
}

// troubles are what happens in a soak, each as often as its weight says.
var troubles = []trouble{
	{weight: 10, begin: "replace %p"},
	{weight: 3, begin: "rollout web"},
	{weight: 2, begin: "lose %n"},
	{weight: 4, begin: "kubelet %n stall|defer|refuse|fail|ignore", end: "kubelet %n obey", least: 30 * time.Second, most: 6 * time.Minute},
	{weight: 3, begin: "webhook %s down|deny|hang|mutate", end: "webhook %s none", least: time.Minute, most: 6 * time.Minute},
	{weight: 4, begin: "requests 30", end: "requests 0", least: time.Minute, most: 8 * time.Minute},
	{weight: 4, begin: "connection %n 0.3", end: "connection %n 0", least: time.Minute, most: 8 * time.Minute},
	{weight: 3, begin: "agent %n stop", end: "agent %n start", least: 10 * time.Second, most: 12 * time.Minute},
	{weight: 2, begin: "clock %n 1m|-1m|10m|-10m", end: "clock %n 0s", least: time.Minute, most: 20 * time.Minute},
	{weight: 3, begin: "crash A", end: "start A", least: 2 * time.Second, most: 3 * time.Minute, early: true},
	{weight: 2, begin: "crash A", end: "start A stale", least: 2 * time.Second, most: time.Minute, early: true},
	{weight: 2, begin: "stop A", end: "continue A", least: 5 * time.Second, most: 4 * time.Minute},
	{weight: 2, begin: "start B", end: "crash B", least: time.Minute, most: 6 * time.Minute},
	{weight: 2, begin: "node %n notready|pressure|cordon", end: "node %n ready", least: time.Minute, most: 8 * time.Minute},
	{weight: 3, begin: "resize %p 150|300|500|750"},
	{weight: 2, begin: "harm %p unready", end: "harm %p well", least: 10 * time.Second, most: 4 * time.Minute},
	{weight: 2, begin: "harm %p restart"},
	{weight: 2, begin: "annotate %p mbcas.io/max-cpu 600m", end: "annotate %p mbcas.io/max-cpu none", least: time.Minute, most: 20 * time.Minute},
	{weight: 1, begin: "annotate %p mbcas.io/managed false", end: "annotate %p mbcas.io/managed none", least: time.Minute, most: 20 * time.Minute},
	{weight: 1, begin: "mode %s recommend|restore|off", end: "mode %s enforce", least: 2 * time.Minute, most: 10 * time.Minute},
	{weight: 2, begin: "hpa on", end: "hpa off", least: 5 * time.Minute, most: 30 * time.Minute},
	{weight: 2, begin: "pdb on", end: "pdb off", least: 5 * time.Minute, most: 30 * time.Minute},
	{weight: 2, begin: "quota %s 12000|20000|30000", end: "quota %s none", least: 5 * time.Minute, most: 15 * time.Minute},
	{weight: 2, begin: "forget %p"},
	{weight: 1, begin: "forget %n"},
	{weight: 1, begin: "pause true", end: "pause false", least: 10 * time.Second, most: 5 * time.Minute},
}

// troublesApart is the mean time from one trouble to the next, and churnApart from one pod that is
// replaced to the next.
const (
	troublesApart = 6 * time.Minute
	churnApart    = 3 * time.Minute
)

// trouble carries out what is planned for now, and draws what comes.
func (s *soak) trouble() {
	due := func(p planned) bool { return !p.at.After(s.now) }
	for _, p := range s.planned {
		if due(p) {
			s.step(p.step)
		}
	}
	s.planned = slices.DeleteFunc(s.planned, due)
	if len(s.pods) == 0 || s.Calm || s.Steps != nil {
		return
	}
	if s.random.Float64() < time.Second.Seconds()/churnApart.Seconds() {
		s.step(s.fill("replace %p"))
	}
	if s.now.Before(s.next) {
		return
	}
	s.next = s.now.Add(time.Duration(s.random.ExpFloat64() * float64(troublesApart)))
	t := troubles[s.weighted()]
	if s.TwoControllers && t.begin == "start B" { // it forgets
		s.play([]string{"crash", "B"})
		s.play([]string{"start", "B"})
		return
	}
	if t.early && s.now.Sub(s.began) > s.Length/2 {
		return
	}
	begin := s.fill(t.begin)
	s.step(begin)
	if t.end != "" {
		lasts := t.least + time.Duration(s.random.Float64()*float64(t.most-t.least))
		s.plan(lasts, s.as(t.begin, begin, t.end))
	}
}

func (s *soak) weighted() int {
	sum := 0
	for _, t := range troubles {
		sum += t.weight
	}
	n := s.random.IntN(sum)
	return slices.IndexFunc(troubles, func(t trouble) bool {
		n -= t.weight
		return n < 0
	})
}

func (s *soak) plan(after time.Duration, step string) {
	s.planned = append(s.planned, planned{s.now.Add(after), step})
}

// fill draws what a step leaves open.
func (s *soak) fill(template string) string {
	fields := strings.Fields(template)
	for i, f := range fields {
		switch f {
		case "%n":
			fields[i] = s.nodes[s.random.IntN(len(s.nodes))]
		case "%p":
			fields[i] = s.pods[s.random.IntN(len(s.pods))].name
		case "%s":
			fields[i] = Namespaces[s.random.IntN(len(Namespaces))]
		default:
			choices := strings.Split(f, "|")
			fields[i] = choices[s.random.IntN(len(choices))]
		}
	}
	return strings.Join(fields, " ")
}

// as fills a step with what another one was filled with.
func (s *soak) as(template, filled, end string) string {
	from, to, fields := strings.Fields(template), strings.Fields(filled), strings.Fields(end)
	for i, f := range fields {
		if at := slices.Index(from, f); strings.HasPrefix(f, "%") && at >= 0 {
			fields[i] = to[at]
		}
	}
	return strings.Join(fields, " ")
}

// step carries out a step: one of its own, or one of schedules.
func (s *soak) step(text string) {
	fields := strings.Fields(text)
	own := map[string]func([]string){
		"agent":      func(a []string) { s.memberStep(a[0], a[1]) },
		"clock":      func(a []string) { s.clock(a[0], a[1]) },
		"requests":   func(a []string) { s.share = float64(number(a[0])) / 100 },
		"connection": func(a []string) { s.connection(a[0], a[1] != "0") },
		"lose":       func(a []string) { s.lose(a[0]) },
		"appear":     func(a []string) { s.appear(a[0]) },
		"rollout":    func(a []string) { s.rollout(a[0]) },
	}
	if f := own[fields[0]]; f != nil {
		s.counts[fields[0]]++
		f(fields[1:])
		return
	}
	if fields[0] == "start" && s.processes[fields[1]] != nil && s.processes[fields[1]].controller != nil {
		return // it lives
	}
	s.play(fields)
}

// requestFault is one of those of schedules, but for crashes.
func (s *soak) requestFault() string {
	for {
		if f := requestFaults[s.random.IntN(len(requestFaults))]; !strings.HasPrefix(f, "crash") && !strings.HasPrefix(f, "pause") {
			return f
		}
	}
}

func (s *soak) memberStep(node, what string) {
	m := s.members[node]
	switch {
	case m == nil || !s.exists(node):
	case what == "start":
		m.start()
	default:
		m.stop()
	}
}

// clock sets the wall clock of a node ahead of the right time.
func (s *soak) clock(node, ahead string) {
	d, err := time.ParseDuration(ahead)
	if err != nil {
		panic(err)
	}
	if m := s.members[node]; m != nil {
		m.clock.ahead.Store(int64(d))
	}
}

// connection has three requests of ten of an agent go wrong, and its watches break.
func (s *soak) connection(node string, broken bool) {
	m := s.members[node]
	if m == nil {
		return
	}
	if !broken {
		m.conn.Play(nil)
		return
	}
	random := rand.New(rand.NewPCG(s.random.Uint64(), 3))
	m.conn.Play(func(c faults.Call) faults.Fault {
		if c.Watch {
			return faults.Fault{Kind: faults.CutWatch, Events: random.IntN(6)}
		}
		for {
			f := faults.Random(random, 0.3)(c)
			if f.Kind != faults.CrashBefore && f.Kind != faults.CrashAfter {
				return f
			}
		}
	})
}

// lose loses a node with its pods. Five minutes later these run on another one.
func (s *soak) lose(node string) {
	if len(s.nodes) < s.Nodes {
		return // one at a time
	}
	s.members[node].stop()
	s.play([]string{"node", node, "gone"})
	s.nodes = slices.DeleteFunc(slices.Clone(s.nodes), func(n string) bool { return n == node })
	delete(s.members, node)
	delete(s.kubelets, node)
	s.plan(5*time.Minute, "appear "+node)
}

// appear adds a node for the pods of one that was lost.
func (s *soak) appear(lost string) {
	name := s.addNode()
	for i := range s.pods {
		if s.pods[i].node == lost {
			s.pods[i].node = name
			s.world.run(s.pods[i].name)
		}
	}
}

// rollout replaces the pods of a deployment, one after the other.
func (s *soak) rollout(deployment string) {
	wait := time.Duration(0)
	for _, p := range s.pods {
		if p.deployment == deployment {
			s.plan(wait, fmt.Sprint("replace ", p.name))
			wait += 20 * time.Second
		}
	}
}
