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

// Canceled reports whether the client canceled the request, by the message of the API server
// (staging/src/k8s.io/apiserver/pkg/endpoints/handlers/finisher of Kubernetes). It was not refused,
// and may have been carried out.
func (e Event) Canceled() bool {
	return e.ResponseStatus.Code == 504 && strings.HasSuffix(e.ResponseStatus.Message, "context canceled")
}

// Size is where the log ends; 0 where there is none.
func Size(path string) (int64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Each calls visit with every response that the log has from an offset on.
func Each(path string, offset int64, visit func(Event)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return err
	} else if info.Size() < offset {
		return fmt.Errorf("%s was rotated: what it said before is in another file", path)
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
