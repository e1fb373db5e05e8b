//go:build linux

package kernelrun

import (
	"fmt"
	"runtime"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Case is one row of the table.
type Case struct {
	Name  string
	Setup sim.Setup
}

// Cases are a service of 0.6 cores beside a batch pod with four threads on two cores: the batch pod
// with ever lower limits, with equal requests and with misleading ones; the service alone; and the
// service itself with a static limit. On a machine with more cores there is as much more of both.
func Cases(length time.Duration, seed uint64) []Case {
	even, odd := [2]cpu.Milli{500, 500}, [2]cpu.Milli{125, 1000}
	cases := []Case{{"alone", duel(even, 0, 0, 0, length, seed)}}
	for _, requests := range [][2]cpu.Milli{even, odd} {
		for _, limit := range []cpu.Milli{0, 1200, 1000, 800, 600, 200} {
			if requests == odd && limit == 0 {
				continue // its queue grows without end, and so does every figure
			}
			name := fmt.Sprintf("requests %v and %v, batch pod limited to %v", requests[0], requests[1], limit)
			if limit == 0 {
				name = fmt.Sprintf("requests %v and %v, batch pod unlimited", requests[0], requests[1])
			}
			cases = append(cases, Case{name, duel(requests, 0, limit, 4, length, seed)})
		}
	}
	return append(cases, Case{"service limited to 700m, batch pod unlimited", duel(even, 700, 0, 4, length, seed)})
}

// duel is one service and one batch pod for each two cores, as one pod each.
func duel(requests [2]cpu.Milli, service, batch cpu.Milli, threads int, length time.Duration, seed uint64) sim.Setup {
	k := max(1, runtime.NumCPU()/2)
	times := cpu.Milli(k)
	return sim.Setup{
		Machine: sim.Machine{Cores: runtime.NumCPU()}, Length: length, WarmUp: 2 * time.Second, Seed: seed,
		Pods: []sim.PodSpec{
			{
				Name: "service", Request: requests[0] * times, Limit: service * times, Threads: 8 * k,
				Requests: load.Requests{Rate: load.Constant(60 * k), ServiceTime: 10 * time.Millisecond},
			},
			{Name: "batch", Request: requests[1] * times, Limit: batch * times, Spin: load.Constant(threads * k)},
		},
	}
}

// Simulate runs in the simulator what was measured on the kernel. Usage of other work is load
// there, spread evenly, which a policy sees as system usage; gaps of the hypervisor happen at the
// same times, and no policy sees them.
func Simulate(s sim.Setup, policy sim.Policy, measured Result) sim.Result {
	pods := len(s.Pods)
	if rate := measured.Others * float64(s.Machine.Cores) / gapPiece.Seconds(); rate > 0 {
		s.Pods = append(s.Pods[:pods:pods], sim.PodSpec{
			Name: "others", System: true, Requests: load.Requests{Rate: load.Constant(rate), ServiceTime: gapPiece},
		})
	}
	s.Machine.Gaps = measured.Gaps
	r := sim.Run(s, policy)
	r.Pods = r.Pods[:pods]
	return r
}
