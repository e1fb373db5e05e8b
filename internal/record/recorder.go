package record

import (
	"bytes"
	"compress/flate"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/mbcas/mbcas/internal/delta"
	"github.com/mbcas/mbcas/internal/round"
)

// Limits bound what a recorder holds.
type Limits struct {
	// Keep is how long a minute is kept.
	Keep time.Duration
	// Bytes bound all minutes together, pinned ones included. The oldest are dropped first.
	Bytes int
}

// DefaultLimits hold half an hour of a full node.
var DefaultLimits = Limits{Keep: 30 * time.Minute, Bytes: 8 << 20}

const (
	minute = time.Minute
	// maxRaw ends a minute early: it is held as it is until it ends.
	maxRaw = 1 << 20
	// maxPins is how many incidents are kept, and pinBefore and pinAfter what is kept around each.
	maxPins             = 3
	pinBefore, pinAfter = 5 * time.Minute, 5 * time.Minute
	pinnedShare         = 4 // of the bytes, for minutes that are kept for their pins alone
	flateLevel          = flate.BestSpeed
	maxMinute           = 64 << 20 // of a minute as it is, when it is read
	maxMemory           = 512 << 20
)

// Recorder records the rounds of a node. The loop of the rounds writes; everything else may read meanwhile.
type Recorder struct {
	limits Limits

	mu      sync.Mutex
	minutes []*Minute // the oldest first
	pins    []Pin
	bytes   int
	next    uint64
	open    *writing
	run     string // tells one recorder from another
	gap     string // the reason of the last event, if that was a gap
	spare   []byte // of the last minute, for the next
}

// Minute is a part of a recording that can be replayed alone.
type Minute struct {
	// Seq counts minutes since the recorder began.
	Seq      uint64
	From, To time.Time
	packed   []byte
}

// Bytes is what the minute takes.
func (m *Minute) Bytes() int { return len(m.packed) }

// Pin is an incident that is kept for longer than other minutes.
type Pin struct {
	At time.Time
	// Why is a sentence without names; the pod that it is about stands beside it, so that both can be renamed.
	Why string
	Pod *Name `json:",omitempty"`
	// Last is the last event that is part of it; Recorder.Pin sets it.
	Last time.Time
	// Fault: something went wrong, such as a panic. Other incidents never take its place.
	Fault bool `json:",omitempty"`
}

// writing is the minute that is being recorded. The values are those before: the next is written as what differs.
type writing struct {
	Minute

	w     delta.Writer
	round round.Input
	look  Look
	join  Join
	names []Name
}

// NewRecorder makes an empty recorder.
func NewRecorder(l Limits) *Recorder { return &Recorder{limits: l, run: rand.Text()} }

// Begin is called before each round, and begins a new minute when the last has lasted long enough. It keeps no
// part of the state.
func (r *Recorder) Begin(now time.Time, cfg round.Config, state *round.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.open; o != nil && now.Sub(o.From) < minute && now.Sub(o.From) >= 0 && len(o.w.Bytes) < maxRaw {
		return
	}
	r.close()
	r.next++
	r.open = &writing{Minute: Minute{Seq: r.next, From: now, To: now}}
	r.open.w.Bytes, r.spare = r.spare, nil
	keyframes.Write(&r.open.w, new(Keyframe), &Keyframe{cfg, *state})
}

// Round records a round and its result. in and names are not changed afterwards.
func (r *Recorder) Round(in round.Input, of []Name, out *round.Output) {
	r.add(kindRound, in.Now, of, DigestOf(out), func(o *writing) {
		inputs.Write(&o.w, &o.round, &in)
		o.round = in
	})
}

// Look records a look and its result.
func (r *Recorder) Look(l Look, out *round.Output) {
	r.add(kindLook, l.At, nil, DigestOf(out), func(o *writing) {
		looks.Write(&o.w, &o.look, &l)
		o.look = l
	})
}

// Join records a join and its result.
func (r *Recorder) Join(j Join, of []Name, out *round.Output) {
	r.add(kindJoin, j.At, of, DigestOf(out), func(o *writing) {
		joins.Write(&o.w, &o.join, &j)
		o.join = j
	})
}

// Gap records that no round was run, once for each reason in a row.
func (r *Recorder) Gap(at time.Time, why string) {
	r.mu.Lock()
	known := r.gap == why
	r.mu.Unlock()
	if !known {
		r.add(kindGap, at, nil, 0, func(o *writing) { gaps.Write(&o.w, new(Gap), &Gap{at, why}) })
		r.mu.Lock()
		r.gap = why
		r.mu.Unlock()
	}
}

func (r *Recorder) add(kind uint64, at time.Time, of []Name, digest uint64, write func(*writing)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.open
	r.gap = ""
	if o == nil || len(o.w.Bytes) > 2*maxRaw { // nothing to replay it from, or no round has begun another minute
		return
	}
	whole := o.w
	written := false
	defer func() {
		if !written { // a codec has panicked: what was written before can still be read
			o.w = whole
		}
	}()
	o.w.Uint(kind)
	write(o)
	if kind == kindRound || kind == kindJoin {
		names.Write(&o.w, &o.names, &of)
		o.names = of
	}
	o.w.Uint(digest)
	o.To, written = at, true
}

// Break ends the minute, because the state is another than what the recorded events give: after a panic.
func (r *Recorder) Break() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.close()
}

// String is the incident in words.
func (p Pin) String() string {
	if p.Pod == nil {
		return p.Why
	}
	return fmt.Sprintf("pod %v: %s", p.Pod, p.Why)
}

// Pin keeps the minutes around an incident. One that comes soon after another is part of it, but a fault is part of
// another fault only. Beyond maxPins the oldest that is no fault is given up, or else the oldest.
func (r *Recorder) Pin(p Pin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.pins); n > 0 && p.At.Sub(r.pins[n-1].At) < pinBefore+pinAfter && (r.pins[n-1].Fault || !p.Fault) {
		r.pins[n-1].Last = p.At
		return
	}
	p.Last = p.At
	r.pins = append(r.pins, p)
	if len(r.pins) > maxPins {
		given := max(0, slices.IndexFunc(r.pins, func(p Pin) bool { return !p.Fault }))
		r.pins = slices.Delete(r.pins, given, given+1)
	}
}

// close ends the open minute.
func (r *Recorder) close() {
	o := r.open
	if o == nil {
		return
	}
	r.open = nil
	m := o.Minute
	m.packed = pack(o.w.Bytes)
	r.spare = o.w.Bytes[:0]
	r.minutes = append(r.minutes, &m)
	r.bytes += m.Bytes()
	r.drop(m.To)
}

// drop drops what the limits do not allow: first minutes that are too old and not pinned, then pinned ones beyond their
// part, those of faults last, then the oldest.
func (r *Recorder) drop(now time.Time) {
	old := func(m *Minute) bool { return now.Sub(m.To) > r.limits.Keep }
	r.remove(func(m *Minute) bool { return old(m) && !r.pinned(m, false) })
	for r.oldBytes(old) > r.limits.Bytes/pinnedShare {
		first := slices.IndexFunc(r.minutes, func(m *Minute) bool { return old(m) && !r.pinned(m, true) })
		if first < 0 {
			first = slices.IndexFunc(r.minutes, old)
		}
		r.removeAt(first)
	}
	for r.bytes > r.limits.Bytes && len(r.minutes) > 0 {
		r.removeAt(max(0, slices.IndexFunc(r.minutes, func(m *Minute) bool { return !old(m) })))
	}
}

func (r *Recorder) oldBytes(old func(*Minute) bool) (sum int) {
	for _, m := range r.minutes {
		if old(m) {
			sum += m.Bytes()
		}
	}
	return sum
}

func (r *Recorder) remove(which func(*Minute) bool) {
	for i := len(r.minutes) - 1; i >= 0; i-- {
		if which(r.minutes[i]) {
			r.removeAt(i)
		}
	}
}

func (r *Recorder) removeAt(i int) {
	r.bytes -= r.minutes[i].Bytes()
	r.minutes = slices.Delete(r.minutes, i, i+1)
}

// pinned says whether the minute is near a pin, or near that of a fault.
func (r *Recorder) pinned(m *Minute, fault bool) bool {
	return slices.ContainsFunc(r.pins, func(p Pin) bool {
		return (p.Fault || !fault) && !m.To.Before(p.At.Add(-pinBefore)) && !m.From.After(p.Last.Add(pinAfter))
	})
}

// Held is what the recorder holds.
type Held struct {
	Bytes    int
	From, To time.Time // zero: nothing
}

// Held counts the open minute as it is.
func (r *Recorder) Held() Held {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := Held{Bytes: r.bytes}
	for _, m := range r.minutes[:min(1, len(r.minutes))] {
		h.From = m.From
	}
	if n := len(r.minutes); n > 0 {
		h.To = r.minutes[n-1].To
	}
	if o := r.open; o != nil {
		if h.Bytes, h.To = h.Bytes+len(o.w.Bytes), o.To; h.From.IsZero() {
			h.From = o.From
		}
	}
	return h
}

// WriteTo writes a file with the minutes after one; of the open minute what there is of it.
func (r *Recorder) WriteTo(w io.Writer, about About, after uint64) error {
	r.mu.Lock()
	minutes := slices.DeleteFunc(slices.Clone(r.minutes), func(m *Minute) bool { return m.Seq <= after })
	var open []byte
	var last Minute
	if r.open != nil && r.open.Seq > after {
		last, open = r.open.Minute, slices.Clone(r.open.w.Bytes)
	}
	about.Pins, about.Run = slices.Clone(r.pins), r.run
	r.mu.Unlock()
	if open != nil {
		last.packed = pack(open)
		minutes = append(minutes, &last)
	}
	return writeFile(w, about, minutes)
}

// pack compresses a minute.
func pack(raw []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(raw) / 2)
	w, err := flate.NewWriter(&b, flateLevel)
	if err == nil {
		_, err = w.Write(raw)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil { // a buffer takes everything, and the level is one of flate's
		panic(fmt.Sprintf("compress: %v", err))
	}
	return bytes.Clone(b.Bytes()) // the buffer may be twice as large
}
