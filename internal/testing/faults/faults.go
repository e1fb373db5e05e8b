// Package faults is an HTTP transport that lets requests go wrong: it loses them or their answers,
// delays them, answers with errors, hangs until the client gives up, cuts watches or holds their
// events back, and ends the process before or after a request. Which request meets which fault is
// scripted, or drawn from a seed.
package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is what happens to a request.
type Kind string

const (
	None        Kind = ""
	LostRequest Kind = "lost-request" // it never arrives
	LostAnswer  Kind = "lost-answer"  // it is carried out, and the client learns nothing
	Hang        Kind = "hang"         // it never arrives, and the client waits for as long as it does
	HangAfter   Kind = "hang-after"   // it is carried out, and the client waits
	Delay       Kind = "delay"        // it arrives late
	Refuse      Kind = "refuse"       // it is answered with Fault.Status
	CrashBefore Kind = "crash-before" // the process ends before it is sent
	CrashAfter  Kind = "crash-after"  // the process ends before its answer arrives
	CutWatch    Kind = "cut-watch"    // the stream of a watch ends after Fault.Events events
	StaleWatch  Kind = "stale-watch"  // the events of a watch come Fault.For late
)

// Kinds are all of them that apply to a single request, with the status codes of Refuse.
var Kinds = []Kind{LostRequest, LostAnswer, Hang, HangAfter, Delay, Refuse, CrashBefore, CrashAfter}

// Statuses are the codes that Refuse is drawn from.
var Statuses = []int{401, 403, 404, 409, 410, 429, 500, 503, 504}

// Fault is what happens to one request. The zero value is none.
type Fault struct {
	Kind   Kind
	Status int           // of Refuse
	For    time.Duration // of Delay, StaleWatch, Hang and HangAfter; the latter two: at most
	Events int           // of CutWatch
}

// String is the fault as Parse reads it.
func (f Fault) String() string {
	switch f.Kind {
	case Refuse:
		return strconv.Itoa(f.Status)
	case Delay, StaleWatch:
		return fmt.Sprintf("%s(%s)", f.Kind, f.For)
	case CutWatch:
		return fmt.Sprintf("%s(%d)", f.Kind, f.Events)
	}
	return string(f.Kind)
}

// Parse reads a fault such as lost-answer, 503, delay(5s) or cut-watch(3).
func Parse(text string) (Fault, error) {
	if code, err := strconv.Atoi(text); err == nil && code >= 400 && code < 600 {
		return Fault{Kind: Refuse, Status: code}, nil
	}
	name, argument, has := strings.Cut(strings.TrimSuffix(text, ")"), "(")
	f := Fault{Kind: Kind(name)}
	var err error
	switch f.Kind {
	case LostRequest, LostAnswer, Hang, HangAfter, CrashBefore, CrashAfter:
		if has {
			err = errors.New("it takes no argument")
		}
	case Delay, StaleWatch:
		f.For, err = time.ParseDuration(argument)
	case CutWatch:
		f.Events, err = strconv.Atoi(argument)
	default:
		err = errors.New("no such fault")
	}
	if err != nil {
		return Fault{}, fmt.Errorf("fault %q: %w", text, err)
	}
	return f, nil
}

// Call is a request as scripts see it.
type Call struct {
	N             int    // how many requests the transport has seen, this one included
	Verb          string // of HTTP
	Resource      string // pods/resize, podallocations/status, leases; "" where it cannot be told
	Name          string
	Watch, DryRun bool
}

// Writes says whether the request may change an object.
func (c Call) Writes() bool { return c.Verb != http.MethodGet && !c.DryRun }

// CallOf reads what a request is about.
func CallOf(q *http.Request) Call {
	c := Call{Verb: q.Method, Watch: q.URL.Query().Get("watch") != "", DryRun: q.URL.Query().Get("dryRun") != ""}
	parts := strings.Split(strings.Trim(q.URL.Path, "/"), "/")
	if len(parts) > 1 && parts[0] == "api" {
		parts = parts[2:]
	} else if len(parts) > 2 && parts[0] == "apis" {
		parts = parts[3:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) > 0 {
		c.Resource = parts[0]
	}
	if len(parts) > 1 {
		c.Name = parts[1]
	}
	if len(parts) > 2 {
		c.Resource += "/" + parts[2]
	}
	return c
}

// Script says what happens to a request.
type Script func(Call) Fault

// Rule is a fault for some requests: those of a verb and a resource ("" for any), from the nth on,
// Times of them (0: all).
type Rule struct {
	Verb, Resource string
	Nth, Times     int
	Fault          Fault
}

// Rules is a script: the first rule that applies counts.
func Rules(rules ...Rule) Script {
	seen := make([]int, len(rules))
	return func(c Call) Fault {
		for i, r := range rules {
			if r.Verb != "" && r.Verb != c.Verb || r.Resource != "" && r.Resource != c.Resource {
				continue
			}
			seen[i]++
			if n := seen[i] - max(1, r.Nth); n >= 0 && (r.Times == 0 || n < r.Times) {
				return r.Fault
			}
		}
		return Fault{}
	}
}

// Random is a script that draws a fault for that share of the requests.
func Random(random *rand.Rand, share float64) Script {
	return func(Call) Fault {
		if random.Float64() >= share {
			return Fault{}
		}
		f := Fault{Kind: Kinds[random.IntN(len(Kinds))], For: time.Duration(1+random.IntN(20)) * time.Second}
		if f.Kind == Refuse {
			f.Status = Statuses[random.IntN(len(Statuses))]
		}
		return f
	}
}

// ErrLost is what the client sees of a lost request or answer.
var ErrLost = errors.New("the connection broke")

// Transport is a connection that fails as its script says.
type Transport struct {
	Next http.RoundTripper
	// Wait lets time pass on the test's clock; nil: on the real one. It ends early with ctx.
	Wait func(ctx context.Context, d time.Duration) error
	// Crash ends the process, as far as the caller's goroutine goes; nil: runtime.Goexit. From then on
	// every request ends in it.
	Crash func()

	mu      sync.Mutex
	script  Script
	calls   []Call
	crashed bool
}

// Play replaces the script; nil: nothing goes wrong.
func (t *Transport) Play(s Script) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.script = s
}

// Calls are the requests so far, also those that were lost.
func (t *Transport) Calls() []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Call(nil), t.calls...)
}

// Crashed says whether the process has ended.
func (t *Transport) Crashed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.crashed
}

// fault notes a request and asks the script.
func (t *Transport) fault(q *http.Request) Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.crashed {
		return Fault{Kind: CrashBefore}
	}
	c := CallOf(q)
	c.N = len(t.calls) + 1
	t.calls = append(t.calls, c)
	if t.script == nil {
		return Fault{}
	}
	return t.script(c)
}

// RoundTrip sends a request, as far as it gets.
func (t *Transport) RoundTrip(q *http.Request) (*http.Response, error) {
	f := t.fault(q)
	ctx := q.Context()
	switch f.Kind {
	case LostRequest:
		return nil, ErrLost
	case Hang:
		return nil, t.hang(ctx, f)
	case Refuse:
		return refusal(q, f.Status), nil
	case CrashBefore:
		return nil, t.crash()
	case Delay:
		if err := t.wait(ctx, f.For); err != nil {
			return nil, err
		}
	}
	response, err := t.Next.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	switch f.Kind {
	case LostAnswer, HangAfter, CrashAfter:
		_ = response.Body.Close() // no answer is read
	case CutWatch:
		response.Body = &stream{Closer: response.Body, lines: bufio.NewReader(response.Body), left: f.Events + 1}
	case StaleWatch:
		response.Body = &stream{Closer: response.Body, lines: bufio.NewReader(response.Body), late: func() error { return t.wait(ctx, f.For) }}
	}
	switch f.Kind {
	case LostAnswer:
		return nil, ErrLost
	case HangAfter:
		return nil, t.hang(ctx, f)
	case CrashAfter:
		return nil, t.crash()
	}
	return response, nil
}

// hang waits until the client gives up, or for as long as the fault lasts.
func (t *Transport) hang(ctx context.Context, f Fault) error {
	d := f.For
	if d == 0 {
		d = time.Hour
	}
	if err := t.wait(ctx, d); err != nil {
		return err
	}
	return ErrLost
}

func (t *Transport) wait(ctx context.Context, d time.Duration) error {
	if t.Wait != nil {
		return t.Wait(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (t *Transport) crash() error {
	t.mu.Lock()
	t.crashed = true
	t.mu.Unlock()
	if t.Crash == nil {
		runtime.Goexit()
	}
	t.Crash()
	return ErrLost
}

// refusal is an answer of the API server with that code.
func refusal(q *http.Request, code int) *http.Response {
	reasons := map[int]metav1.StatusReason{
		401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound,
		409: metav1.StatusReasonConflict, 410: metav1.StatusReasonExpired, 429: metav1.StatusReasonTooManyRequests,
		500: metav1.StatusReasonInternalError, 503: metav1.StatusReasonServiceUnavailable, 504: metav1.StatusReasonTimeout,
	}
	c := CallOf(q)
	kind, _, _ := strings.Cut(c.Resource, "/")
	raw, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reasons[code], Message: fmt.Sprintf("the test answers with %d", code),
		Details: &metav1.StatusDetails{Kind: kind, Name: c.Name},
	})
	if err != nil {
		panic(err) // a Status is strings and numbers
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: q,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(raw)), ContentLength: int64(len(raw)),
	}
}

// stream is the body of a watch, an event a line.
type stream struct {
	io.Closer
	lines *bufio.Reader
	left  int          // one more than the events until it is cut; 0: it is not
	late  func() error // before each event; nil: it is not late
	rest  []byte
}

func (s *stream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		if s.left == 1 {
			return 0, io.ErrUnexpectedEOF
		}
		line, err := s.lines.ReadBytes('\n')
		if len(line) == 0 {
			return 0, err
		}
		if s.left > 0 {
			s.left--
		}
		if s.late != nil {
			if err := s.late(); err != nil {
				return 0, err
			}
		}
		s.rest = line
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}
