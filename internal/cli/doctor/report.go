package doctor

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mbcas/mbcas/internal/cli/format"
)

// Level is how bad a finding is.
type Level string

const (
	OK   Level = "OK"
	Warn Level = "WARN" // works, but not everywhere or not as one may expect
	Fail Level = "FAIL" // MBCAS cannot do its work until this is mended
)

// Finding is the answer to one question that doctor asks.
type Finding struct {
	Level Level `json:"level"`
	// Check is the area: cluster, install, node, namespace or pod.
	Check string `json:"check"`
	// Subject is the object that was looked at.
	Subject string `json:"subject"`
	// Text says what is.
	Text string `json:"text"`
	// Remedy says in a sentence what to do about it; "" where nothing needs doing.
	Remedy string `json:"remedy,omitempty"`
}

// findings collects answers.
type findings struct {
	check string
	list  []Finding
}

func (f *findings) ok(subject, text string, args ...any) {
	f.list = append(f.list, Finding{OK, f.check, subject, fmt.Sprintf(text, args...), ""})
}

func (f *findings) warn(subject, text, remedy string) {
	f.list = append(f.list, Finding{Warn, f.check, subject, text, remedy})
}

func (f *findings) fail(subject, text, remedy string) {
	f.list = append(f.list, Finding{Fail, f.check, subject, text, remedy})
}

// unread records that something could not be looked at, which is no fault of the cluster.
func (f *findings) unread(subject string, err error) {
	f.warn(subject, "could not be looked at: "+format.OneLine(err.Error()), "Ask for permission to read it, or ask somebody who has it to run doctor.")
}

// hidden records that the pods of an autoscaler's target are not known; what does it do to them?
func (f *findings) hidden(subject, what string, err error) {
	remedy := "Mend its target; until then MBCAS treats its pods as any others."
	if apierrors.IsForbidden(err) {
		remedy = "Ask for permission to get the scale subresource of its target, or ask somebody who has it to run doctor."
	}
	f.warn(subject, fmt.Sprintf("which pods %s is not known: %s", what, format.OneLine(err.Error())), remedy)
}

// Report is all that doctor found out.
type Report struct {
	Findings []Finding `json:"findings"`
	OK       int       `json:"ok"`
	Warnings int       `json:"warnings"`
	Failures int       `json:"failures"`
}

func NewReport(list []Finding) Report {
	r := Report{Findings: list}
	for _, f := range list {
		switch f.Level {
		case OK:
			r.OK++
		case Warn:
			r.Warnings++
		case Fail:
			r.Failures++
		}
	}
	return r
}

// Text is the report for people. quiet leaves out what is well.
func (r Report) Text(quiet bool) string {
	var b strings.Builder
	var shown []Finding
	subjects := 0
	for _, f := range r.Findings {
		if !quiet || f.Level != OK {
			shown = append(shown, f)
			subjects = max(subjects, len(f.Subject))
		}
	}
	for i, f := range shown {
		switch {
		case i == 0:
			fmt.Fprintf(&b, "%s\n", f.Check)
		case f.Check != shown[i-1].Check:
			fmt.Fprintf(&b, "\n%s\n", f.Check)
		}
		fmt.Fprintf(&b, "  %-4s   %-*s   %s\n", f.Level, subjects, f.Subject, f.Text)
		last := i == len(shown)-1 || shown[i+1].Remedy != f.Remedy || shown[i+1].Check != f.Check
		if f.Remedy != "" && last { // one remedy for all that it helps against
			fmt.Fprintf(&b, "         %-*s   -> %s\n", subjects, "", f.Remedy)
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d ok, %s, %s\n", r.OK, format.Plural(r.Warnings, "warning"), format.Plural(r.Failures, "failure"))
	return b.String()
}
