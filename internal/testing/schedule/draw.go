package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// requestFaults are what a drawn schedule has happen to a request.
var requestFaults = []string{
	"lost-request", "lost-answer", "lost-answer", "hang", "hang-after", "delay(3s)", "delay(7s)", "delay(40s)",
	"401", "403", "404", "409", "410", "429", "500", "503", "504",
	"crash-before", "crash-before", "crash-after", "crash-after", "pause(1)", "pause(2)", "pause(4)", "pause(8)", "late", "late",
}

// Draw makes a schedule of about that many steps from a seed.
func Draw(seed uint64, length int) string {
	d := drawer{Rand: rand.New(rand.NewPCG(seed, 11))}
	var b strings.Builder
	for range length {
		b.WriteString(d.step() + "\n")
	}
	return b.String()
}

type drawer struct{ *rand.Rand }

// of is one of the choices.
func (d drawer) of(choices ...string) string { return choices[d.IntN(len(choices))] }

// pod and node prefer the first: so more happens to one and the same.
func (d drawer) pod() string { return d.of(append(podNames(small), "p1", "p1", "p1", "p2", "p3")...) }

func (d drawer) node() string { return d.of("n1", "n1", "n1", "n2", "n2", "n3") }

// process: mostly A.
func (d drawer) process() string { return d.of("A", "A", "A", "B") }

// weighted are the steps, each as often as its weight says.
var weighted = []struct {
	weight int
	draw   func(drawer) string
}{
	{26, drawer.reconcile},
	{14, func(d drawer) string { return fmt.Sprintf("show %s all", d.process()) }},
	{4, func(d drawer) string {
		return fmt.Sprintf("show %s %s", d.process(), d.of("pods", "podallocations", "configmaps", "leases", "nodes", "namespaces"))
	}},
	{14, func(d drawer) string {
		limit := d.of("10", "50", "100", "200", "350", "500", "900", "1500", "2000", "4000", "9000", "1024000")
		step := fmt.Sprintf("decide %s %s %s", d.pod(), limit, d.of("0.000", "0.000", "0.500", "2.000"))
		if d.IntN(10) == 0 {
			step += " " + d.of("lost-request", "lost-answer", "409", "503", "hang", "delay(3s)")
		}
		return step
	}},
	{12, func(d drawer) string {
		return "wait " + d.of("100ms", "1s", "2s", "6s", "6s", "20s", "50s", "70s", "2m", "6m", "11m")
	}},
	{10, func(d drawer) string { return "sync " + d.node() }},
	{12, func(d drawer) string { return "renew " + d.node() }},
	{2, func(d drawer) string { return "publish " + d.node() }},
	{2, func(d drawer) string {
		return fmt.Sprintf("agent %s %s", d.node(), d.of("stop", "start", "start", "restart", "1m", "-1m", "0s"))
	}},
	{3, func(d drawer) string {
		return fmt.Sprintf("kubelet %s %s", d.node(), d.of("obey", "obey", "obey", "stall", "defer", "refuse", "fail", "ignore"))
	}},
	{4, func(d drawer) string {
		return fmt.Sprintf("resize %s %s", d.pod(), d.of("150", "300", "500", "500", "750", "2000", "50"))
	}},
	{3, func(d drawer) string {
		return fmt.Sprintf("%s %s%s", d.of("replace", "replace", "delete", "create", "create"), d.pod(), d.of("", "", " init", " unseen"))
	}},
	{4, func(d drawer) string {
		return fmt.Sprintf("down %s %s", d.pod(), d.of("first", "last", "done", "unready"))
	}},
	{3, func(d drawer) string { return "up " + d.pod() }},
	{4, func(d drawer) string { return fmt.Sprintf("dies %s %s", d.pod(), d.of("first", "last")) }},
	{3, func(d drawer) string { return fmt.Sprintf("harm %s %s", d.pod(), d.of("unready", "restart", "well")) }},
	{2, func(d drawer) string {
		return fmt.Sprintf("annotate %s %s", d.pod(), d.of("mbcas.io/managed false", "mbcas.io/managed none", "mbcas.io/max-cpu 600m",
			"mbcas.io/max-cpu none"))
	}},
	{3, func(d drawer) string {
		return fmt.Sprintf("mode %s %s", d.of(Namespaces...), d.of("enforce", "enforce", "enforce", "recommend", "restore", "off"))
	}},
	{3, func(d drawer) string {
		return fmt.Sprintf("node %s %s", d.node(), d.of("ready", "ready", "notready", "pressure", "cordon", "gone", "back", "back"))
	}},
	{3, func(d drawer) string {
		return d.of("hpa on", "hpa off", "pdb on", "pdb off", "quota shop 2500", "quota shop none", "quota lab 1500", "quota lab none", "credit")
	}},
	{2, func(d drawer) string {
		return fmt.Sprintf("webhook %s %s", d.of(Namespaces...), d.of("none", "none", "down", "deny", "hang", "mutate"))
	}},
	{2, func(d drawer) string { return "forget " + d.of("p1", "p2", "p3", "n1", "n2") }},
	{2, func(d drawer) string { return d.of("pause true", "pause false", "pause false", "uninstall") }},
	{4, func(d drawer) string {
		return fmt.Sprintf("start %s%s", d.process(), d.of("", "", "", " stale", " 1m", " -1m"))
	}},
	{2, func(d drawer) string {
		return fmt.Sprintf("%s %s", d.of("crash", "crash", "stop", "continue", "continue"), d.process())
	}},
	{3, func(drawer) string { return "arrive" }},
}

func (d drawer) step() string {
	sum := 0
	for _, s := range weighted {
		sum += s.weight
	}
	n := d.IntN(sum)
	for _, s := range weighted {
		if n -= s.weight; n < 0 {
			return s.draw(d)
		}
	}
	panic("the weights do not add up")
}

// reconcile: every other one meets a fault.
func (d drawer) reconcile() string {
	step := fmt.Sprintf("reconcile %s %s", d.process(), d.node())
	for d.IntN(2) == 0 {
		step += fmt.Sprintf(" %s@%d", d.of(requestFaults...), 1+d.IntN(8))
	}
	return step
}
