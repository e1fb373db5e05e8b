// Package wire is what the agent and mbcas-weights say to each other, over a Unix socket in a volume of their pod: each
// message is one line of JSON. The agent sends all settings of its node with each round, and mbcas-weights answers each
// message with what it refused.
package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Bounds of what is read from the other side.
const (
	// MaxBytes is the length of the longest message, with its line break.
	MaxBytes = 256 << 10
	// MaxSettings is how many pods one message may name. The kubelet runs fewer on a node.
	MaxSettings = 1024
	// MinWeight and MaxWeight are those of cpu.weight in cgroup v2.
	MinWeight, MaxWeight = 1, 10000
)

// AgentTimeout is the longest time without a message of the agent. After it mbcas-weights ends the connection and
// restores every pod.
const AgentTimeout = 10 * time.Second

// Setting is what one pod's own cgroup shall have.
type Setting struct {
	// UID is the pod's, as the API server writes it.
	UID string `json:"uid"`
	// Idle puts the pod into the kernel's idle class.
	Idle bool `json:"idle,omitempty"`
	// Weight is a cpu.weight of cgroup v2, from 1 to 10000. It counts while the pod is not idle.
	Weight uint64 `json:"weight"`
	// Resizing says that MBCAS resizes the pod's limits, with which the kubelet writes the pod's weight, too.
	Resizing bool `json:"resizing,omitempty"`
}

// Request names every pod that has a setting. A pod that it does not name gets its original values back.
type Request struct {
	Settings []Setting `json:"settings"`
}

// Refusal says why a pod has another value than its setting.
type Refusal string

// The refusals.
const (
	// Invalid: the UID is not one that the API server gives, or the weight is out of bounds.
	Invalid Refusal = "Invalid"
	// NotFound: no pod of this UID is in the Burstable or BestEffort class below kubepods.
	NotFound Refusal = "NotFound"
	// NotRecorded: the original values could not be written to the record, so nothing was changed.
	NotRecorded Refusal = "NotRecorded"
	// WriteFailed: the kernel refused a value.
	WriteFailed Refusal = "WriteFailed"
	// Contested: another writer changed the values again and again, so they are left as they are.
	Contested Refusal = "Contested"
)

// Refusals are all refusals, in order.
func Refusals() []Refusal { return []Refusal{Invalid, NotFound, NotRecorded, WriteFailed, Contested} }

// Refused is a setting that was not carried out.
type Refused struct {
	UID string  `json:"uid"`
	Why Refusal `json:"why"`
}

// Reply is the answer to a Request.
type Reply struct {
	// Idle and Weighted count the pods that have their setting, by class.
	Idle     int `json:"idle"`
	Weighted int `json:"weighted"`
	// Rewrites counts the values that another writer changed and that were set again, since the program started.
	Rewrites uint64    `json:"rewrites"`
	Refused  []Refused `json:"refused,omitempty"`
}

// ErrTooLong is a message of more than MaxBytes.
var ErrTooLong = fmt.Errorf("message of more than %d bytes: want one line of JSON", MaxBytes)

// NewReader reads lines of up to MaxBytes.
func NewReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, MaxBytes) }

// Read reads the next message into v. It returns io.EOF where the other side has ended, and an error about anything but
// one line of the JSON of v.
func Read(r *bufio.Reader, v any) error {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return ErrTooLong
	case err != nil:
		return err
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("message of %d bytes: %w", len(line), err)
	}
	if d.InputOffset() < int64(len(bytes.TrimRight(line, " \t\r\n"))) {
		return fmt.Errorf("message of %d bytes: more than one value in a line", len(line))
	}
	return nil
}

// ReadRequest reads the next Request, and refuses one of more than MaxSettings.
func ReadRequest(r *bufio.Reader) (Request, error) {
	var req Request
	if err := Read(r, &req); err != nil {
		return Request{}, err
	}
	if n := len(req.Settings); n > MaxSettings {
		return Request{}, fmt.Errorf("message with %d settings: want at most %d", n, MaxSettings)
	}
	return req, nil
}

// Write writes v as one message.
func Write(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
