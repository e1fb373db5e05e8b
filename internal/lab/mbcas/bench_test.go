package mbcas

import (
	"fmt"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// BenchmarkNode is a full node of 16 cores and 100 pods with bursts and batch pods.
func BenchmarkNode(b *testing.B) {
	var pods []sim.PodSpec
	for i := range 100 {
		s := sim.PodSpec{Name: fmt.Sprintf("p%d", i), Request: 100, Limit: 400, Threads: 4,
			Requests: load.Requests{
				Rate:        load.Burst{Low: 5, High: 30, Start: time.Duration(i) * time.Second / 2, Length: 5 * time.Second, Period: 50 * time.Second},
				ServiceTime: 10 * time.Millisecond, Distribution: load.Exponential,
			},
		}
		if i%20 == 0 {
			s.Requests.Rate, s.Spin = nil, load.Constant(4)
		}
		pods = append(pods, s)
	}
	const length = 60 * time.Second
	for b.Loop() {
		sim.Run(sim.Setup{Machine: sim.Machine{Cores: 16}, Pods: pods, Length: length, Seed: 1}, New(DefaultConfig()))
	}
	b.ReportMetric(length.Seconds()*float64(b.N)/b.Elapsed().Seconds(), "sim-s/s")
}
