package incident

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/scenario"
)

// ScenarioFile is the name of the scenario in Files.
const ScenarioFile = "scenario.yaml"

const (
	// serviceTime is the mean CPU time of a request. A recording does not tell it: shorter ones make load
	// smoother.
	serviceTime = 10 * time.Millisecond
	// saturates is from which share of its time on a hindered pod is one that uses all it gets, and no
	// service with a queue.
	saturates = 0.5
	// warmUp is the part that is not compared; at most a third. The simulator begins with declared limits
	// and no estimates, and a limit comes down in steps: from 4 CPU to 300m in 40 s with the settings that
	// ship.
	warmUp = time.Minute
)

// Files are a scenario and the traces of its pods, by name.
func (i *Incident) Files() map[string][]byte {
	files := map[string][]byte{}
	var b bytes.Buffer
	length := time.Duration(i.Seconds) * time.Second
	b.WriteString("# Load of a recording: what each pod used, or its estimated demand where something hindered it.\n")
	description := fmt.Sprintf("What node %s recorded from %s on.", i.Node, i.From.UTC().Format(time.RFC3339))
	fmt.Fprintf(&b, "name: recorded\ndescription: %q\n", description)
	fmt.Fprintf(&b, "node: {cores: %d, allocatable: %v, systemUsage: %v}\nlength: %v\nwarmUp: %v\npods:\n",
		i.Cores, i.Allocatable, i.System, length, min(warmUp, (length/3).Truncate(time.Second)))
	for k := range i.Pods {
		p := &i.Pods[k]
		start, end := p.life()
		trace := p.Alias + ".csv"
		files[trace] = p.trace(start, end)
		p.write(&b, trace, start, end, i.Seconds)
	}
	files[ScenarioFile] = b.Bytes()
	return files
}

// life is the first second in which the pod is present, and the one after the last.
func (p *Pod) life() (start, end int) {
	end = len(p.Points)
	for end > 0 && !p.Points[end-1].Present {
		end--
	}
	for start < end && !p.Points[start].Present {
		start++
	}
	return start, end
}

// trace is the demand by second, in cores or, of a pod that saturates, threads.
func (p *Pod) trace(start, end int) []byte {
	var b bytes.Buffer
	b.WriteString("seconds,cores\n")
	for k, point := range p.Points[start:end] {
		v := point.Demand.Cores()
		if p.spins() {
			v = math.Ceil(v - 0.05) // as much as the noise of an estimate
		}
		fmt.Fprintf(&b, "%d,%g\n", k, max(0, v))
	}
	fmt.Fprintf(&b, "%d,0\n", end-start)
	return b.Bytes()
}

// spins says whether the pod uses all that it gets: it was hindered for most of its time.
func (p *Pod) spins() bool { return p.Hindered > saturates }

// write writes the pod of the scenario.
func (p *Pod) write(b *bytes.Buffer, trace string, start, end, seconds int) {
	role := scenario.Service
	if p.spins() {
		role = scenario.Batch
	}
	fmt.Fprintf(b, "- name: %s # %q\n  role: %s\n", p.Alias, p.Name.String(), role)
	for _, f := range []struct {
		name  string
		value cpu.Milli
	}{{"request", p.Request}, {"limit", p.Declared}} {
		if f.value > 0 {
			fmt.Fprintf(b, "  %s: %v\n", f.name, f.value)
		}
	}
	if p.Priority != 0 {
		fmt.Fprintf(b, "  priority: %d\n", p.Priority)
	}
	if !p.Managed {
		b.WriteString("  optOut: true\n")
	}
	if p.Floor > 0 || p.Ceiling > 0 {
		fmt.Fprintf(b, "  constraints: {floor: %v, ceiling: %v}\n", p.Floor, p.Ceiling)
	}
	if start > 0 {
		fmt.Fprintf(b, "  start: %ds\n", start)
	}
	if end < seconds {
		fmt.Fprintf(b, "  end: %ds\n", end)
	}
	of := fmt.Sprintf("trace: {file: %s, format: usage}", trace)
	if p.spins() {
		fmt.Fprintf(b, "  load: {spin: {%s}}\n", of)
	} else {
		fmt.Fprintf(b, "  load: {requests: {serviceTime: %v, rate: {%s}}}\n", serviceTime, of)
	}
}

// Scenario is that of the files.
func (i *Incident) Scenario() (*scenario.Scenario, error) {
	files := i.Files()
	s, err := scenario.ParseFrom(ScenarioFile, files[ScenarioFile], func(path string) (io.ReadCloser, error) {
		data, there := files[filepath.Base(path)]
		if !there {
			return nil, fs.ErrNotExist
		}
		return io.NopCloser(bytes.NewReader(data)), nil
	})
	if err != nil {
		return nil, fmt.Errorf("the recording of node %s makes no scenario: %w", i.Node, err)
	}
	return s, nil
}
