// Package nodemetrics is what an agent tells Prometheus of the market of its node: the figures of the
// last round, and counters of what limits brought and cost since the agent started. A label never takes
// a value from a pod, so a node has as many series with one pod as with two hundred.
//
// What it promises, each a test of the same name:
//   - CountsOfARound: a round with known inputs adds the figures worked out by hand.
//   - NoLabelFromAPod: whatever pods are called, the series are the same.
//   - SamplesAddUp: whatever the rounds are, no counter falls, and none grows faster than the pods used,
//     demanded or waited.
package nodemetrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// Round is a completed round.
type Round struct {
	At time.Time
	// Pods and Sample are the input of the round.
	Pods   []round.PodInput
	Sample kernel.Sample
	Output round.Output
	// Files of cgroups are held open.
	Files int
	// Blocked are pods of which a file's read does not end, QuotaMismatches those whose quota in the kernel
	// is not their limit.
	Blocked, QuotaMismatches int
}

// Collector collects the metrics of the rounds that it observes. Before the first round it collects nothing.
// The zero value has observed none.
type Collector struct {
	mu    sync.Mutex
	last  *figures  // of the last round; nil: none
	at    time.Time // of the last round
	since counts    // since the agent started
}

// figures are the gauges of a round.
type figures struct {
	node                            round.NodeDecision
	files, blocked, quotaMismatches int
	skipped                         round.Skipped
	bidding, unmanaged              int
	bound                           [market.ByCeiling + 1]int
	limits                          limits
}

// limits are sums over the limited containers of pods with a decision.
type limits struct{ declared, decided, kernel cpu.Milli }

// counts are what limits brought and cost.
type counts struct {
	throttledIdle, throttledScarce float64 // pod-seconds
	beyondDeclared                 float64 // core-seconds
	withheld                       [market.ByCeiling + 1]float64
}

// Observe takes a round in.
func (c *Collector) Observe(r Round) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil {
		c.since.add(r, r.At.Sub(c.at).Seconds())
	}
	c.last, c.at = figuresOf(r), r.At
}

// add adds a round of that many seconds.
func (c *counts) add(r Round, seconds float64) {
	idle, known := r.Output.Node.HasIdleCPU()
	for _, d := range r.Output.Decisions {
		switch throttled := seconds * d.ThrottleRatio; {
		case !known || d.RevokedFor > 0 && d.Limit >= declared(r.Pods[d.Pod]): // as without MBCAS
		case idle:
			c.throttledIdle += throttled
		default:
			c.throttledScarce += throttled
		}
		c.beyondDeclared += seconds * max(0, d.Usage-declared(r.Pods[d.Pod])).Cores()
		if d.Bound != market.ByNothing {
			c.withheld[d.Bound] += seconds * max(0, d.Demand-d.Limit).Cores()
		}
	}
}

// declared is the sum of the declared limits of a pod's limited containers.
func declared(p round.PodInput) (sum cpu.Milli) {
	for _, c := range p.Containers {
		if c.Limited() {
			sum += c.Declared
		}
	}
	return sum
}

func figuresOf(r Round) *figures {
	skipped, bidding := r.Output.Skipped, len(r.Output.Decisions)
	f := &figures{
		node: r.Output.Node, files: r.Files, blocked: r.Blocked, quotaMismatches: r.QuotaMismatches,
		skipped: skipped, bidding: bidding,
		unmanaged: len(r.Pods) - bidding - skipped.WarmingUp - skipped.Stale - skipped.Unenforced,
	}
	for _, d := range r.Output.Decisions {
		f.bound[d.Bound]++
		f.limits.declared += declared(r.Pods[d.Pod])
		f.limits.decided += d.Limit
		if d.Pod < len(r.Sample.Pods) {
			f.limits.kernel += quotas(r.Pods[d.Pod], r.Sample.Pods[d.Pod])
		}
	}
	return f
}

// quotas is the sum of the quotas of a pod's limited containers. One without a quota adds nothing.
func quotas(p round.PodInput, sample kernel.PodSample) (sum cpu.Milli) {
	for i, c := range p.Containers {
		if !c.Limited() || i >= len(sample.Containers) {
			continue
		}
		if q := sample.Containers[i].Quota; q.Limit > 0 && q.Period > 0 {
			sum += cpu.FromUsage(q.Limit, q.Period)
		}
	}
	return sum
}

var (
	priceDesc = describe("mbcas_node_price",
		"Price of CPU at which limits are set, in budget per thousandth of a core; 0 means that CPU is not scarce.")
	clearedDesc  = describe("mbcas_node_cleared_price", "Price as cleared in the last round, before the bands.")
	supplyDesc   = describe("mbcas_node_supply_cores", "CPU that the market of the node sells.")
	demandDesc   = describe("mbcas_node_demand_cores", "CPU that all pods of the node would use without limits.")
	usageDesc    = describe("mbcas_node_usage_cores", "CPU that the pods of the node used in the last interval.")
	systemDesc   = describe("mbcas_node_system_cores", "CPU used outside of pods, smoothed.")
	pressureDesc = describe("mbcas_node_pressure_ratio", "Share of time in which some task of the node waited for a CPU.")
	floorsDesc   = describe("mbcas_node_floors_exceed_supply",
		"1 while usage within the floors of the pods exceeds the supply.")
	podsDesc = describe("mbcas_node_pods", "Pods of the node by their part in the last round: bidding, unmanaged, "+
		"warming (too few samples), stale, unenforced (the kernel has no quota for the limit).", "part")
	boundDesc  = describe("mbcas_node_bound_pods", "Bidding pods by what bounds their limit.", "by")
	limitsDesc = describe("mbcas_node_limit_cores", "Sum of the CPU limits of bidding pods: as declared, as decided in the "+
		"last round, and as the kernel enforces them.", "of")
	throttledDesc = describe("mbcas_node_throttled_seconds_total",
		"Pod-seconds in which bidding pods were throttled (throttle ratio times the time of the round), by whether CPU of the "+
			"supply was idle in that round or scarce. Not while a raise of the pod is revoked.", "while")
	beyondDesc = describe("mbcas_node_beyond_declared_core_seconds_total",
		"CPU that bidding pods used above their declared limits, which these limits would have denied or delayed.")
	withheldDesc = describe("mbcas_node_withheld_core_seconds_total",
		"Demand of bidding pods above their decided limits, by what bounds the limit: price, floor or ceiling.", "by")
	filesDesc   = describe("mbcas_agent_open_files", "Open files of cgroups.")
	blockedDesc = describe("mbcas_agent_blocked_pods", "Pods for which nothing is decided because the kernel does not "+
		"answer a read of their cgroups; the log names them.")
	mismatchDesc = describe("mbcas_agent_quota_mismatch_pods", "Managed pods whose quota in the kernel has not been their limit "+
		"for a minute; the log names them.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (*Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		priceDesc, clearedDesc, supplyDesc, demandDesc, usageDesc, systemDesc, pressureDesc, floorsDesc,
		podsDesc, boundDesc, limitsDesc, throttledDesc, beyondDesc, withheldDesc, filesDesc, blockedDesc, mismatchDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	last, since := c.last, c.since
	c.mu.Unlock()
	if last != nil {
		last.collect(ch)
		since.collect(ch)
	}
}

func (f *figures) collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(filesDesc, float64(f.files))
	gauge(blockedDesc, float64(f.blocked))
	gauge(mismatchDesc, float64(f.quotaMismatches))
	n := f.node
	gauge(priceDesc, float64(n.Price))
	gauge(clearedDesc, float64(n.Cleared))
	gauge(supplyDesc, n.Supply.Cores())
	gauge(demandDesc, n.Demand.Cores())
	if n.UsageKnown {
		gauge(usageDesc, n.Usage.Cores())
	}
	if n.SystemKnown {
		gauge(systemDesc, n.System.Cores())
	}
	if n.Pressure.Known {
		gauge(pressureDesc, n.Pressure.Value)
	}
	floors := 0.0
	if n.FloorsExceedSupply {
		floors = 1
	}
	gauge(floorsDesc, floors)
	gauge(podsDesc, float64(f.bidding), "bidding")
	gauge(podsDesc, float64(f.skipped.WarmingUp), "warming")
	gauge(podsDesc, float64(f.skipped.Stale), "stale")
	gauge(podsDesc, float64(f.skipped.Unenforced), "unenforced")
	gauge(podsDesc, float64(f.unmanaged), "unmanaged")
	for b, count := range f.bound {
		gauge(boundDesc, float64(count), market.Bound(b).String())
	}
	gauge(limitsDesc, f.limits.declared.Cores(), "declared")
	gauge(limitsDesc, f.limits.decided.Cores(), "decided")
	gauge(limitsDesc, f.limits.kernel.Cores(), "kernel")
}

func (c counts) collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	counter(throttledDesc, c.throttledIdle, "idle")
	counter(throttledDesc, c.throttledScarce, "scarce")
	counter(beyondDesc, c.beyondDeclared)
	for _, b := range []market.Bound{market.ByPrice, market.ByFloor, market.ByCeiling} {
		counter(withheldDesc, c.withheld[b], withheldBy[b])
	}
}

// withheldBy are the values of the label of withheld demand.
var withheldBy = map[market.Bound]string{
	market.ByPrice: "price", market.ByFloor: "floor", market.ByCeiling: "ceiling",
}
