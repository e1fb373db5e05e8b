package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/cpu"
)

// quota is the CPU limit that the kernel enforces on the pod's first container: its CFS quota by its period,
// from cgroup v1 or v2 files. 0: none.
func quota(t *testing.T, pod *corev1.Pod) cpu.Milli {
	t.Helper()
	if len(pod.Status.ContainerStatuses) == 0 {
		t.Fatalf("pod %s has no container", pod.Name)
	}
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	for _, mount := range []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup"} {
		dir := find(mount, id)
		if dir == "" {
			continue
		}
		if q, ok := number(dir, "cpu.cfs_quota_us", 0); ok {
			period, _ := number(dir, "cpu.cfs_period_us", 0)
			return ratio(q, period)
		}
		if q, ok := number(dir, "cpu.max", 0); ok {
			period, _ := number(dir, "cpu.max", 1)
			return ratio(q, period)
		}
	}
	t.Fatalf("no cgroup of container %s of pod %s", id, pod.Name)
	return 0
}

func ratio(quota, period int64) cpu.Milli {
	if quota <= 0 || period <= 0 {
		return 0
	}
	return cpu.FromUsage(time.Duration(quota), time.Duration(period))
}

// find is the folder below mount whose name holds the container's ID.
func find(mount, id string) (found string) {
	_ = filepath.WalkDir(mount, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // it vanished
		}
		if d.IsDir() && strings.Contains(d.Name(), id) {
			found = path
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// number is one field of a file; "max" reads as -1.
func number(dir, file string, field int) (int64, bool) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(text))
	if field >= len(fields) {
		return 0, false
	}
	if fields[field] == "max" {
		return -1, true
	}
	n, err := strconv.ParseInt(fields[field], 10, 64)
	return n, err == nil
}

// write is one line of the audit log about pods/resize.
type write struct {
	User      struct{ Username string }
	Stage     string
	ObjectRef struct{ Namespace, Name, Subresource string }
	Status    struct{ Code int } `json:"responseStatus"`
	Request   json.RawMessage    `json:"requestObject"`
	Start     time.Time          `json:"requestReceivedTimestamp"`
}

// resizes are the resizes that the API server has accepted in the namespace so far, by pod. What a dry run asks
// is no resize.
func (s *suite) resizes(t *testing.T, namespace string) map[string][]write {
	t.Helper()
	text, err := os.ReadFile(s.audit)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]write{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Bytes()
		if !bytes.Contains(line, []byte(`"subresource":"resize"`)) || bytes.Contains(line, []byte("dryRun")) {
			continue
		}
		var w write
		if err := json.Unmarshal(line, &w); err != nil {
			continue // the last line may not be whole yet
		}
		if w.Stage == "ResponseComplete" && w.Status.Code == 200 && w.ObjectRef.Namespace == namespace {
			found[w.ObjectRef.Name] = append(found[w.ObjectRef.Name], w)
		}
	}
	return found
}

// count is the number of resizes in the namespace so far.
func (s *suite) count(t *testing.T, namespace string) (n int) {
	t.Helper()
	for _, w := range s.resizes(t, namespace) {
		n += len(w)
	}
	return n
}
