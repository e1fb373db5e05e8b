package doctor

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mbcas/mbcas/internal/cli/format"
)

// Level is the severity of a finding.
type Level string

const (
	OK   Level = "OK"
	Warn Level = "WARN" // MBCAS works, but not everywhere or not as expected
	Fail Level = "FAIL" // MBCAS does not work until this is fixed
)

// Finding is a result of one check.
type Finding struct {
	Level Level `json:"level"`
	// Check is the area: cluster, install, node, namespace or pod.
	Check string `json:"check"`
	// Name is that of the check within its area.
	Name string `json:"name"`
	// Subject is the object that was checked.
	Subject string `json:"subject"`
	Text    string `json:"text"`
	// Remedy says what to do; "" if nothing needs doing.
	Remedy string `json:"remedy,omitempty"`
}

type findings struct {
	area, name string // of the check that runs
	list       []Finding
}

func (f *findings) add(level Level, subject, text, remedy string) {
	f.list = append(f.list, Finding{level, f.area, f.name, subject, text, remedy})
}

func (f *findings) ok(subject, text string, args ...any) {
	f.add(OK, subject, fmt.Sprintf(text, args...), "")
}

func (f *findings) warn(subject, text, remedy string) { f.add(Warn, subject, text, remedy) }
func (f *findings) fail(subject, text, remedy string) { f.add(Fail, subject, text, remedy) }

// unreadable records what could not be read, which is not a fault of the cluster.
func (f *findings) unreadable(subject string, err error) {
	f.warn(subject, "cannot be read: "+format.OneLine(err.Error()),
		"Ask for permission to read it, or let a user with that permission run doctor.")
}

// unresolved records that the pods of an autoscaler's target are unknown, and with them what it
// does to them.
func (f *findings) unresolved(subject, what string, err error) {
	remedy := "Correct its target; until then MBCAS treats its pods as if it did not exist."
	if apierrors.IsForbidden(err) {
		remedy = "Ask for permission to get the scale subresource of its target, or let a user with that " +
			"permission run doctor."
	}
	f.warn(subject, fmt.Sprintf("which pods %s is unknown: %s", what, format.OneLine(err.Error())), remedy)
}

// Report is what doctor prints.
type Report struct {
	Findings []Finding `json:"findings"`
	OK       int       `json:"ok"`
	Warnings int       `json:"warnings"`
	Failures int       `json:"failures"`
}

// NewReport counts the findings by level.
func NewReport(list []Finding) Report {
	counts := map[Level]int{}
	for _, f := range list {
		counts[f.Level]++
	}
	return Report{Findings: list, OK: counts[OK], Warnings: counts[Warn], Failures: counts[Fail]}
}

// Text is the report for a terminal. Quiet leaves out what is OK.
func (r Report) Text(quiet bool) string {
	var b strings.Builder
	var shown []Finding
	width := 0
	for _, f := range r.Findings {
		if !quiet || f.Level != OK {
			shown = append(shown, f)
			width = max(width, len(f.Subject))
		}
	}
	for i, f := range shown {
		switch {
		case i == 0:
			fmt.Fprintf(&b, "%s\n", f.Check)
		case f.Check != shown[i-1].Check:
			fmt.Fprintf(&b, "\n%s\n", f.Check)
		}
		fmt.Fprintf(&b, "  %-4s   %-*s   %s\n", f.Level, width, f.Subject, f.Text)
		// A remedy that several findings in a row share is printed once.
		last := i == len(shown)-1 || shown[i+1].Remedy != f.Remedy || shown[i+1].Check != f.Check
		if f.Remedy != "" && last {
			fmt.Fprintf(&b, "         %-*s   -> %s\n", width, "", f.Remedy)
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d ok, %s, %s\n", r.OK, format.Plural(r.Warnings, "warning"), format.Plural(r.Failures, "failure"))
	return b.String()
}
