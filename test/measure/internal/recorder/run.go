package recorder

import (
	"encoding/csv"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/traffic"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// Run is what one run left.
type Run struct {
	Name     string
	Plan     script.Plan
	Start    time.Time
	Samples  []Sample
	Requests map[string][]traffic.Result // by service, in the order in which they ended
	Node     []NodeSample
	NewPods  []NewPod
}

// NodeSample is the whole machine, and the quota, in one second.
type NodeSample struct {
	At         time.Duration
	Busy, Idle cpu.Milli
	Used, Hard cpu.Milli // of the quota
	NewPods    cpu.Milli // limits of the pods that come and go
}

// Sample is the pods of one workload in one second.
type Sample struct {
	At             time.Duration // from the start of the run
	Phase, App     string
	Ready, Desired int // replicas; Desired is 0 without an HPA
	// Sums over the pods; 0: none. Quota is the limit in the kernel.
	Request, Limit, Quota, Usage cpu.Milli
	Throttled                    float64 // milliseconds of throttled time per second, summed over CPUs
	ThrottleRatio                float64 // throttled periods / periods, of the pod with the highest ratio
	Demand                       cpu.Milli
	Price                        string    // of the last published decision
	PriceAt                      time.Time // when that was made
	// Latency of the requests that ended in the last Window, in milliseconds; 0: none ended.
	P50, P99 float64
}

const (
	// Window is the time before a sample whose requests its latency counts.
	Window = 5 * time.Second
	// Settle is how long after the start of a phase throttling does not count: the time to see the new
	// load.
	Settle = 5 * time.Second
	// Onset is the first part of a phase in which a hog starts, with figures of its own.
	Onset = 10 * time.Second
	// LowWindow is the time over which the lowest usage is a mean: that of a member of the idle class, by which the
	// agent judges whether it falls short.
	LowWindow = 10 * time.Second

	wholePhase = math.MaxInt64 / 2 * time.Nanosecond
)

// requests are those to a service whose intended arrival lies in a phase, from a time after its
// start to another one; "": of all services.
func (r *Run) requests(w script.Where, from, to time.Duration) (in []traffic.Result) {
	p, ok := r.Plan.Phase(w.Phase)
	if !ok {
		return nil
	}
	for service, all := range r.Requests {
		if w.Service != "" && w.Service != service {
			continue
		}
		for _, x := range all {
			if x.At >= p.From+from && x.At < min(p.To, p.From+to) {
				in = append(in, x)
			}
		}
	}
	return in
}

// Latency is a quantile of the requests' latency in a phase, in milliseconds; nil where there are none.
func (r *Run) Latency(w script.Where, q float64) *float64 {
	return quantile(r.requests(w, 0, wholePhase), q)
}

// Settled is the same from Settle after the phase's start.
func (r *Run) Settled(w script.Where, q float64) *float64 {
	return quantile(r.requests(w, Settle, wholePhase), q)
}

// Onset is the same in the first Onset of the phase.
func (r *Run) Onset(w script.Where, q float64) *float64 {
	return quantile(r.requests(w, 0, Onset), q)
}

// OnsetRequests is how many requests that counts.
func (r *Run) OnsetRequests(w script.Where) int { return len(r.requests(w, 0, Onset)) }

func quantile(in []traffic.Result, q float64) *float64 {
	all := make([]float64, len(in))
	for i, x := range in {
		all[i] = Milliseconds(x.Latency)
	}
	if ms, ok := traffic.Quantile(all, q); ok {
		return &ms
	}
	return nil
}

// Unserved counts the requests that were not served, and all of them.
func (r *Run) Unserved(w script.Where) (unserved, all int) {
	in := r.requests(w, 0, wholePhase)
	for _, x := range in {
		if x.Status != traffic.Served {
			unserved++
		}
	}
	return unserved, len(in)
}

// Late is a quantile of the generator's own delay, in milliseconds: the error of the measurement.
func (r *Run) Late(q float64) float64 {
	var all []time.Duration
	for _, requests := range r.Requests {
		for _, x := range requests {
			all = append(all, x.Late)
		}
	}
	d, _ := traffic.Quantile(all, q)
	return Milliseconds(d)
}

// In are the samples of a workload in a phase, later than settle after its start. A sample covers
// the second before it.
func (r *Run) In(w script.Where, settle time.Duration) (in []Sample) {
	p, ok := r.Plan.Phase(w.Phase)
	for _, s := range r.Samples {
		if ok && s.App == w.Workload() && s.At >= p.From+settle+time.Second && s.At <= p.To {
			in = append(in, s)
		}
	}
	return in
}

// Throttled is the mean throttled time of a service in a phase, in milliseconds per second.
func (r *Run) Throttled(w script.Where) *float64 {
	return mean(r.In(w, Settle), func(s Sample) float64 { return s.Throttled })
}

// Usage is the mean usage of a workload in a phase from Settle after its start, in cores.
func (r *Run) Usage(w script.Where) *float64 { return usage(r.In(w, Settle)) }

// OnsetUsage is the mean usage in the first Onset of the phase.
func (r *Run) OnsetUsage(w script.Where) *float64 {
	in := r.In(w, 0)
	p, _ := r.Plan.Phase(w.Phase)
	return usage(slices.DeleteFunc(in, func(s Sample) bool { return s.At > p.From+Onset }))
}

// LowUsage is the lowest such mean over LowWindow; nil where the phase has no such time from Settle on.
func (r *Run) LowUsage(w script.Where) (lowest *float64) {
	in := r.In(w, Settle)
	const n = int(LowWindow / time.Second)
	for i := n; i <= len(in); i++ {
		if v := usage(in[i-n : i]); lowest == nil || *v < *lowest {
			lowest = v
		}
	}
	return lowest
}

func usage(in []Sample) *float64 {
	return mean(in, func(s Sample) float64 { return s.Usage.Cores() })
}

// Idle is the mean idle CPU of the machine in a phase.
func (r *Run) Idle(phase string) *float64 {
	p, ok := r.Plan.Phase(phase)
	var in []NodeSample
	for _, s := range r.Node {
		if ok && s.At >= p.From+Settle+time.Second && s.At <= p.To {
			in = append(in, s)
		}
	}
	return mean(in, func(s NodeSample) float64 { return float64(s.Idle) })
}

func mean[T any](all []T, of func(T) float64) *float64 {
	if len(all) == 0 {
		return nil
	}
	sum := 0.0
	for _, x := range all {
		sum += of(x)
	}
	return new(sum / float64(len(all)))
}

// Milliseconds is d in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// WriteSamples writes every sample of the pods as CSV.
func WriteSamples(out io.Writer, runs []*Run) error {
	w := csv.NewWriter(out)
	w.Write([]string{"run", "second", "phase", "pod", "ready", "desired",
		"request_m", "limit_m", "kernel_limit_m", "usage_m",
		"throttled_ms_per_s", "throttle_ratio", "demand_m", "price", "p50_ms", "p99_ms"})
	for _, r := range runs {
		for _, s := range r.Samples {
			w.Write([]string{r.Name, decimal(s.At.Seconds(), 2), s.Phase, s.App,
				strconv.Itoa(s.Ready), strconv.Itoa(s.Desired),
				whole(s.Request), whole(s.Limit), whole(s.Quota), whole(s.Usage), decimal(s.Throttled, 1),
				decimal(s.ThrottleRatio, 2), whole(s.Demand), s.Price, decimal(s.P50, 1), decimal(s.P99, 1)})
		}
	}
	w.Flush()
	return w.Error()
}

// WriteNode writes every sample of the machine as CSV.
func WriteNode(out io.Writer, runs []*Run) error {
	w := csv.NewWriter(out)
	w.Write([]string{"run", "second", "busy_m", "idle_m", "quota_used_m", "quota_m", "new_pods_m"})
	for _, r := range runs {
		for _, s := range r.Node {
			w.Write([]string{r.Name, decimal(s.At.Seconds(), 2),
				whole(s.Busy), whole(s.Idle), whole(s.Used), whole(s.Hard), whole(s.NewPods)})
		}
	}
	w.Flush()
	return w.Error()
}

func whole(v cpu.Milli) string { return strconv.FormatInt(int64(v), 10) }

func decimal(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }
