package experiment

import "math"

// Measure is one figure of a run.
type Measure struct {
	// Unit names the measure in every file, as the unit of a Go benchmark.
	Unit string
	// Title names it in tables, in words.
	Title string
	// Formula is its definition.
	Formula string
	// Better is the direction of better runs.
	Better Direction
	// Main measures are in the first table of a report.
	Main bool

	of func(*Run) float64 // NaN or infinite: it does not apply to the run
}

// Direction says which of two figures is better.
type Direction string

const (
	Neither Direction = "neither"
	Lower   Direction = "lower"
	Higher  Direction = "higher"
)

// Values are the figures of one run, by unit. Measures that do not apply are absent.
type Values map[string]float64

// MeasureRun measures a run.
func MeasureRun(r *Run) Values {
	r.prepare()
	v := Values{}
	for _, m := range Measures() {
		if m.of == nil {
			continue
		}
		if x := m.of(r); !math.IsNaN(x) && !math.IsInf(x, 0) {
			v[m.Unit] = x
		}
	}
	return v
}

// Units that other code reads.
const (
	P99        = "p99-ms"
	BatchCores = "batch-cores"
	Changes    = "changes/pod/10min"
	WorstShare = "worst-share"
	LiarGain   = "liar-gain-%"
	HonestLoss = "honest-loss-%"
)

// Measures are all measures, in the order of the output. Intervals are those of the set-up (1 s by
// default) after the warm-up; load outside of pods (PodSpec.System) does not count.
func Measures() []Measure {
	return []Measure{
		{"p50-ms", "p50", "median latency of all requests to services, over all their pods and nodes; requests that are unfinished at the end count with their age", Lower, false, quantile(0.5)},
		{P99, "p99", "as p50, 99 of 100 requests", Lower, true, quantile(0.99)},
		{"p99.9-ms", "p99.9", "as p50, 999 of 1000 requests", Lower, true, quantile(0.999)},
		{"backlog-s", "backlog", "mean over time of the services' unfinished work (core seconds), divided by the work that arrives per second (cores)", Lower, true, backlog},
		{"throttled-%", "throttled", "throttled periods of services per CFS period in which they had a runnable thread", Lower, true, throttled},
		{"throttled-idle-%", "throttled while idle", "throttled periods of all pods in which more than a tenth of the node was idle, per CFS period", Lower, true, throttledIdle},
		{"starved-%", "starved", "share of the pods' seconds in which work waited at the start and at the end, and the pod used less than half of min(offered + waiting, budget share of the node)", Lower, true, starved},
		{BatchCores, "batch", "mean usage of the pods with the role batch, together, in cores", Higher, true, batchCores},
		{"util-%", "utilisation", "busy core time per core time", Higher, false, utilisation},
		{"limit/need", "limit/need", "sum of the limits of managed pods over the sum of their needs (usage plus growth of the backlog); a pod without a limit counts with the whole node", Lower, false, limitOverNeed},
		{"changes", "changes", "changes of limits after the warm-up, of all pods", Lower, false, changes},
		{Changes, "changes per pod and 10 min", "changes of limits after the warm-up per managed pod and 10 minutes of its life", Lower, true, changesPer(600)},
		{"changes/pod/h", "changes per pod and hour", "as before, per hour", Lower, false, changesPer(3600)},
		{"react-p50-s", "reaction p50", "from the time at which the load of a managed service jumps by more than 10 % to the first time at which its limit is at least the new load (rate times mean cost of a request), or, where CPU is too scarce for that, 80 % of its part of the market's optimum for the loads of the next 5 s; median over pods and steps; a limit that was high enough counts 0, one that never is the time to the pod's next step or the end; replicas that a policy adds do not count", Lower, false, reaction(0.5)},
		{"react-worst-s", "reaction worst", "as before, the longest", Lower, true, reaction(1)},
		{"settle-s", "settling", "from a step to the time from which no limit of a managed pod strays by more than 20 % from its value before the next step; the longest over pods and those steps after which all load is constant until the next one", Lower, false, settling},
		{"late-changes/pod", "late changes", "changes of limits per managed pod in the last half of a run in which all load is constant", Lower, false, lateChanges},
		{"cycling-pods", "limit cycles", "managed pods whose limit reversed direction four times or more in the last half of a run in which all load is constant", Lower, false, cycling},
		{"jain", "Jain index", "Jain index of useful usage per budget among the pods that are contended in the same second (throttled in more than a tenth of their periods, or a backlog of half a second of work, or less than 95 % of the demand of busy threads); mean over the seconds with two such pods or more, if they are a tenth of the run, and over nodes", Higher, true, jain},
		{WorstShare, "worst share", "useful usage per entitlement of the pod with the least; its entitlement is the mean over seconds of min(offered load, budget share of the node)", Higher, true, worstShare},
		{"nash", "Nash welfare", "weighted geometric mean, with budgets as weights, of useful usage over the usage at the market's optimum for the mean offered loads on the whole node; 1 is the optimum; mean over nodes", Higher, false, nash},
		{LiarGain, "liar gains", "useful CPU of the liars compared with the same seed of the scenario in which they are honest", Lower, false, nil},
		{HonestLoss, "honest lose", "useful CPU that the most affected honest pod lost compared with the same seed of the scenario in which the liars are honest", Lower, false, nil},
	}
}
