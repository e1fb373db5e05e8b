// Package recording hands what the loop of an agent plays to its recorder, and serves what that holds.
//
// Promises:
//   - A fault of the recorder ends the recording and costs no round: TestRecorderFails.
//   - Nodes that become too full, panics, and decreases that harmed a pod are kept for longer: TestPinned, TestPinsHarm.
//   - Readers get what is held, and no more than two of them at once: TestServe.
package recording

import (
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/round"
)

// Feed feeds a recorder, from one goroutine. The zero value records nothing.
type Feed struct {
	To  *record.Recorder
	Log *slog.Logger

	// full and short: in the last round the floors exceeded the supply, and the demand exceeded it by far.
	full, short bool
	// harmed are the pods of the last round that a decrease had harmed; nil: there was no round.
	harmed map[record.Name]bool
}

// farAbove is the demand, as a multiple of the supply, from which a node is kept in the recording for longer.
const farAbove = 1.5

// Begin is called before each round.
func (f *Feed) Begin(now time.Time, cfg round.Config, state *round.State) {
	f.feed(func() { f.To.Begin(now, cfg, state) })
}

// Round records a round, and pins it where the node has become too full.
func (f *Feed) Round(in round.Input, names []record.Name, out *round.Output) {
	f.feed(func() {
		f.To.Round(in, names, out)
		n := out.Node
		full, short := n.FloorsExceedSupply, n.Demand.Cores() > farAbove*n.Supply.Cores()
		switch {
		case full && !f.full:
			f.To.Pin(record.Pin{At: in.Now, Why: "the floors of the pods exceed the supply"})
		case short && !f.short:
			f.To.Pin(record.Pin{At: in.Now, Why: "the pods demand more than 1.5 times the supply"})
		}
		f.full, f.short = full, short
	})
}

// Harmed pins the time at which the controller tells of pods that a decrease has harmed. pods are all of these: they are
// told for a day, so those of the first round are not new.
func (f *Feed) Harmed(at time.Time, pods []record.Name) {
	f.feed(func() {
		harmed := make(map[record.Name]bool, len(pods))
		for _, p := range pods {
			if harmed[p] = true; f.harmed != nil && !f.harmed[p] {
				f.To.Pin(record.Pin{At: at, Why: "it became unhealthy after a decrease of its limit", Pod: &p, Fault: true})
			}
		}
		f.harmed = harmed
	})
}

// Look records a look.
func (f *Feed) Look(l record.Look, out *round.Output) { f.feed(func() { f.To.Look(l, out) }) }

// Join records pods that join between two rounds.
func (f *Feed) Join(j record.Join, names []record.Name, out *round.Output) {
	f.feed(func() { f.To.Join(j, names, out) })
}

// Gap records why no round was run.
func (f *Feed) Gap(at time.Time, why string) { f.feed(func() { f.To.Gap(at, why) }) }

// Panicked begins anew, as the state is another than what the recorded events give, and pins the time.
func (f *Feed) Panicked(at time.Time) {
	f.feed(func() {
		f.To.Break()
		f.To.Pin(record.Pin{At: at, Why: "a round panicked", Fault: true})
	})
}

// feed ends the recording when the recorder panics: the rounds go on without it.
func (f *Feed) feed(record func()) {
	if f.To == nil {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			f.To = nil
			f.Log.Error("the recorder panicked, so nothing is recorded until the agent restarts", "panic", r, "stack", string(debug.Stack()))
		}
	}()
	record()
}

// maxReaders bounds the readers at a time: each has a copy of the open minute.
const maxReaders = 2

// longestRead bounds an answer: it may be 8 MiB, through the API server and a slow line.
const longestRead = time.Minute

// Handler answers with the minutes after the one in the query, or all that are held. Without a recorder it says so.
func Handler(rec *record.Recorder, about record.About) http.HandlerFunc {
	readers := make(chan struct{}, maxReaders)
	return func(w http.ResponseWriter, q *http.Request) {
		after, err := uint64(0), error(nil)
		if text := q.URL.Query().Get("after"); text != "" {
			after, err = strconv.ParseUint(text, 10, 64)
		}
		switch {
		case rec == nil:
			http.Error(w, "this agent records nothing, as it was started with --record=0", http.StatusNotFound)
			return
		case err != nil:
			http.Error(w, "after: want the number of a minute", http.StatusBadRequest)
			return
		}
		select {
		case readers <- struct{}{}:
			defer func() { <-readers }()
		default:
			http.Error(w, "others are reading the recording; try again", http.StatusTooManyRequests)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(longestRead)) // longer than for other answers
		w.Header().Set("Content-Type", "application/octet-stream")
		_ = rec.WriteTo(w, about, after) // fails only when the client has gone
	}
}
