// Package audit counts the resizes in the API server's audit log: what was really asked of it, by
// whomever.
//
// Promises:
//   - Dry runs are no resizes, and refused ones are failures: TestCount.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Count is what was asked for in the demo's namespaces.
type Count struct {
	Resizes  int // accepted
	Failed   int // refused
	Stale    int // refused because the pod had changed in between; tried again from its new state
	DryRuns  int
	Reasons  map[string]int // messages of the failed ones
	Accounts map[string]int // of the accepted ones
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

// Since counts what the log says from an offset on. A log that is shorter was rotated, and counts from
// its begin.
func Since(path string, offset int64, namespaces []string) (Count, error) {
	f, err := os.Open(path)
	if err != nil {
		return Count{}, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return Count{}, err
	} else if info.Size() < offset {
		offset = 0
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return Count{}, err
	}
	return read(f, namespaces)
}

type event struct {
	Stage, RequestURI string
	User              struct{ Username string }
	ObjectRef         struct{ Namespace, Name, Subresource, Resource string }
	ResponseStatus    struct {
		Code    int
		Message string
	}
}

func read(r io.Reader, namespaces []string) (Count, error) {
	c := Count{Reasons: map[string]int{}, Accounts: map[string]int{}}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return c, nil // what has no end is still being written
		}
		if err != nil {
			return c, err
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return c, err
		}
		if e.Stage == "ResponseComplete" && e.ObjectRef.Resource == "pods" && e.ObjectRef.Subresource == "resize" && slices.Contains(namespaces, e.ObjectRef.Namespace) {
			c.add(e)
		}
	}
}

func (c *Count) add(e event) {
	switch code := e.ResponseStatus.Code; {
	case strings.Contains(e.RequestURI, "dryRun="):
		c.DryRuns++
	case code < 300:
		c.Resizes++
		c.Accounts[e.User.Username]++
	case code == 409:
		c.Stale++
	default:
		c.Failed++
		c.Reasons[e.ResponseStatus.Message]++
	}
}
