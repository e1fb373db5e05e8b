//go:build linux

package machine

import "testing"

func TestCPUTicks(t *testing.T) {
	busy, idle := cpuTicks("cpu  10 1 20 1000 5 2 3 4 99 99\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if busy != 40 || idle != 1005 {
		t.Errorf("busy %d, idle %d; want 40, 1005", busy, idle)
	}
}
