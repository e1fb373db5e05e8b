package results

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Setup is what the cell ran on.
type Setup struct {
	MBCAS      string             `json:"mbcas"`
	Kubernetes string             `json:"kubernetes"`
	Kernel     string             `json:"kernel"`
	Cgroup     string             `json:"cgroup"`
	Runtime    string             `json:"runtime"`
	Packages   string             `json:"packages,omitempty"` // of the workloads' image, with their versions
	Cores      int                `json:"cores"`
	CPU        string             `json:"cpu,omitempty"` // model of the CPU, as /proc/cpuinfo has it
	Seed       uint64             `json:"seed"`
	RequestMS  map[string]float64 `json:"request_cpu_ms"` // of each kind of service, as calibrated
	Rates      map[string]float64 `json:"rates"`          // requests per second after the event, by service
}

// Identity is what must be the same for cells that are compared: versions, machine and seed.
func (s Setup) Identity() string {
	id := fmt.Sprintf("MBCAS %s, Kubernetes %s, %s, kernel %s, cgroups %s, %d cores",
		s.MBCAS, s.Kubernetes, s.Runtime, s.Kernel, s.Cgroup, s.Cores)
	if s.CPU != "" {
		id += " of " + s.CPU
	}
	if s.Packages != "" {
		id += ", the workloads' packages " + Digest(s.Packages)[:8]
	}
	return fmt.Sprintf("%s, seed %d", id, s.Seed)
}

// CPUModel is the model of the first CPU that the text of /proc/cpuinfo has, or empty: not every architecture
// says it.
func CPUModel(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Digest is one of the settings of a policy.
func Digest(settings string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(settings)))[:16] }

// OfOneSetup are the cells with the setup and the calibration of the one that was started last, and for each policy of
// a situation those with the settings of its newest. others is what is different about those that are left out, with
// their number. A cell that failed before it had a calibration has none, and the one before it counts.
func OfOneSetup(cells []Cell) (kept []Cell, others map[string]int) {
	newest, calibrated, settings := Cell{}, Cell{}, map[[2]string]Cell{}
	for _, c := range cells {
		if newest.Schema == 0 || c.Started.After(newest.Started) {
			newest = c
		}
		if len(c.Setup.RequestMS) > 0 && (calibrated.Schema == 0 || c.Started.After(calibrated.Started)) {
			calibrated = c
		}
		of := [2]string{c.Situation, c.Policy}
		if was, ok := settings[of]; !ok || c.Started.After(was.Started) {
			settings[of] = c
		}
	}
	others = map[string]int{}
	for _, c := range cells {
		switch id := c.Setup.Identity(); {
		case id != newest.Setup.Identity():
			others[id]++
		case !sameRequests(c.Setup, calibrated.Setup):
			others["another calibration than that of the newest cell, "+calibrated.Situation+", "+calibrated.Policy]++
		case c.Settings != settings[[2]string{c.Situation, c.Policy}].Settings:
			others[fmt.Sprintf("other settings of %s in %s", c.Policy, c.Situation)]++
		default:
			kept = append(kept, c)
		}
	}
	return kept, others
}

// sameRequests reports whether kinds of services that both have cost the same.
func sameRequests(a, b Setup) bool {
	for kind, ms := range a.RequestMS {
		if other, ok := b.RequestMS[kind]; ok && other != ms {
			return false
		}
	}
	return true
}

// WriteSettings keeps the settings that belong to a digest.
func (f Folder) WriteSettings(settings string) error {
	return writeJSON(filepath.Join(string(f), "settings", Digest(settings)+".json"), json.RawMessage(settings))
}

// Settings are those that belong to a digest; ok is false where they are not there.
func (f Folder) Settings(digest string) (settings string, ok bool, err error) {
	text, err := os.ReadFile(filepath.Join(string(f), "settings", digest+".json"))
	if os.IsNotExist(err) {
		return "", false, nil
	}
	return string(text), err == nil, err
}
