//go:build linux

package weights

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/internal/weights/wire"
)

// cpuTime is that of the process so far.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSecond is what a second of a full node costs: the message about 110 pods, of which every tenth is idle, its
// answer, and a look at a third of the pods' values, in real cgroups. 3.5 ms are 0.35 % of a core.
func BenchmarkSecond(b *testing.B) {
	c := cgroups.NewReal(b)
	req := wire.Request{}
	for i := range 110 {
		c.AddPod(cgroups.Burstable, uid(i))
		req.Settings = append(req.Settings, wire.Setting{UID: uid(i), Idle: i%10 == 0, Weight: 50})
	}
	tree, err := OpenTree(filepath.Join(c.Tops[0], c.Kubepods()))
	if err != nil {
		b.Fatal(err)
	}
	defer tree.Close()
	record, err := NewRecord(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer record.Close()
	k, err := NewKeeper(tree, record, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	now := at(0)
	var line strings.Builder
	begin := cpuTime(b)
	defer func() { b.ReportMetric(float64((cpuTime(b)-begin).Microseconds())/float64(b.N), "cpu-us/op") }()
	var in strings.Reader
	lines := wire.NewReader(&in)
	for b.Loop() {
		line.Reset()
		if err := wire.Write(&line, req); err != nil {
			b.Fatal(err)
		}
		in.Reset(line.String())
		lines.Reset(&in)
		got, err := wire.ReadRequest(lines)
		if err != nil {
			b.Fatal(err)
		}
		now = now.Add(time.Second)
		reply := k.Apply(now, got)
		if reply.Idle+reply.Weighted != len(req.Settings) {
			b.Fatalf("reply %+v, want all pods", reply)
		}
		line.Reset()
		if err := wire.Write(&line, reply); err != nil {
			b.Fatal(err)
		}
	}
	if err := k.RestoreAll(); err != nil {
		b.Fatal(err)
	}
}
