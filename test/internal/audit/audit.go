// Package audit reads the requests that the API server got from its audit log.
//
// Promises:
//   - A line that is still being written is left out, and a rotated log is an error: TestEach.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Event is one request and its response. The local cluster's audit policy records resizes with
// their bodies, and other writes of pods.
type Event struct {
	Stage, Verb, RequestURI string
	User                    struct{ Username string }
	ObjectRef               struct{ Namespace, Name, Subresource, Resource string }
	ResponseStatus          struct {
		Code    int
		Message string
	}
	RequestObject json.RawMessage
	Received      time.Time `json:"requestReceivedTimestamp"`
	Ended         time.Time `json:"stageTimestamp"`
}

// Of reports whether the request was for pods, or for this subresource of theirs.
func (e Event) Of(subresource string) bool {
	return e.ObjectRef.Resource == "pods" && e.ObjectRef.Subresource == subresource
}

// DryRun reports whether it was a dry run.
func (e Event) DryRun() bool { return strings.Contains(e.RequestURI, "dryRun=") }

// OverQuota reports whether a ResourceQuota refused it, by the message of the API server
// (staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota of Kubernetes).
func (e Event) OverQuota() bool {
	return e.ResponseStatus.Code == 403 && strings.Contains(e.ResponseStatus.Message, "exceeded quota")
}

// Log is the requests of an audit log from an offset on.
type Log struct {
	path   string
	offset int64
}

// Whole is the log from its beginning on.
func Whole(path string) (Log, error) {
	_, err := os.Stat(path)
	return Log{path: path}, err
}

// From is the log from its present end on, also where it does not exist yet.
func From(path string) (Log, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Log{path: path}, nil
	}
	if err != nil {
		return Log{}, err
	}
	return Log{path, info.Size()}, nil
}

// Each calls visit with every response of the log so far.
func (l Log) Each(visit func(Event)) error {
	f, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err != nil || end < l.offset {
		return errors.Join(err, fmt.Errorf("%s was rotated: what it said before is in another file", l.path))
	}
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // what has no end is still being written
		}
		if err != nil {
			return err
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%s: %w", l.path, err)
		}
		if e.Stage == "ResponseComplete" {
			visit(e)
		}
	}
}
