package scenario

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// meanCores is the mean load of each of the three services that play a trace without a scale: with the two hogs
	// they demand more than the node has, and less without them.
	meanCores = 0.75
	// leastPlay and longestPlay are how long a trace is played: a short one again and again, of a long one the beginning.
	leastPlay, longestPlay = 3 * time.Minute, time.Hour
	// workSeconds is the CPU time of a request, the serviceTime of the scenario.
	workSeconds = 0.005
	maxScale    = 1e9
)

// isTrace matches the path of a file of recorded load, with a scale or without.
var isTrace = regexp.MustCompile(`^(.+\.(?:csv|txt))(=[^/]*)?$`)

// ofTrace is the scenario of a file of recorded load, as requests to three services beside two hogs. The scale
// ("=0.7") is the factor of its figures: requests per second, or cores. Without one a service has a load of meanCores.
func ofTrace(file, scale string) (*Scenario, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	format := formatOf(text)
	r, err := readTrace(format, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("trace %s, read as %s: %w", file, format, err)
	}
	speed := 1.0
	if format == FormatUsage {
		speed = r.step.Seconds()
	}
	length := min(longestPlay, max(leastPlay, time.Duration(float64(r.step)*float64(len(r.values))/speed)))
	var factor float64
	if scale == "" {
		mean := r.meanLoad(format, int(length.Seconds()*speed/r.step.Seconds()))
		if factor = meanCores / mean; !(mean > 0) || factor > maxScale {
			return nil, fmt.Errorf("trace %s: its mean load is %g cores; give it a scale, as in load.csv=0.7", file, mean)
		}
	} else if factor, err = strconv.ParseFloat(scale[1:], 64); err != nil || !(factor > 0) || factor > maxScale {
		return nil, fmt.Errorf("trace %s: its scale is %q: want a number above 0, as in load.csv=0.7", file, scale[1:])
	}
	content := fmt.Sprintf(traceScenario, traceName(file+scale), length.Seconds(), file, format, factor, speed)
	return Parse(file, []byte(content), "")
}

// traceName is the name of the scenario of a file and its scale.
func traceName(file string) string {
	name := notInNames.ReplaceAllString(strings.ToLower(filepath.Base(file)), "-")
	name = strings.Trim(name[max(0, len(name)-63):], "-")
	return cmp.Or(name, "recorded-load")
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// traceScenario is the file of the scenario of a trace.
const traceScenario = `name: %q
description: Recorded load as requests to three services, beside two hogs.
node: {cores: 8}
length: %.0fs
warmUp: 60s
pods:
  - name: service
    role: service
    replicas: 3
    request: "1"
    limit: "2"
    parallelism: 8
    load:
      requests:
        rate: {trace: {file: %q, format: %s, scale: %g, loop: true, speed: %g}}
        serviceTime: 5ms
  - name: batch
    role: batch
    replicas: 2
    request: "1"
    limit: "4"
    load: {spin: 4}
`

// formatOf tells the formats apart by the first lines: counts are alone on a line, and times of milliseconds have a
// header that begins with "timestamp".
func formatOf(text []byte) Format {
	first, rest, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(string(text[:min(len(text), 4096)]), "\ufeff")), "\n")
	header := strings.ToLower(first)
	switch {
	case !strings.Contains(first, ",") && !strings.Contains(rest, ","):
		return FormatRequests
	case strings.HasPrefix(header, "timestamp"):
		return FormatTimestamped
	}
	return FormatUsage
}

// meanLoad is the mean load of the first steps in cores.
func (r recorded) meanLoad(format Format, steps int) float64 {
	sum, n := 0.0, max(1, min(steps, len(r.values)))
	for _, v := range r.values[:n] {
		sum += v
	}
	if format != FormatUsage {
		sum *= workSeconds
	}
	return sum / float64(n)
}
