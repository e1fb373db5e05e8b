// Package audit reads the requests that the API server got from its audit log.
//
// Promises:
//   - A line that is still being written is left out, and a log that is shorter than it was is an error: TestEach.
//   - A rotated log is read on from the file with its beginning, and is an error once that is gone: TestRotated.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Event is one request and its response. What the local cluster records, and of what the bodies, is in its
// audit-policy.yaml.
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

// Canceled reports whether the client canceled the request, by the message of the API server
// (staging/src/k8s.io/apiserver/pkg/endpoints/handlers/finisher of Kubernetes). It was not refused,
// and may have been carried out.
func (e Event) Canceled() bool {
	return e.ResponseStatus.Code == 504 && strings.HasSuffix(e.ResponseStatus.Message, "context canceled")
}

// Log is the requests of an audit log from an offset on.
type Log struct {
	path   string
	offset int64
	file   fs.FileInfo // what offset is in; nil: the file that has the path
}

// Whole is the log from its beginning on, without what was rotated away before.
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
	return Log{path, info.Size(), info}, nil
}

// Each calls visit with every response of the log so far.
func (l Log) Each(visit func(Event)) error {
	paths, err := l.paths()
	if err != nil {
		return err
	}
	offset := l.offset
	for _, path := range paths {
		if err := each(path, offset, visit); err != nil {
			return err
		}
		offset = 0
	}
	return nil
}

// paths are the file with the offset and those after it. The API server renames a file that is full: it puts the time
// before its ending (gopkg.in/natefinch/lumberjack.v2).
func (l Log) paths() ([]string, error) {
	ending := filepath.Ext(l.path)
	all, err := filepath.Glob(strings.TrimSuffix(l.path, ending) + "-*" + ending)
	if err != nil {
		return nil, err
	}
	slices.Sort(all)
	all = append(all, l.path)
	if l.file == nil {
		return all[len(all)-1:], nil
	}
	for i, path := range all {
		if info, err := os.Stat(path); err == nil && os.SameFile(info, l.file) {
			return all[i:], nil
		}
	}
	return nil, fmt.Errorf("%s was rotated, and the file with what it said before is gone", l.path)
}

// each calls visit with every response of a file from an offset on.
func each(path string, offset int64, visit func(Event)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err != nil || end < offset {
		return errors.Join(err, fmt.Errorf("%s is shorter than it was", path))
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
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
			return fmt.Errorf("%s: %w", path, err)
		}
		if e.Stage == "ResponseComplete" {
			visit(e)
		}
	}
}
