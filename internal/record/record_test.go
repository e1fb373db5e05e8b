package record

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/must"
)

var t0 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// node is a node whose rounds are recorded.
type node struct {
	to    *Recorder
	state round.State
	cfg   round.Config
	pods  []round.PodInput
	names []Name
	// written are the events in order.
	written []Event
}

func newNode(l Limits, pods int) *node {
	n := &node{to: NewRecorder(l), cfg: round.DefaultConfig()}
	for i := range pods {
		uid := fmt.Sprintf("pod-%d", i)
		c := demand.Container{Name: "app", ID: uid + "-app", Request: 100, Declared: 500, Limit: 500}.Within(0, 4000)
		n.pods = append(n.pods, round.PodInput{Pod: demand.Pod{UID: uid, Budget: 100, Containers: []demand.Container{c}}})
		n.names = append(n.names, Name{"shop", uid})
	}
	return n
}

// round runs and records a round at a time of the first.
func (n *node) round(at time.Duration) {
	in := round.Input{Now: t0.Add(at), Node: round.Node{Capacity: 4000, Allocatable: 4000}, Pods: n.pods, Sample: n.sample(at)}
	n.to.Begin(in.Now, n.cfg, &n.state)
	var out round.Output
	n.state, out = round.Run(n.cfg, n.state, in)
	n.to.Round(in, n.names, &out)
	n.written = append(n.written, Event{Round: &in, Names: n.names, Digest: DigestOf(&out)})
}

func (n *node) sample(at time.Duration) kernel.Sample {
	now := t0.Add(at)
	s := kernel.Sample{Node: kernel.NodeSample{
		At: now, Usage: kernel.KnownTotal(at * 3), Kubepods: kernel.KnownTotal(at * 2), Idle: kernel.KnownTotal(at),
	}}
	for i, p := range n.pods {
		s.Pods = append(s.Pods, kernel.PodSample{Pod: p.UID, Containers: []kernel.Group{{
			ID: p.UID + "-app", Found: true, At: now.Add(time.Duration(i) * 3 * time.Microsecond),
			Stat: kernel.Stat{Usage: at / time.Duration(2+i), Periods: uint64(at / (100 * time.Millisecond)), Throttled: uint64(at / time.Second)},
		}}})
	}
	return s
}

func (n *node) file(t *testing.T, after uint64) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Succeed(t, n.to.WriteTo(&b, About{Node: "node-1", Version: "v1", Arch: "amd64"}, after))
	return b.Bytes()
}

// opened opens a file, and collects its events.
func opened(t *testing.T, file []byte) (rec *Recording, events []Event) {
	t.Helper()
	rec, err := Open(bytes.NewReader(file))
	must.Succeed(t, err)
	return rec, eventsOf(t, rec)
}

func eventsOf(t *testing.T, rec *Recording) (events []Event) {
	t.Helper()
	for _, m := range rec.Minutes {
		err := m.Read(func(k *Keyframe) error {
			if k.Config != round.DefaultConfig() {
				t.Errorf("minute %d has another config", m.Seq)
			}
			return nil
		}, func(e *Event) error { events = append(events, *e); return nil })
		must.Succeed(t, err)
	}
	return events
}

// TestWriteAndRead: each kind of event is read back as it was recorded, in order, from minutes with settings and state;
// a reader that has some minutes gets the others.
func TestWriteAndRead(t *testing.T) {
	n := newNode(DefaultLimits, 3)
	for i := range 130 {
		n.round(time.Duration(i) * time.Second)
		if i%10 == 5 {
			l := Look{At: t0.Add(time.Duration(i)*time.Second + 200*time.Millisecond), Sample: n.sample(time.Duration(i) * time.Second)}
			out := round.Output{Watch: []int{i}}
			n.to.Look(l, &out)
			n.written = append(n.written, Event{Look: &l, Digest: DigestOf(&out)})
		}
	}
	j := Join{At: t0.Add(130 * time.Second), Pods: n.pods[:1], Sample: n.sample(130 * time.Second)}
	n.to.Join(j, n.names[:1], &round.Output{})
	n.written = append(n.written, Event{Join: &j, Names: n.names[:1], Digest: DigestOf(&round.Output{})})
	n.to.Gap(t0.Add(131*time.Second), "waiting for the API server")
	n.written = append(n.written, Event{Gap: &Gap{t0.Add(131 * time.Second), "waiting for the API server"}})

	rec, got := opened(t, n.file(t, 0))
	if len(rec.Minutes) != 3 || rec.About.Node != "node-1" || !rec.Minutes[0].From.Equal(t0) {
		t.Errorf("%d minutes of %+v, the first from %v", len(rec.Minutes), rec.About, rec.Minutes[0].From)
	}
	if diff := cmp.Diff(n.written, got); diff != "" {
		t.Errorf("events (-recorded +read):\n%s", diff)
	}
	if later, events := opened(t, n.file(t, 2)); len(later.Minutes) != 1 || later.Minutes[0].Seq != 3 || len(events) >= len(got) {
		t.Errorf("after minute 2 there are %d minutes with %d events", len(later.Minutes), len(events))
	}
	if h := n.to.Held(); !h.From.Equal(t0) || !h.To.Equal(t0.Add(131*time.Second)) || h.Bytes == 0 {
		t.Errorf("holds %+v", h)
	}
}

// rounds runs a round every ten seconds, up to a second of the recording, and does what is to be done then.
func (n *node) rounds(to int, do func(second int, at time.Time)) {
	for second := 0; second < to; second += 10 {
		at := time.Duration(second) * time.Second
		n.round(at)
		do(second, t0.Add(at))
	}
}

// TestBounds: minutes beyond the time or the bytes are dropped, the oldest first, and what is left can be read.
func TestBounds(t *testing.T) {
	n := newNode(Limits{Keep: 10 * time.Minute, Bytes: 1 << 20}, 2)
	n.rounds(1800, func(int, time.Time) {})
	if h := n.to.Held(); h.To.Sub(h.From) > 12*time.Minute || h.To.Sub(h.From) < 10*time.Minute {
		t.Errorf("holds %v", h.To.Sub(h.From))
	}
	tight := newNode(Limits{Keep: time.Hour, Bytes: 15_000}, 20)
	tight.rounds(1800, func(second int, _ time.Time) {
		if second%60 == 0 && tight.to.bytes > 15_000 {
			t.Fatalf("%d bytes after %d s", tight.to.bytes, second)
		}
	})
	if _, events := opened(t, tight.file(t, 0)); len(events) < 12 || len(events) > 120 {
		t.Errorf("%d events are left", len(events))
	}
}

// TestGaps: a day without rounds is told once for each reason in a row, and takes next to nothing.
func TestGaps(t *testing.T) {
	n := newNode(DefaultLimits, 2)
	n.round(0)
	before := n.to.Held().Bytes
	for second := range 86_400 {
		why := "waiting for the API server"
		if second >= 80_000 {
			why = "the node reports no allocatable CPU yet"
		}
		n.to.Gap(t0.Add(time.Duration(second)*time.Second), why)
	}
	if grown := n.to.Held().Bytes - before; grown > 200 {
		t.Errorf("a day without rounds takes %d bytes", grown)
	}
	n.round(24 * time.Hour)
	n.to.Gap(t0.Add(25*time.Hour), "the node reports no allocatable CPU yet")
	_, events := opened(t, n.file(t, 0))
	if gaps := slices.DeleteFunc(events, func(e Event) bool { return e.Gap == nil }); len(gaps) != 3 {
		t.Errorf("%d gaps are told, want 3: two reasons, and one again after a round", len(gaps))
	}
}

// checkPins compares what the pins of a recording say, and which seconds it holds.
func (n *node) checkPins(t *testing.T, why []string, held map[int]bool) {
	t.Helper()
	rec, _ := opened(t, n.file(t, 0))
	var got []string
	for _, p := range rec.About.Pins {
		got = append(got, p.Why)
	}
	if !slices.Equal(got, why) {
		t.Errorf("pins %v, want %v", got, why)
	}
	for second, want := range held {
		at := t0.Add(time.Duration(second) * time.Second)
		if got := slices.ContainsFunc(rec.Minutes, func(m *Minute) bool { return !at.Before(m.From) && !at.After(m.To) }); got != want {
			t.Errorf("second %d is held: %v, want %v", second, got, want)
		}
	}
}

// limit gives the recorder another bound, and has it drop what is beyond.
func (n *node) limit(bytes int) {
	n.to.mu.Lock()
	defer n.to.mu.Unlock()
	n.to.limits.Bytes = bytes
	n.to.drop(t0.Add(4 * time.Hour))
}

// TestPins: the minutes around an incident are kept when others are dropped for their age, those of the last incidents
// alone, and within a part of the bytes.
func TestPins(t *testing.T) {
	n := newNode(Limits{Keep: 10 * time.Minute, Bytes: 1 << 20}, 2)
	at := map[int]string{600: "first", 660: "soon after", 3600: "second", 7200: "third", 10_800: "fourth"}
	n.rounds(14_400, func(second int, now time.Time) {
		if why := at[second]; why != "" {
			n.to.Pin(Pin{At: now, Why: why})
		}
	})
	last := []string{"second", "third", "fourth"}
	n.checkPins(t, last, map[int]bool{
		600: false, 2000: false, 3300: true, 3600: true, 3890: true, 4300: false, 10_800: true, 14_390: true,
	})
	n.limit(4 * n.to.minutes[0].Bytes()) // pins may take a quarter
	n.checkPins(t, last, map[int]bool{14_330: true, 14_390: true})
	if minutes := len(n.to.minutes); minutes > 4 {
		t.Errorf("%d minutes are left of few bytes", minutes)
	}
}

// TestFaultPins: a fault outlasts any number of other incidents, also where those fill the part of the bytes that pins
// have, and is told although another incident was just before; what belongs to an incident has its minutes after, too.
func TestFaultPins(t *testing.T) {
	n := newNode(Limits{Keep: 10 * time.Minute, Bytes: 1 << 30}, 2)
	faults := map[int]string{2000: "panic", 2400: "another panic"}
	n.rounds(14_400, func(second int, now time.Time) {
		if second%1200 == 1190 || second == 1950 {
			n.to.Pin(Pin{At: now, Why: "overload"})
		}
		if why := faults[second]; why != "" {
			n.to.Pin(Pin{At: now, Why: why, Fault: true})
		}
	})
	pins := []string{"panic", "overload", "overload"}
	n.checkPins(t, pins, map[int]bool{
		1650: false, 1720: true, 2000: true, 2400: true, 2690: true, 2790: false, 8000: false, 13_190: true,
	})
	n.limit(pinnedShare * 20 * n.to.minutes[0].Bytes()) // the window of the fault takes 18, and that of an overload 11
	n.checkPins(t, pins, map[int]bool{2000: true, 12_000: false})
}

// TestDamage: a file that is cut or changed at any byte gives an error with an offset, or the minutes before.
func TestDamage(t *testing.T) {
	n := newNode(DefaultLimits, 2)
	n.rounds(150, func(int, time.Time) {})
	file := n.file(t, 0)
	whole, _ := opened(t, file)
	for at := range file {
		rec, err := Open(bytes.NewReader(file[:at]))
		if err == nil && len(rec.Minutes) == len(whole.Minutes) {
			t.Fatalf("cut at %d of %d: nothing is missing", at, len(file))
		}
		var d *Damage
		if err != nil && (!errors.As(err, &d) || d.Offset > int64(at)) {
			t.Fatalf("cut at %d: %v", at, err)
		}
		changed := slices.Clone(file)
		changed[at] ^= 0x40
		rec, err = Open(bytes.NewReader(changed))
		if err == nil {
			t.Fatalf("a change of byte %d is not noticed", at)
		}
		if rec != nil && rec.About.Schema == schemaText() {
			eventsOf(t, rec)
		}
	}
	if _, err := Open(strings.NewReader("PK\x03\x04")); err == nil || !strings.Contains(err.Error(), "does not begin with MBR1") {
		t.Errorf("another kind of file: %v", err)
	}
	other := bytes.Replace(file, []byte(schemaText()), []byte("0123456789abcdef"), 1)
	if _, err := Open(bytes.NewReader(fixSums(other))); !errors.Is(err, ErrOtherSchema) {
		t.Errorf("another schema: %v", err)
	}
}

// fixSums writes the checksum of the first part anew.
func fixSums(file []byte) []byte {
	var b bytes.Buffer
	b.WriteString(magic)
	n := int(file[len(magic)+1]) | int(file[len(magic)+2])<<8
	if err := writeChunk(&b, chunkAbout, file[len(magic)+5:len(magic)+5+n]); err != nil {
		panic(err)
	}
	return append(b.Bytes(), file[b.Len():]...)
}

// FuzzOpen: no file costs more than an error.
func FuzzOpen(f *testing.F) {
	n := newNode(DefaultLimits, 2)
	for i := range 3 {
		n.round(time.Duration(i) * time.Second)
	}
	var b bytes.Buffer
	must.Succeed(f, n.to.WriteTo(&b, About{}, 0))
	f.Add(b.Bytes(), []byte(nil))
	f.Add([]byte(magic), n.to.open.w.Bytes)
	f.Fuzz(func(_ *testing.T, file, raw []byte) {
		rec, err := Open(bytes.NewReader(file))
		if err == nil {
			rec.Minutes = append(rec.Minutes, &Minute{packed: pack(raw)})
			for _, m := range rec.Minutes {
				_ = m.Read(func(*Keyframe) error { return nil }, func(*Event) error { return nil })
			}
		}
	})
}
