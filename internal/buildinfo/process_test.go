package buildinfo

import (
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestProcess: what rules and dashboards read of a process is there, and nothing of its network or virtual memory.
func TestProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("optional: a process tells of itself in /proc of Linux")
	}
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(Process()); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range families {
		found[f.GetName()] = true
		if strings.Contains(f.GetName(), "network") || strings.Contains(f.GetName(), "virtual") {
			t.Errorf("%s is served", f.GetName())
		}
	}
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds",
		"process_max_fds", "process_start_time_seconds"} {
		if !found[name] {
			t.Errorf("%s is missing", name)
		}
	}
}
