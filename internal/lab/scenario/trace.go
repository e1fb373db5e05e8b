package scenario

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// recorded is what a trace file says, in equal steps from its first line on.
type recorded struct {
	values []float64 // requests per second, or what the file calls CPU use
	step   time.Duration
}

// longestStep is how far apart most lines may lie.
const longestStep = 24 * time.Hour

// maxSteps is how long a recording may be: two years of minutes, 11 days of seconds.
const maxSteps = 1 << 20

// readTrace reads a file of one of the formats. Lines may lack: in a count of requests, none came
// then; of a use, it stayed as it was. A first line that is no number is taken for a header.
func readTrace(format Format, in io.Reader) (recorded, error) {
	var at []int64 // in units of the format
	var values []float64
	lines := bufio.NewScanner(in)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if line == "" {
			continue
		}
		t, v, err := traceLine(format, line, int64(len(values)))
		if err != nil {
			if number == 1 && !strings.ContainsAny(line[:1], "+-.0123456789") {
				continue
			}
			return recorded{}, fmt.Errorf("line %d: %w", number, err)
		}
		if len(at) > 0 && t <= at[len(at)-1] {
			return recorded{}, fmt.Errorf("line %d: its time %d does not lie after that of the line before, %d", number, t, at[len(at)-1])
		}
		at, values = append(at, t), append(values, v)
		if len(values) > maxSteps {
			return recorded{}, fmt.Errorf("it has more than %d lines; cut it", maxSteps)
		}
	}
	if err := lines.Err(); err != nil {
		return recorded{}, err
	}
	if len(values) == 0 {
		return recorded{}, fmt.Errorf("it has no figures")
	}
	return resample(format, at, values)
}

// traceLine reads one line; in files without times, number stands for it.
func traceLine(format Format, line string, number int64) (at int64, value float64, err error) {
	figure := line
	if format != FormatRequests {
		time, rest, ok := strings.Cut(line, ",")
		if !ok {
			return 0, 0, fmt.Errorf("want a time, a comma and a figure, not %q", line)
		}
		seconds, err := strconv.ParseFloat(strings.TrimSpace(time), 64)
		if err != nil || math.Abs(seconds) > 1e15 {
			return 0, 0, fmt.Errorf("want a time before the comma, not %q", time)
		}
		number, figure = int64(math.Round(seconds)), strings.TrimSpace(rest)
	}
	value, err = strconv.ParseFloat(figure, 64)
	if err != nil || value < 0 || math.IsNaN(value) || math.IsInf(value, 0) {
		return 0, 0, fmt.Errorf("want a figure of 0 or more, not %q", figure)
	}
	return number, value, nil
}

// resample brings lines with times onto equal steps, as long as the distance of most of them.
func resample(format Format, at []int64, values []float64) (recorded, error) {
	unit := time.Second
	if format == FormatTimestamped {
		unit = time.Millisecond
	}
	step := int64(time.Second / unit)
	if format == FormatUsage {
		step = 60
	}
	times := map[int64]int{}
	for i := 1; i < len(at); i++ {
		d := at[i] - at[i-1]
		times[d]++
		if most := times[step]; times[d] > most || times[d] == most && d < step {
			step = d
		}
	}
	if step > int64(longestStep/unit) {
		return recorded{}, fmt.Errorf("most of its lines lie %.0f h apart, more than %.0f h; its times are read as multiples of %v", float64(step)*unit.Hours(), longestStep.Hours(), unit)
	}
	index := func(i int) int64 { return (at[i] - at[0] + step/2) / step }
	last := index(len(at) - 1)
	if last >= maxSteps {
		return recorded{}, fmt.Errorf("its times reach over %d steps of %v, more than %d; cut it", last, time.Duration(step)*unit, maxSteps)
	}
	r := recorded{values: make([]float64, last+1), step: time.Duration(step) * unit}
	for i, v := range values {
		k := index(i)
		if format == FormatUsage {
			for next := k; next <= last && (i+1 == len(at) || next <= index(i+1)); next++ {
				r.values[next] = v
			}
		} else {
			r.values[k] += v / r.step.Seconds()
		}
	}
	return r, nil
}
