// Package explain writes sentences about the CPU limit of a pod. It is pure: the same snapshot and
// time give the same text.
package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
)

// Explanation is what explain prints.
type Explanation struct {
	snapshot.Row
	Sentences []string `json:"sentences"`
	Notes     []string `json:"notes,omitempty"`

	containers *format.Table
}

// Subject is the pod and what its explanation is derived from.
type Subject struct {
	Row             snapshot.Row
	Pod             *corev1.Pod
	Allocation      *v1alpha1.PodAllocation   // nil: none
	Market          *snapshot.Market          // of its node; nil: unknown
	NodeConstraints []snapshot.PodConstraints // of all pods of its node, as far as they can be read
	Settings        kube.Settings             // of the controller; nil: unknown
	Now             time.Time
}

// sentences are in the order in which a limit comes about. A sentence is "" if it does not apply.
var sentences = []func(Subject) string{
	eligibility, startupBoost, demanded, stalls, price, constraintSentences, decision, floorsExceedSupply, lastChange, state,
}

// Pod explains the limit of a pod.
func Pod(s Subject, notes []string) Explanation {
	e := Explanation{Row: s.Row, Notes: notes, containers: containers(s)}
	for _, sentence := range sentences {
		if text := sentence(s); text != "" {
			e.Sentences = append(e.Sentences, text)
		}
	}
	return e
}

// Text is the explanation for a terminal.
func (e Explanation) Text() string {
	var b strings.Builder
	node := ""
	if e.Node != "" {
		node = ", node " + e.Node
	}
	fmt.Fprintf(&b, "Pod %s/%s%s, mode %s\n\n", e.Namespace, e.Pod, node, cmp.Or(string(e.Mode), "unknown"))
	b.WriteString(e.containers.String())
	b.WriteByte('\n')
	for _, s := range e.Sentences {
		b.WriteString(format.Wrap(s, 100))
	}
	for _, n := range e.Notes {
		b.WriteString(format.Wrap("Note: "+n, 100))
	}
	return b.String()
}

// containers shows the CPU of each container as declared, decided and in force.
func containers(s Subject) *format.Table {
	t := &format.Table{Header: []string{"CONTAINER", "REQUEST", "DECLARED", "LIMIT", "IN-FORCE", "DECIDED"}}
	var decided map[string]cpu.Milli
	if s.Row.Figures != nil {
		decided = s.Row.Figures.Containers
	}
	var declared map[string]cpu.Milli
	if s.Allocation != nil {
		declared = kube.ByName(s.Allocation.Status.DeclaredLimits)
	}
	for _, c := range kube.Containers(s.Pod) {
		name, limit := c.Spec.Name, cmp.Or(format.CPU(c.Limit()), "none")
		t.Add(name, format.CPU(c.Request()), format.CPU(declared[name]), limit, format.CPU(c.InForce()),
			format.CPU(decided[name]))
	}
	return t
}
