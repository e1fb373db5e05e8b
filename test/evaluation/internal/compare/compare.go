// Package compare plays open-loop requests to a service of a user's cluster, in turn with and without MBCAS in its
// namespace, and compares the two.
//
// Promises:
//   - Both runs of a pair have the same arrivals, and which of them comes first is drawn: TestPairs.
//   - What is sent while limits settle does not count, and what is not answered counts as the timeout: TestPairs.
//   - The namespace has its label back at the end, also when the program is interrupted or fails, and a change by
//     another writer is left as it is: TestLabelComesBack, with a real API server. So it has when the answer to a
//     write is lost: TestUncertainWrites.
//   - A cluster that does not answer ends the comparison, or leaves throttling unknown: TestHangingClusters.
//   - Throttling is that of the service's own pods, and is said to be unknown where the kubelets do not tell it:
//     TestThrottling.
package compare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

// Modes of the label mbcas.io/mode that are compared. The usual baseline is Restore, since it returns every pod to its
// declared limits: Recommend leaves limits that enforce has raised.
const (
	Enforce   = "enforce"
	Restore   = "restore"
	Recommend = "recommend"
)

// Settings say what is played.
type Settings struct {
	Namespace string `json:"namespace"`
	// Selector chooses the pods whose throttling and limits are told; "": all of the namespace.
	Selector string `json:"selector,omitempty"`
	URL      string `json:"url"`
	Baseline string `json:"baseline"`
	Pairs    int    `json:"pairs"`
	Seed     uint64 `json:"seed"`
	// Rate is requests per second; a higher one than the service can serve measures the queue.
	Rate float64 `json:"rate"`
	// Settle is played before Length, which counts. Shorter mixes the modes: limits take up to 60 s to converge.
	Settle  time.Duration `json:"settle_ns"`
	Length  time.Duration `json:"length_ns"`
	Timeout time.Duration `json:"timeout_ns"`
}

// InFlight bounds the requests in progress. More are not sent, and count as the timeout.
const InFlight = 4096

// Validate says what is wrong with the settings, or nothing.
func (s Settings) Validate() error {
	switch {
	case s.Namespace == "":
		return errors.New("namespace is empty: want that of the service")
	case s.URL == "":
		return errors.New("url is empty: want one that the service answers")
	case s.Baseline != Restore && s.Baseline != Recommend:
		return fmt.Errorf("baseline %q: want %s or %s", s.Baseline, Restore, Recommend)
	case s.Pairs < 2:
		return fmt.Errorf("%d pairs: want at least 2, and 5 or more for an interval that says something", s.Pairs)
	case s.Rate <= 0:
		return fmt.Errorf("rate %v per second: want more than 0", s.Rate)
	case s.Length <= 0 || s.Timeout <= 0 || s.Settle < 0:
		return fmt.Errorf("length %v, timeout %v, settle %v: want lengths of time", s.Length, s.Timeout, s.Settle)
	}
	return nil
}

// Takes is how long everything takes, less the answers to the last requests.
func (s Settings) Takes() time.Duration {
	return time.Duration(2*s.Pairs) * (s.Settle + s.Length)
}

// Run is one run under a mode.
type Run struct {
	Pair     int       `json:"pair"`
	Mode     string    `json:"mode"`
	Started  time.Time `json:"started"`
	Requests int       `json:"requests"`
	Unserved int       `json:"unserved"` // failed, timed out or not sent: each counts as the timeout
	P50      float64   `json:"p50_ms"`
	P99      float64   `json:"p99_ms"`
	Max      float64   `json:"max_ms"`
	LateP99  float64   `json:"generator_late_p99_ms"` // the generator's own delay, part of the latencies
	LimitM   int64     `json:"limit_m"`               // sum of the CPU limits of the pods at the end
	Pods     int       `json:"pods"`
	// Throttled is the share of CFS periods in which the pods were throttled; null: unknown, and Unknown says why.
	Throttled *float64 `json:"throttled_share"`
	Unknown   string   `json:"throttled_unknown,omitempty"`
}

// Target is the cluster as this package needs it.
type Target interface {
	// SetMode sets the mode of the namespace.
	SetMode(ctx context.Context, mode string) error
	// Reset gives the namespace the mode that it had before.
	Reset(ctx context.Context) error
	// Limits are the sum of the CPU limits of the pods, in thousandths of a core, and their number.
	Limits(ctx context.Context) (sum int64, pods int, err error)
	// Periods are the CFS periods of the pods.
	Periods(ctx context.Context) (Periods, error)
}

// Comparison plays.
type Comparison struct {
	Settings
	Target Target
	Send   func(context.Context) error
	Say    func(format string, args ...any)
}

const (
	// resetting bounds the reset of the mode, which happens also when ctx has ended.
	resetting = 30 * time.Second
	// asking bounds each other answer of the cluster: one that hangs must not keep the namespace in a mode.
	asking = 30 * time.Second
)

// bounded is a target whose answers are waited for as long as asking says.
type bounded struct{ Target }

func (b bounded) SetMode(ctx context.Context, mode string) error {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	return b.Target.SetMode(ctx, mode)
}

func (b bounded) Limits(ctx context.Context) (sum int64, pods int, err error) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	return b.Target.Limits(ctx)
}

func (b bounded) Periods(ctx context.Context) (Periods, error) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	return b.Target.Periods(ctx)
}

// Run plays all pairs. With an error it returns the runs that were complete.
func (c Comparison) Run(ctx context.Context) (runs []Run, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	first, cancel := context.WithTimeout(ctx, c.Timeout)
	err = c.Send(first)
	cancel()
	if err != nil {
		return nil, fmt.Errorf("%s does not answer, so nothing was changed: %w", c.URL, err)
	}
	c.Target = bounded{c.Target}
	switch _, pods, err := c.Target.Limits(ctx); {
	case err != nil:
		return nil, fmt.Errorf("%w; nothing was changed", err)
	case pods == 0:
		return nil, fmt.Errorf("namespace %s has no Running pod that selector %q chooses, so nothing was changed",
			c.Namespace, c.Selector)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetting)
		defer cancel()
		err = errors.Join(err, c.Target.Reset(ctx))
	}()
	rng := rand.New(rand.NewPCG(c.Seed, 0x70616972))
	for pair := 1; pair <= c.Pairs; pair++ {
		modes := []string{c.Baseline, Enforce}
		if rng.IntN(2) == 1 {
			modes[0], modes[1] = modes[1], modes[0]
		}
		for _, mode := range modes {
			r, err := c.one(ctx, pair, mode)
			if err != nil {
				return runs, fmt.Errorf("pair %d, mode %s: %w", pair, mode, err)
			}
			runs = append(runs, r)
			c.Say("%s", r)
		}
	}
	return runs, nil
}

// one plays one run.
func (c Comparison) one(ctx context.Context, pair int, mode string) (r Run, err error) {
	r = Run{Pair: pair, Mode: mode, Started: time.Now().UTC()}
	if err := c.Target.SetMode(ctx, mode); err != nil {
		return r, err
	}
	// The arrivals that count depend on the pair alone.
	seed := c.Seed*1000 + uint64(2*pair)
	arrivals := traffic.Arrivals(seed+1, []traffic.Segment{{For: c.Settle, Rate: c.Rate}})
	for _, at := range traffic.Arrivals(seed, []traffic.Segment{{For: c.Length, Rate: c.Rate}}) {
		arrivals = append(arrivals, c.Settle+at)
	}
	playing, stop := context.WithCancel(ctx)
	defer stop()
	begin := time.Now()
	var results []traffic.Result
	done := make(chan struct{})
	go func() {
		defer close(done)
		g := traffic.Generator{Send: c.Send, InFlight: InFlight, Timeout: c.Timeout}
		g.Run(playing, begin, arrivals, func(x traffic.Result) { results = append(results, x) })
	}()
	poll.Sleep(ctx, time.Until(begin.Add(c.Settle)))
	first, unknown := c.Target.Periods(ctx)
	poll.Sleep(ctx, time.Until(begin.Add(c.Settle+c.Length)))
	last, err := c.Target.Periods(ctx)
	unknown = errors.Join(unknown, err)
	r.LimitM, r.Pods, err = c.Target.Limits(ctx)
	if err != nil {
		stop()
	}
	<-done
	if err := errors.Join(ctx.Err(), err); err != nil {
		return r, err
	}
	if share, ok := last.Since(first); ok && unknown == nil {
		r.Throttled = &share
	} else {
		r.Unknown = "no pod was sampled at both ends of the run"
		if unknown != nil {
			r.Unknown = unknown.Error()
		}
	}
	return r, r.fill(results, c.Settle)
}

// fill fills in the figures of the requests that count.
func (r *Run) fill(results []traffic.Result, settle time.Duration) error {
	var latencies, late []time.Duration
	for _, x := range results {
		if x.At < settle {
			continue
		}
		r.Requests++
		if x.Status != traffic.Served {
			r.Unserved++
		}
		latencies, late = append(latencies, x.Latency), append(late, x.Late)
	}
	if r.Requests == 0 {
		return errors.New("no request counts: the rate or the length is too small")
	}
	ms := func(of []time.Duration, share float64) float64 {
		v, _ := traffic.Quantile(of, share)
		return float64(v) / float64(time.Millisecond)
	}
	r.P50, r.P99, r.Max, r.LateP99 = ms(latencies, 0.5), ms(latencies, 0.99), ms(latencies, 1), ms(late, 0.99)
	return nil
}

// String is the run as a line of progress.
func (r Run) String() string {
	throttled := "unknown"
	if r.Throttled != nil {
		throttled = fmt.Sprintf("%.1f %%", 100**r.Throttled)
	}
	return fmt.Sprintf("pair %d  %-9s  p50 %8.1f ms  p99 %8.1f ms  %d of %d unserved  throttled %s of periods  "+
		"limits %dm of %d pods  generator late %.1f ms (p99)",
		r.Pair, r.Mode, r.P50, r.P99, r.Unserved, r.Requests, throttled, r.LimitM, r.Pods, r.LateP99)
}
