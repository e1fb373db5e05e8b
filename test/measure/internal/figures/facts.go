// Package figures draws figures from what was recorded, compares them with a script's targets, and
// writes the table, summary.json and the picture.
//
// Promises:
//   - summary.json begins with the keys that other programs read, in their order, for every script:
//     TestKeys.
//   - A figure that was not measured is null, and meets no target: TestUnmeasured.
//   - Each target misses by its own figure: TestTargetsMiss.
//   - A script with an unknown figure or chart is refused: TestUnknownFigures.
package figures

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/measure/internal/player"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// TooBusy is how much CPU, in thousandths of a core, other programs may use before the first run,
// so that the figures count. An idle cluster uses about 300.
const TooBusy = 600

// Facts is everything that was recorded for one script; what was not is left out.
type Facts struct {
	Script  *script.Script
	Setup   Setup
	Runs    []*recorder.Run
	Reacted []player.Reaction
	// Resizes were accepted by the API server. Failed ones were refused, for these reasons.
	Resizes int
	Failed  map[string]int
	// Refusals is how often a quota refused a request, by account.
	Refusals map[string]int
	// Busy is the CPU in use before the first run, in thousandths of a core.
	Busy int64
	// Failures is how often MBCAS itself reported a failed resize.
	Failures int
	Changes  []recorder.Change
	// NotRestored are the pods that are not at their declared limits at the end; Restored: it was
	// tried.
	Restored    bool
	NotRestored []string
	Guard       guard.Report
	Started     time.Time
	Took        time.Duration
}

// Setup is what the figures were measured with.
type Setup struct {
	Full       bool       `json:"full"`
	Seed       uint64     `json:"seed"`
	RequestMS  float64    `json:"request_cpu_ms"`
	Iterations int        `json:"iterations"`
	Cores      int        `json:"cores"`
	MBCAS      string     `json:"mbcas"`
	Kubelet    string     `json:"kubelet"`
	Kernel     string     `json:"kernel"`
	Runtime    string     `json:"runtime"`
	Workloads  []Workload `json:"workloads"`
}

// Workload is the part of a workload that decides its budget.
type Workload struct {
	Name     string `json:"name"`
	Request  int64  `json:"request_m"`
	Limit    int64  `json:"declared_limit_m"`
	Class    string `json:"priority_class,omitempty"`
	Priority int32  `json:"priority"`
	// Multiplier of the request, which gives the budget.
	Multiplier float64 `json:"budget_multiplier"`
}

// Request counts one request to the API server, if it is to one of the script's namespaces.
func (f *Facts) Request(e audit.Event) {
	switch code := e.ResponseStatus.Code; {
	case e.DryRun() || !slices.Contains(f.Script.Namespaces, e.ObjectRef.Namespace):
	case e.OverQuota():
		count(&f.Refusals, e.User.Username)
	case !e.Of("resize"):
	case code < 300:
		f.Resizes++
	case code != 409: // the pod had changed meanwhile; it is tried again
		count(&f.Failed, e.ResponseStatus.Message)
	}
}

func count(m *map[string]int, key string) {
	if *m == nil {
		*m = map[string]int{}
	}
	(*m)[key]++
}

// run is the run of that name; nil: it was not played.
func (f *Facts) run(name string) *recorder.Run {
	for _, r := range f.Runs {
		if r.Name == name {
			return r
		}
	}
	return nil
}
