package record

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestRename: a renamed recording has the same events under other names, the given ones alone, also when it was written
// and read, and the original stays.
func TestRename(t *testing.T) {
	r := NewRecorder(Limits{Keep: time.Hour, Bytes: 1 << 30})
	input := func(i int) (round.Input, []Name) {
		now := t0.Add(time.Duration(i) * time.Second)
		in := round.Input{Now: now, Node: round.Node{Capacity: 4000, Allocatable: 4000}}
		var of []Name
		for _, name := range []string{"cart", "batch"}[:1+i%2] { // pods come and go
			c := demand.Container{Name: "app-of-" + name, ID: "runs-" + name, Request: 100, Declared: 200, Limit: 200}
			in.Pods = append(in.Pods, round.PodInput{Pod: demand.Pod{UID: "uid-of-" + name, Containers: []demand.Container{c}}})
			in.Sample.Pods = append(in.Sample.Pods, kernel.PodSample{Pod: "uid-of-" + name, Containers: []kernel.Group{{ID: c.ID, At: now}}})
			of = append(of, Name{"secret-shop", "secret-" + name})
		}
		return in, of
	}
	var state round.State
	for i := range 130 {
		in, of := input(i)
		r.Begin(in.Now, round.DefaultConfig(), &state)
		var out round.Output
		state, out = round.Run(round.DefaultConfig(), state, in)
		r.Round(in, of, &out)
	}
	r.Gap(t0.Add(time.Hour), "the private thing has panicked")
	gone := Name{"secret-shop", "secret-gone"} // no minute has it any more
	r.Pin(Pin{At: t0.Add(time.Hour), Why: "the private thing became unhealthy", Pod: &gone, Fault: true})
	var b bytes.Buffer
	must.Succeed(t, r.WriteTo(&b, About{Node: "secret-node"}, 0))
	rec, _ := opened(t, b.Bytes())
	given := map[string]string{}
	name := func(s string) string {
		if strings.HasPrefix(s, "new") {
			t.Errorf("%q is renamed again", s)
		}
		if given[s] == "" {
			given[s] = fmt.Sprintf("new%d", len(given))
		}
		return given[s]
	}
	renamed, err := rec.Rename(name, func(s string) string { return strings.ReplaceAll(s, "private thing", "pod") })
	must.Succeed(t, err)
	b.Reset()
	must.Succeed(t, renamed.Write(&b))
	if renamed, err = Open(&b); err != nil || !renamed.About.Anonymized || len(renamed.Minutes) != len(rec.Minutes) {
		t.Fatalf("%v, %+v", err, renamed)
	}
	if pin := renamed.About.Pins[0]; pin.Why != "the pod became unhealthy" || pin.Pod.Namespace != given["secret-shop"] ||
		pin.Pod.Name != given["secret-gone"] || *rec.About.Pins[0].Pod != gone {
		t.Errorf("the pin is %+v of %v, that of the original is of %v", pin, pin.Pod, rec.About.Pins[0].Pod)
	}
	delete(given, gone.Name) // the events lack it
	was, states := texts(t, rec)
	is, renamedStates := texts(t, renamed)
	for s, to := range given {
		if !strings.Contains(was, s) || strings.Contains(is, s) {
			t.Errorf("%q is in the renamed recording, or was not in the original", s)
		}
		was = strings.ReplaceAll(was, s, to)
	}
	was = strings.ReplaceAll(was, "private thing", "pod")
	if was != is || !strings.Contains(is, "the pod has panicked") {
		t.Errorf("the events are others, of %d and %d bytes", len(was), len(is))
	}
	for _, s := range []string{"secret", "uid-of", "runs-", "app-of"} {
		if strings.Contains(is, s) || strings.Contains(renamedStates, s) {
			t.Errorf("%q is still there", s)
		}
	}
	if !strings.Contains(states, "uid-of-batch") {
		t.Error("the states of the original have no names")
	}
	if again, _ := texts(t, rec); !strings.Contains(again, "secret-node") || !strings.Contains(again, "uid-of-batch") {
		t.Error("the original has changed")
	}
}

// texts are the events of a recording and the states that its minutes begin with, as text.
func texts(t *testing.T, rec *Recording) (events, states string) {
	t.Helper()
	var e, s strings.Builder
	fmt.Fprintf(&e, "%s\n", rec.About.Node)
	for _, m := range rec.Minutes {
		fmt.Fprintln(&e, m.Seq, m.From, m.To)
		err := m.Read(func(k *Keyframe) error { fmt.Fprintf(&s, "%+v\n", k.State); return nil }, func(event *Event) error {
			switch {
			case event.Round != nil:
				fmt.Fprintf(&e, "%+v %+v %x\n", *event.Round, event.Names, event.Digest)
			case event.Gap != nil:
				fmt.Fprintf(&e, "%+v\n", *event.Gap)
			}
			return nil
		})
		must.Succeed(t, err)
	}
	return e.String(), s.String()
}
