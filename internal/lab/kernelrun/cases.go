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

// Cases is a service of 0.6 cores beside a hog with four threads on two cores: the hog held to less and less, with
// requests that tell which of the two matters and with requests that do not; the service alone; and the service itself
// held by a static limit. On a machine with more cores there is so much more of both.
func Cases(length time.Duration, seed uint64) []Case {
	even, odd := [2]cpu.Milli{500, 500}, [2]cpu.Milli{125, 1000}
	cases := []Case{{"alone", duel(even, 0, 0, 0, length, seed)}}
	for _, requests := range [][2]cpu.Milli{even, odd} {
		for _, held := range []cpu.Milli{0, 1200, 1000, 800, 600, 200} {
			if requests == odd && held == 0 {
				continue // its queue grows without end, and so does every figure
			}
			name := fmt.Sprintf("requests %v and %v, hog held to %v", requests[0], requests[1], held)
			if held == 0 {
				name = fmt.Sprintf("requests %v and %v, hog not held", requests[0], requests[1])
			}
			cases = append(cases, Case{name, duel(requests, 0, held, 4, length, seed)})
		}
	}
	return append(cases, Case{"service held to 700m, hog not held", duel(even, 700, 0, 4, length, seed)})
}

// duel is one service and one hog for each two cores, as one pod each.
func duel(requests [2]cpu.Milli, service, hog cpu.Milli, threads int, length time.Duration, seed uint64) sim.Setup {
	k := max(1, runtime.NumCPU()/2)
	times := cpu.Milli(k)
	return sim.Setup{
		Machine: sim.Machine{Cores: runtime.NumCPU()}, Length: length, WarmUp: 2 * time.Second, Seed: seed,
		Pods: []sim.PodSpec{
			{
				Name: "service", Request: requests[0] * times, Limit: service * times, Threads: 8 * k,
				Requests: load.Requests{Rate: load.Constant(60 * k), ServiceTime: 10 * time.Millisecond},
			},
			{Name: "hog", Request: requests[1] * times, Limit: hog * times, Spin: load.Constant(threads * k)},
		},
	}
}

// Simulate plays in the simulator what was played for real. What others used is load there, too, spread evenly, which a policy sees as
// use of the system; what the hypervisor kept of a core is gone there at the same time, and no policy sees it.
func Simulate(s sim.Setup, policy sim.Policy, played Result) sim.Result {
	pods := len(s.Pods)
	if rate := played.Others * float64(s.Machine.Cores) / gapPiece.Seconds(); rate > 0 {
		s.Pods = append(s.Pods[:pods:pods], sim.PodSpec{
			Name: "others", System: true, Requests: load.Requests{Rate: load.Constant(rate), ServiceTime: gapPiece},
		})
	}
	s.Machine.Gaps = played.Gaps
	r := sim.Run(s, policy)
	r.Pods = r.Pods[:pods]
	return r
}
