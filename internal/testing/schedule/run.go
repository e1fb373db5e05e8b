package schedule

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/history"
)

// Result is what came of a schedule.
type Result struct {
	Events     []history.Event
	Violations []history.Violation
	Counts     map[string]int // of steps and faults
	Requests   []int          // of each reconcile that is a step
}

// EachCall are variants of a schedule in a world of these nodes: in each of them one request of one
// reconcile meets one of the faults. After a crash, the process starts anew.
func EachCall(s System, text string, nodes, faults []string) (variants []string) {
	steps := strings.Split(strings.TrimSpace(text), "\n")
	reconcile := -1
	requests := RunOn(s, text, nodes).Requests
	for i, step := range steps {
		fields := strings.Fields(step)
		if len(fields) < 3 || fields[0] != "reconcile" {
			continue
		}
		reconcile++
		for n := range requests[reconcile] {
			for _, fault := range faults {
				with := slices.Clone(steps)
				with[i] = fmt.Sprintf("%s %s@%d", step, fault, n+1)
				if strings.HasPrefix(fault, "crash") {
					with[i] += "\nstart " + fields[1]
				}
				variants = append(variants, strings.Join(with, "\n")+"\n")
			}
		}
	}
	return variants
}

// Run plays a schedule in the whole world, then lets everything work again, waits until nothing
// should change any more, starts another process, has all pods restored, and checks the history.
func Run(s System, text string) Result { return RunOn(s, text, Nodes) }

// RunOn is Run in a world of these nodes and their pods alone.
func RunOn(s System, text string, nodes []string) Result {
	w := newWorld(s, nodes)
	for _, line := range strings.Split(text, "\n") {
		if fields := strings.Fields(line); len(fields) > 0 && !strings.HasPrefix(fields[0], "#") {
			w.steps = append(w.steps, fields)
		}
	}
	for len(w.steps) > 0 {
		step := w.steps[0]
		w.steps = w.steps[1:]
		w.play(step)
	}
	w.mend()
	w.live(45 * time.Minute)
	w.note(history.Event{Kind: history.Quiet})
	w.live(12 * time.Minute)
	w.rest()
	w.restoreAll()
	w.rest()
	return Result{w.events, history.Check(s.Rules, w.events), w.counts, w.requests}
}

// restoreAll has all pods restored. A quota that is full would keep some of them back.
func (w *world) restoreAll() {
	w.note(history.Event{Kind: history.Stirred})
	for _, ns := range Namespaces {
		w.play([]string{"quota", ns, "none"})
		w.play([]string{"mode", ns, string(kube.ModeRestore)})
	}
	w.live(5 * time.Minute)
	w.note(history.Event{Kind: history.Restored})
}

// mend ends all faults. Process A leads.
func (w *world) mend() {
	w.arrive()
	for _, n := range w.nodes {
		w.kubelets[n] = apiserver.Obey
		w.agent(n, func(a *agent) { a.stopped, a.skew = false, 0 })
		w.play([]string{"node", n, "back"})
		w.play([]string{"node", n, "ready"})
	}
	for _, ns := range Namespaces {
		w.webhook(ns, "none")
	}
	for _, name := range podNames(w.pods) {
		w.up(name)
		w.harm(name, "well")
	}
	w.play([]string{"pause", "false"})
	if b := w.processes["B"]; b != nil && b.controller != nil {
		b.crash()
	}
	if a := w.processes["A"]; a.controller == nil {
		w.start("A", 0, false)
	}
	w.processes["A"].wakeUp()
}

// live lets the cluster run by itself: agents renew their Leases every thirty seconds, kubelets and
// caches follow at once, and a node is reconciled when it is due.
func (w *world) live(d time.Duration) {
	a, times := w.processes["A"], 0
	for end := w.now.Add(d); w.now.Before(end); {
		for _, n := range w.nodes {
			w.agents[n].publishAll(nil)
			w.agents[n].renew()
		}
		for next := w.now.Add(30 * time.Second); ; {
			for _, n := range w.nodes {
				w.kubelet(n, w.kubelets[n])
			}
			w.api.Credit()
			a.show("all")
			a.background()
			node, at := a.soonest()
			if node == "" || !at.Before(next) {
				w.now = next
				break
			}
			if times++; at.After(w.now) {
				w.now, times = at, 0
			}
			if times > endless {
				w.note(history.Event{Kind: history.Endless, By: a.life, Node: node})
				return
			}
			a.show("all")
			a.reconcile(node, nil)
		}
	}
}

// endless is how many reconciles at one moment are no coincidence: each change of an object is cause
// for one.
const endless = 200

// soonest is the node that is due next, and when; "" for none.
func (p *process) soonest() (node string, at time.Time) {
	for _, n := range p.world.nodes {
		if due, ok := p.due[n]; ok && (node == "" || due.Before(at)) {
			node, at = n, due
		}
	}
	return node, at
}

// Shrink leaves steps out of a schedule that fails, and faults out of its steps, for as long as it
// still fails.
func Shrink(text string, fails func(string) bool) string {
	var steps [][]string
	for _, line := range strings.Split(text, "\n") {
		if fields := strings.Fields(line); len(fields) > 0 {
			steps = append(steps, fields)
		}
	}
	for size := len(steps) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(steps); {
			fewer := append(append([][]string{}, steps[:at]...), steps[at+size:]...)
			if fails(lines(fewer)) {
				steps = fewer
			} else {
				at += size
			}
		}
	}
	for i := range steps {
		for at := len(steps[i]) - 1; at > arguments[steps[i][0]]; at-- {
			whole := steps[i]
			steps[i] = append(append([]string{}, whole[:at]...), whole[at+1:]...)
			if !fails(lines(steps)) {
				steps[i] = whole
			}
		}
	}
	return lines(steps)
}

// Failure is a schedule that breaks an invariant.
type Failure struct {
	Seed  uint64
	Steps string // as few as break it
	history.Violation
}

// Campaign is what came of many schedules.
type Campaign struct {
	Schedules, Events int
	Took              time.Duration
	Counts            map[string]int // of steps and faults
	Checked           map[history.Kind]int
	Failures          []Failure
}

// Play plays schedules of that length with seeds from first on, on several threads, until five have
// failed. After each it tells progress how many were played, and which of these failed.
func Play(s System, first uint64, schedules, length int, progress func(done int, failed []Failure)) Campaign {
	began := time.Now()
	c := Campaign{Counts: map[string]int{}, Checked: map[history.Kind]int{}}
	var mu sync.Mutex
	var workers sync.WaitGroup
	next := first
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				mu.Lock()
				seed := next
				next++
				done := seed >= first+uint64(schedules) || len(c.Failures) >= 5
				mu.Unlock()
				if done {
					return
				}
				text := Draw(seed, length)
				r := Run(s, text)
				f := smallest(s, seed, text, r)
				mu.Lock()
				c.add(r)
				c.Failures = append(c.Failures, f...)
				progress(c.Schedules, c.Failures)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	c.Took = time.Since(began)
	slices.SortFunc(c.Failures, func(a, b Failure) int { return cmp.Compare(a.Seed, b.Seed) })
	return c
}

func (c *Campaign) add(r Result) {
	c.Schedules++
	c.Events += len(r.Events)
	for name, n := range r.Counts {
		c.Counts[name] += n
	}
	for _, e := range r.Events {
		c.Checked[e.Kind]++
	}
}

// smallest is the smallest schedule that breaks the invariant that this one breaks; none if it breaks none.
func smallest(s System, seed uint64, text string, r Result) []Failure {
	if len(r.Violations) == 0 {
		return nil
	}
	breaks := func(text string) (history.Violation, bool) {
		v := Run(s, text).Violations
		if len(v) == 0 || v[0].Invariant != r.Violations[0].Invariant {
			return history.Violation{}, false
		}
		return v[0], true
	}
	small := Shrink(text, func(text string) bool { _, yes := breaks(text); return yes })
	v, _ := breaks(small)
	return []Failure{{seed, small, v}}
}

// Story is a history as a text, for a report about a schedule that failed.
func Story(r Result) string {
	var b strings.Builder
	for _, v := range r.Violations {
		fmt.Fprintln(&b, v)
	}
	for i, e := range r.Events {
		fmt.Fprintf(&b, "%4d %s %-9s %-3s %.8s %s", i, e.At.Format("15:04:05.000"), e.Kind, e.By, e.Pod, e.Node)
		if e.Limits != nil {
			fmt.Fprintf(&b, " %v -> %v", e.Before, e.Limits)
		}
		fmt.Fprintf(&b, " %s %s %s %s\n", e.Purpose, e.Reason, e.Outcome, e.Text)
	}
	return b.String()
}
