package mbcas

import (
	"flag"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/testing/atlength"
)

var table = flag.Bool("table", false, "print the table of docs/demand-signals.md")

// signalCase is a node with DemandSignals for some services.
type signalCase struct {
	name      string
	cores     int
	pods      []sim.PodSpec
	signalled func(name string) bool
	p50, p99  float64 // with a signal of 300 % at most, as a share of those without
	alone     bool    // no pod keeps what declared limits give it
}

// signalCases are the nodes of the table in docs/demand-signals.md.
func signalCases() []signalCase {
	serve := func(name string, request cpu.Milli, priority int32, rate load.Profile) sim.PodSpec {
		return sim.PodSpec{
			Name: name, Request: request, Limit: 1000, Priority: priority, Threads: 8,
			Requests: load.Requests{Rate: rate, ServiceTime: 10 * time.Millisecond, Distribution: load.Exponential},
		}
	}
	hog := func(i int, request cpu.Milli, threads float64) sim.PodSpec {
		return sim.PodSpec{Name: fmt.Sprint("hog-", i), Request: request, Limit: 4000, Spin: load.Constant(threads)}
	}
	all := func(name string) bool { return strings.HasPrefix(name, "service") }
	var many []sim.PodSpec
	for i := range 6 {
		many = append(many, serve(fmt.Sprint("service-", i), 500, 4000, load.Burst{
			Low: 40, High: 120, Start: time.Duration(i) * 3 * time.Second, Length: 7500 * time.Millisecond, Period: 20 * time.Second, Jitter: 1,
		}))
	}
	many = append(many, hog(0, 500, 6), hog(1, 500, 6), hog(2, 500, 6))
	return []signalCase{
		{"equal requests", 2, []sim.PodSpec{serve("service", 500, 0, load.Constant(60)), hog(0, 500, 4)}, all, 0.97, 0.97, false},
		{"equal requests, the price alone", 2, []sim.PodSpec{serve("service", 500, 0, load.Constant(60)), hog(0, 500, 4)}, all, 0.9, 0.8, true},
		{"small request, high priority", 2, []sim.PodSpec{serve("service", 100, 100_000_000, load.Constant(60)), hog(0, 400, 4)}, all, 0.9, 0.75, false},
		{"six services, one with a signal", 8, many, func(name string) bool { return name == "service-0" }, 0.9, 0.75, false},
		{"six services, all with a signal", 8, many, all, 0.9, 0.75, false},
	}
}

// signalResult is the result of one case.
type signalResult struct {
	p50, p99, others time.Duration
	hogs             float64 // cores
	throttled        float64
	changes          int // of limits, per pod and 5 minutes
}

func (a signalCase) run(percent int32) signalResult {
	const seeds, warm = 5, time.Minute
	length := 4 * time.Minute
	if atlength.On() || *table {
		length = 6 * time.Minute
	}
	cfg := DefaultConfig()
	if a.alone {
		cfg = priceAlone()
	}
	if len(a.pods) > 2 {
		cfg.Round.EarlyFall = 0 // as shipped, the price does not fall between the bursts, and signals help little
	}
	cfg.DemandPercent = map[string]int32{}
	for _, p := range a.pods {
		if a.signalled(p.Name) {
			cfg.DemandPercent[p.Name] = percent
		}
	}
	var asks, others sim.Latencies
	var hogs time.Duration
	var throttled, periods uint64
	changes := 0
	for seed := range seeds {
		r := sim.Run(sim.Setup{Machine: sim.Machine{Cores: a.cores}, Pods: a.pods, Length: length, WarmUp: warm, Seed: uint64(seed + 1)}, New(cfg))
		for i := range r.Pods {
			p := &r.Pods[i]
			changes += len(p.ChangesBetween(warm, length))
			switch {
			case a.signalled(p.Spec.Name):
				asks.Merge(p.Latency)
				throttled, periods = throttled+p.Throttled, periods+p.Periods
			case p.Spec.Spin != nil:
				hogs += p.Usage
			default:
				others.Merge(p.Latency)
			}
		}
	}
	return signalResult{
		p50: asks.Quantile(.5), p99: asks.Quantile(.99), others: others.Quantile(.99), hogs: hogs.Seconds() / float64(seeds) / (length - warm).Seconds(),
		throttled: float64(throttled) / float64(max(1, periods)), changes: int(math.Round(float64(changes) / float64(seeds) / float64(len(a.pods)))),
	}
}

// TestDemandSignalHelps: on a full node a DemandSignal makes a service faster, up to its share, and
// never throttles it. The batch pods pay, and no other service; one of the same priority pays little, as it keeps most
// of what declared limits give it.
func TestDemandSignalHelps(t *testing.T) {
	percents := []int32{100, 300}
	if *table {
		percents = []int32{100, 125, 150, 200, 300, 1000}
	}
	for _, a := range signalCases() {
		var at100 signalResult
		for _, percent := range percents {
			got := a.run(percent)
			if *table {
				fmt.Printf("| %s | %d %% | %d ms | %d ms | %d ms | %.2f |\n", a.name, percent, got.p50.Milliseconds(), got.p99.Milliseconds(), got.others.Milliseconds(), got.hogs)
			}
			if percent == 100 {
				at100 = got
			} else if p50, p99 := got.p50.Seconds()/at100.p50.Seconds(), got.p99.Seconds()/at100.p99.Seconds(); percent >= 300 && (p50 > a.p50 || p99 > a.p99) {
				t.Errorf("%s, %d %%: p50 and p99 are %.2f and %.2f of those without a signal, want at most %.2f and %.2f", a.name, percent, p50, p99, a.p50, a.p99)
			}
			if got.others > at100.others {
				t.Errorf("%s, %d %%: p99 of the services without a signal is %v, was %v", a.name, percent, got.others, at100.others)
			}
			if got.changes > at100.changes+5 {
				t.Errorf("%s, %d %%: %d changes per pod, were %d", a.name, percent, got.changes, at100.changes)
			}
			if got.throttled > 0.02 {
				t.Errorf("%s, %d %%: the services are throttled in %.1f %% of their periods", a.name, percent, 100*got.throttled)
			}
		}
	}
}
