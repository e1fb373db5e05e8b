// Package results is the machine-readable result of each cell: one JSON file, which is also what makes an
// evaluation resumable.
//
// Promises:
//   - What was written is read again, and a file that is cut off is no result: TestWriteAndRead.
//   - Latencies are by the intended arrival, and unserved requests count as the timeout: TestService.
//   - A pod's limit has converged when it stays within a tenth of its final value: TestConvergence. A limit that still
//     changes at the end keeps no promise: TestPromise.
package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mbcas/mbcas/test/internal/traffic"
)

// Schema is the version of the files. A change of a field's meaning makes a new one.
const Schema = 2

// Cell is one run of a situation under a policy.
type Cell struct {
	Schema    int    `json:"schema"`
	Key       string `json:"key"` // of the plan and the calibration: see plan.Key
	Situation string `json:"situation"`
	Policy    string `json:"policy"`
	Repeat    int    `json:"repeat"`
	// Settings is the digest of all settings of the policy: see Folder.Settings.
	Settings string    `json:"settings"`
	Started  time.Time `json:"started"`
	TookS    float64   `json:"took_s"`
	// Error says why there are no figures; "": there are.
	Error string `json:"error,omitempty"`
	// Failed are the attempts before this one, the oldest first. None of them has figures.
	Failed   []Attempt `json:"failed_attempts,omitempty"`
	Setup    Setup     `json:"setup"`
	Machine  Machine   `json:"machine"`
	Services []Service `json:"services,omitempty"`
	Batches  []Batch   `json:"batches,omitempty"`
	Control  Control   `json:"control"`
	// Pods are the limits of each pod, and Series what happened in each second.
	Pods   []PodLimits `json:"pods,omitempty"`
	Series []Second    `json:"series,omitempty"`
}

// Attempt is one that failed.
type Attempt struct {
	Started time.Time `json:"started"`
	TookS   float64   `json:"took_s"`
	Error   string    `json:"error"`
}

// Interrupted is the error of an attempt that its user ended. The next run plays the cell again.
const Interrupted = "interrupted"

// Attempts are all that failed, with this one if it did.
func (c Cell) Attempts() []Attempt {
	if c.Error == "" {
		return c.Failed
	}
	return append(slices.Clone(c.Failed), Attempt{c.Started, c.TookS, c.Error})
}

// Machine is what else the machine did.
type Machine struct {
	// CalibrationMS is the CPU time of a fixed count of arithmetic, before the cell.
	CalibrationMS float64 `json:"calibration_ms"`
	// BusyBeforeM is the CPU in use before the pods of the cell start, in thousandths of a core.
	BusyBeforeM int64   `json:"busy_before_m"`
	BusyM       int64   `json:"busy_m"`
	IdleM       int64   `json:"idle_m"`
	StealShare  float64 `json:"steal_share"`  // of all CPU time, taken by the host of this machine
	PressureSec float64 `json:"cpu_pressure"` // share of the time in which something waited for a CPU
}

// Service is what the clients of a service saw, from the event on.
type Service struct {
	Name       string  `json:"name"`
	Requests   int     `json:"requests"`
	Unserved   int     `json:"unserved"` // failed, timed out, or never sent: each counts as the timeout
	P50        float64 `json:"p50_ms"`
	P95        float64 `json:"p95_ms"`
	P99        float64 `json:"p99_ms"`
	Max        float64 `json:"max_ms"`
	LateP99    float64 `json:"generator_late_p99_ms"` // the generator's own delay, part of the latencies
	UsageM     float64 `json:"usage_m"`
	ThrottledS float64 `json:"throttled_ms_per_s"`
	// IdleClass is the share of the seconds from the event on in which a pod was in the kernel's idle class (cpu.idle).
	IdleClass float64 `json:"idle_class_share"`
	Replicas  int     `json:"replicas"` // at the end
}

// Batch is what a job has done from the event on.
type Batch struct {
	Name   string  `json:"name"`
	Units  int     `json:"units"`
	PerS   float64 `json:"units_per_s"`
	UsageM float64 `json:"usage_m"`
	// IdleClass is that of Service.
	IdleClass float64 `json:"idle_class_share"`
}

// Control is what the policy did.
type Control struct {
	Resizes   int     `json:"resizes"`
	PodWrites int     `json:"pod_writes"` // requests that change pods, with resizes and evictions
	Evictions int     `json:"evictions"`
	Restarts  int     `json:"restarts"`
	SystemM   float64 `json:"mbcas_usage_m"` // CPU of agent and controller, in thousandths of a core
	// Writes are all accepted requests that create, change or delete an object, by what sent them and by resource, such
	// as pods/resize. WritesS is for how many seconds they were counted.
	Writes  map[string]map[string]int `json:"writes"`
	WritesS float64                   `json:"writes_s"`
}

// What sends writes: the parts of a policy, which count in the whole cluster, with their Leases and Events; and
// everything else (kubelets, the scheduler, other controllers), which counts in the cell's namespace.
const (
	WritesMBCAS   = "mbcas"
	WritesVPA     = "vpa"
	WritesHPA     = "hpa"
	WritesCluster = "cluster"
)

// WritesPerMinute are those of a part in a minute.
func (c Control) WritesPerMinute(part string) float64 {
	n := 0
	for _, of := range c.Writes[part] {
		n += of
	}
	if c.WritesS <= 0 {
		return 0
	}
	return 60 * float64(n) / c.WritesS
}

// Second is one second of the measured time.
type Second struct {
	At        float64            `json:"s"`
	LimitM    map[string]int64   `json:"limit_m"` // sum of the quotas of a workload's pods; 0: none
	UsageM    map[string]float64 `json:"usage_m"`
	Throttled map[string]float64 `json:"throttled_ms"`
	IdleClass map[string]int     `json:"idle_class_pods"` // of a workload, in the kernel's idle class
}

// Mean is the mean of a workload's seconds.
type Mean struct {
	UsageM, Throttled, IdleClass float64 // IdleClass is the share of seconds in which a pod was in that class
}

// Means are those of each workload from an event on; ok is false where no second is of that time.
func Means(series []Second, event time.Duration) (means map[string]Mean, ok bool) {
	sums, n := map[string]Mean{}, 0.0
	for _, second := range series {
		if second.At <= event.Seconds() {
			continue
		}
		n++
		for name := range second.LimitM {
			m := sums[name]
			m.UsageM += second.UsageM[name]
			m.Throttled += second.Throttled[name]
			if second.IdleClass[name] > 0 {
				m.IdleClass++
			}
			sums[name] = m
		}
	}
	for name, m := range sums {
		sums[name] = Mean{m.UsageM / n, m.Throttled / n, m.IdleClass / n}
	}
	return sums, n > 0
}

// NewService is the figures of the requests of a service that were to arrive from an event on.
func NewService(name string, all []traffic.Result, event time.Duration) (Service, error) {
	s := Service{Name: name}
	var latencies, late []time.Duration
	for _, r := range all {
		if r.At < event {
			continue
		}
		s.Requests++
		if r.Status != traffic.Served {
			s.Unserved++
		}
		latencies, late = append(latencies, r.Latency), append(late, r.Late)
	}
	if s.Requests == 0 {
		return s, fmt.Errorf("service %s had no request after %v", name, event)
	}
	for _, q := range []struct {
		of    []time.Duration
		share float64
		to    *float64
	}{
		{latencies, 0.5, &s.P50}, {latencies, 0.95, &s.P95}, {latencies, 0.99, &s.P99}, {latencies, 1, &s.Max},
		{late, 0.99, &s.LateP99},
	} {
		v, _ := traffic.Quantile(q.of, q.share)
		*q.to = Milliseconds(v)
	}
	return s, nil
}

// Milliseconds is d in ms.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Folder holds the results.
type Folder string

func (f Folder) path(name string) string { return filepath.Join(string(f), "cells", name+".json") }

// Write writes the result of the cell of this name at once or not at all.
func (f Folder) Write(name string, c Cell) error {
	return writeJSON(f.path(name), c)
}

// Read reads the result of a cell; ok is false where there is none.
func (f Folder) Read(name string) (c Cell, ok bool, err error) {
	ok, err = readJSON(f.path(name), &c)
	if err == nil && ok && c.Schema != Schema {
		return c, false, nil
	}
	return c, ok, err
}

// All are the results of the cells with these names that are there, in this order.
func (f Folder) All(names []string) (all []Cell, err error) {
	for _, name := range names {
		c, ok, err := f.Read(name)
		if err != nil {
			return all, err
		}
		if ok {
			all = append(all, c)
		}
	}
	return all, nil
}

// Calibration is what a request of each kind costs on this machine, in ms of CPU.
type Calibration struct {
	Taken     time.Time          `json:"taken"`
	Setup     string             `json:"setup"` // Setup.Identity of what it was taken on
	RequestMS map[string]float64 `json:"request_cpu_ms"`
}

func (f Folder) calibration() string { return filepath.Join(string(f), "calibration.json") }

// ReadCalibration reads the calibration of a setup, which is empty where the folder has that of another; ok is false
// unless it has all the kinds.
func (f Folder) ReadCalibration(setup string, kinds []string) (c Calibration, ok bool, err error) {
	ok, err = readJSON(f.calibration(), &c)
	if c.Setup != setup {
		return Calibration{}, false, err
	}
	lacks := slices.ContainsFunc(kinds, func(kind string) bool { return c.RequestMS[kind] <= 0 })
	return c, ok && !lacks, err
}

// WriteCalibration keeps the calibration, so that a resumed evaluation has the same rates.
func (f Folder) WriteCalibration(c Calibration) error { return writeJSON(f.calibration(), c) }

func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+".new", append(text, '\n'), 0o644),
		os.Rename(path+".new", path))
}

func readJSON(path string, v any) (ok bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w; remove the file to measure it again", path, err)
	}
	return true, nil
}
