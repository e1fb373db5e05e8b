// Package history tells what happened to a pod, by time: the changes of its limit with why, from the recording of its
// node, and the Events of the pod and of its PodAllocation.
//
// Promises:
//   - What one source cannot tell is noted, and the others are told: TestLog.
//   - Entries are in the order of their times, and an Event of another pod of that name is left out: TestLog.
package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/past"
	"github.com/mbcas/mbcas/internal/story"
)

// Entry is what happened at a time.
type Entry struct {
	At   time.Time `json:"at"`
	From Source    `json:"from"`
	// Reason is that of an Event.
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text"`
}

// Source says what an entry comes from.
type Source string

// The sources of entries.
const (
	Recording Source = "recording" // the replayed rounds of the node
	Event     Source = "event"     // an Event of the pod
	Decision  Source = "decision"  // an Event of the pod's PodAllocation
)

// Log is what happened to a pod.
type Log struct {
	Namespace string  `json:"namespace"`
	Pod       string  `json:"pod"`
	Node      string  `json:"node"`
	Entries   []Entry `json:"entries"`
	// From and To are the time of the recording.
	From  time.Time `json:"from,omitzero"`
	To    time.Time `json:"to,omitzero"`
	Notes []string  `json:"notes,omitempty"`
}

// Read reads the log of a pod. Where neither the recording nor the Events can be read, that is an error.
func Read(ctx context.Context, a *cluster.Access, s format.Streams, name string) (*Log, error) {
	var pod corev1.Pod
	if err := a.Client.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: name}, &pod); err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", a.Namespace, name, err)
	}
	l := &Log{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName, Entries: []Entry{}}
	var failed []error
	try := func(what string, err error) {
		if err != nil {
			failed = append(failed, err)
			l.Notes = append(l.Notes, fmt.Sprintf("%s not told: %s.", what, format.OneLine(err.Error())))
		}
	}
	try("Changes of the limit are", l.addRecording(ctx, a, s))
	try("Events of the pod are", l.addEvents(ctx, a, Event, "Pod", &pod))
	try("Events of its PodAllocation are", l.addEvents(ctx, a, Decision, "PodAllocation", &pod))
	if len(failed) == 3 {
		return nil, errors.Join(failed...)
	}
	slices.SortStableFunc(l.Entries, func(a, b Entry) int { return a.At.Compare(b.At) })
	return l, nil
}

// addRecording adds what the recording of the node says about the pod.
func (l *Log) addRecording(ctx context.Context, a *cluster.Access, s format.Streams) error {
	from := past.Source{Pod: l.Pod, Connect: func() (*cluster.Access, error) { return a, nil }}
	rec, err := from.Read(ctx, s)
	if err != nil {
		return err
	}
	told, err := story.Tell(rec, from.About)
	if err != nil {
		return err
	}
	l.From, l.To = told.From, told.To
	for _, e := range told.Entries {
		if e.Pod == l.Namespace+"/"+l.Pod {
			l.Entries = append(l.Entries, Entry{At: e.At, From: Recording, Text: e.Text})
		}
	}
	return nil
}

// mostEvents bounds one list of Events.
const mostEvents = 500

// addEvents adds the Events of the pod, or of its PodAllocation, which is named by the pod's UID.
func (l *Log) addEvents(ctx context.Context, a *cluster.Access, from Source, kind string, pod *corev1.Pod) error {
	name := pod.Name
	if kind != "Pod" {
		name = string(pod.UID)
	}
	var list corev1.EventList
	err := a.Client.List(ctx, &list, client.InNamespace(pod.Namespace),
		client.MatchingFields{"involvedObject.name": name}, client.Limit(mostEvents))
	if err != nil {
		return fmt.Errorf("list the Events of %s %s/%s: %w", kind, pod.Namespace, name, err)
	}
	if list.Continue != "" {
		l.Notes = append(l.Notes, fmt.Sprintf("The %s has more than %d Events; the others are not told.", kind, mostEvents))
	}
	for i := range list.Items {
		e := &list.Items[i]
		if e.InvolvedObject.Kind != kind || kind == "Pod" && e.InvolvedObject.UID != "" && e.InvolvedObject.UID != pod.UID {
			continue
		}
		at, times := when(e)
		l.Entries = append(l.Entries, Entry{At: at, From: from, Reason: e.Reason, Text: format.OneLine(e.Message) + times})
	}
	return nil
}

// when is the last time of an Event, and how often it has been before.
func when(e *corev1.Event) (at time.Time, times string) {
	count := e.Count
	switch {
	case e.Series != nil:
		at, count = e.Series.LastObservedTime.Time, e.Series.Count
	case !e.LastTimestamp.IsZero():
		at = e.LastTimestamp.Time
	default:
		at = e.EventTime.Time
	}
	if count > 1 {
		times = fmt.Sprintf(" (%d times)", count)
	}
	return at, times
}

// Text is the log as lines.
func (l *Log) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Pod %s/%s, node %s\n\n", l.Namespace, l.Pod, l.Node)
	for _, e := range l.Entries {
		text := e.Text
		if e.Reason != "" {
			text = e.Reason + ": " + text
		}
		fmt.Fprintf(&b, "%s  %-9s  %s\n", e.At.UTC().Format("2006-01-02 15:04:05"), e.From, text)
	}
	if len(l.Entries) == 0 {
		b.WriteString("Nothing is known about it.\n")
	}
	if !l.From.IsZero() {
		fmt.Fprintf(&b, "\nThe recording of the node is from %s to %s; Events are kept for an hour unless the cluster is set otherwise.\n",
			l.From.UTC().Format("2006-01-02 15:04:05"), l.To.UTC().Format("15:04:05 UTC"))
	}
	for _, n := range l.Notes {
		fmt.Fprintf(&b, "Note: %s\n", n)
	}
	return b.String()
}
