// Package loads is CPU load like that recorded of production services, and the counters of a node whose
// containers run it. A load is a trend, noise from second to second, and bursts:
//
//   - The trend is a window of a recorded trace, or without one two sines with periods of a day and of an
//     hour, of 30 % and 10 % of the mean.
//   - Noise is autoregressive: 0.8 of a second's deviation is left in the next, and its standard deviation
//     is 5, 10 or 30 % of the trend.
//   - Bursts come every ten minutes on average, last five to thirty seconds, and are 1 to 3 times the
//     mean on top of it.
//
// It is the same for the same seed and times, whatever the load gets and however often it is read.
package loads

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Load is what one container wants.
type Load struct {
	mean   float64 // cores
	trend  func(time.Duration) float64
	sigma  float64
	random *rand.Rand

	drawn  time.Duration // start of the next second of which it is not known what it wants
	want   float64       // in the second before
	noise  float64
	burst  float64       // on top, as a multiple of the mean; 0: there is none
	until  time.Duration // when the burst ends
	next   time.Duration // when the next begins
	frozen float64       // what it wants for good; negative: it varies
}

const (
	rho          = 0.8 // of the noise
	burstsApart  = 10 * time.Minute
	burstLeast   = 5 * time.Second
	burstMost    = 30 * time.Second
	burstSize    = 3.0
	longestTrend = 4.0 // a trace is cut at that multiple of its mean
)

// New is a load of that mean in cores. Trace may be nil.
func New(mean float64, trace *Trace, seed uint64) *Load {
	r := rand.New(rand.NewPCG(seed, 5))
	l := &Load{mean: mean, random: r, sigma: []float64{0.05, 0.1, 0.3}[r.IntN(3)], frozen: -1}
	if day, hour := r.Float64(), r.Float64(); trace != nil {
		l.trend = trace.window(day)
	} else {
		l.trend = func(t time.Duration) float64 {
			return 1 + 0.3*math.Sin(2*math.Pi*(day+t.Hours()/24)) + 0.1*math.Sin(2*math.Pi*(hour+t.Hours()))
		}
	}
	l.next = l.after()
	return l
}

// Steady is a load with noise of that standard deviation, as a part of its mean, without trend and bursts.
func Steady(mean, sigma float64, seed uint64) *Load {
	l := &Load{mean: mean, random: rand.New(rand.NewPCG(seed, 5)), sigma: sigma, frozen: -1, next: math.MaxInt64}
	l.trend = func(time.Duration) float64 { return 1 }
	return l
}

// Constant is a load that does not vary.
func Constant(cores float64) *Load { return &Load{frozen: cores} }

// after is the time to the next burst.
func (l *Load) after() time.Duration {
	return time.Duration(l.random.ExpFloat64() * float64(burstsApart))
}

// Want is what it wants in the second of t. It is asked of times in their order.
func (l *Load) Want(t time.Duration) float64 {
	if l.frozen >= 0 {
		return l.frozen
	}
	for ; l.drawn <= t; l.drawn += time.Second {
		l.want = l.draw(l.drawn)
	}
	return l.want
}

// draw is what it wants in the second that begins at t.
func (l *Load) draw(t time.Duration) float64 {
	l.noise = rho*l.noise + math.Sqrt(1-rho*rho)*l.random.NormFloat64()
	if t >= l.next {
		l.burst = 1 + (burstSize-1)*l.random.Float64()
		l.until = t + burstLeast + time.Duration(l.random.Float64()*float64(burstMost-burstLeast))
		l.next = l.until + l.after()
	}
	if t >= l.until {
		l.burst = 0
	}
	return max(0, l.mean*(l.trend(t)*(1+l.sigma*l.noise)+l.burst))
}

// Freeze has it want the trend of t from now on.
func (l *Load) Freeze(t time.Duration) {
	if l.frozen < 0 {
		l.frozen = l.mean * l.trend(t)
	}
}

// Trace is a recorded load, in multiples of its mean.
type Trace struct {
	Name   string
	values []float64
	step   time.Duration
}

// window is the trace from a part of it on; it begins again at its end. Between two values it is linear.
func (t *Trace) window(part float64) func(time.Duration) float64 {
	from := time.Duration(part * float64(len(t.values)) * float64(t.step))
	return func(at time.Duration) float64 {
		steps := float64(from+at) / float64(t.step)
		i, rest := int(steps), steps-math.Floor(steps)
		n := len(t.values)
		return t.values[i%n]*(1-rest) + t.values[(i+1)%n]*rest
	}
}

// Read reads the traces of a folder: files cpu-usage-*.csv of lines of seconds, a comma, and a figure of
// which the unit does not matter.
func Read(dir string) (list []*Trace, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "cpu-usage-*.csv"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		t, err := readFile(file)
		if err != nil {
			return nil, fmt.Errorf("trace %s: %w", file, err)
		}
		list = append(list, t)
	}
	return list, nil
}

func readFile(file string) (*Trace, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := &Trace{Name: filepath.Base(file), step: time.Minute}
	sum := 0.0
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		_, figure, _ := strings.Cut(lines.Text(), ",")
		if v, err := strconv.ParseFloat(figure, 64); err == nil && v >= 0 && v < 1e15 { // not the header
			t.values, sum = append(t.values, v), sum+v
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if sum == 0 {
		return nil, fmt.Errorf("it has no figures above 0")
	}
	mean := sum / float64(len(t.values))
	for i := range t.values {
		t.values[i] = min(t.values[i]/mean, longestTrend)
	}
	return t, nil
}
