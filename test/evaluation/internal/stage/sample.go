//go:build linux

package stage

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mbcas/mbcas/test/evaluation/internal/results"
	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/cluster"
	"github.com/mbcas/mbcas/test/internal/machine"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/load/work"
)

// calibrated is the CPU time for which the iterations are counted that tell how fast the machine is.
const (
	calibrated = 8 * time.Millisecond
	counted    = 10_000_000 // iterations that CalibrationMS is about
)

// before measures the machine while no pod of a cell runs.
func before(ctx context.Context) (m results.Machine, err error) {
	n, err := work.Calibrate(calibrated)
	if err != nil {
		return m, err
	}
	m.CalibrationMS = results.Milliseconds(calibrated) * counted / float64(n)
	m.BusyBeforeM = machine.Busy(ctx, 2*time.Second)
	return m, ctx.Err()
}

// sampler samples the containers each second of the measured time.
type sampler struct {
	run    *run
	done   chan struct{}
	series []results.Second
	pods   map[string]*results.PodLimits // by UID
	first  counters                      // at the event
	last   counters                      // at the last sample

	mu     sync.Mutex
	probes map[string]*probe // by UID
	agents map[string]cgroup.Sample
}

// probe is a container's files and its counters at the last sample.
type probe struct {
	files cgroup.Container
	last  cgroup.Sample
}

// counters are those of the machine.
type counters struct {
	at          time.Time
	busy, idle  int64 // ticks of a hundredth of a second
	steal       int64
	pressureSum time.Duration
	err         error
}

// sample begins to sample, from the start of the measured time on.
func (r *run) sample(ctx context.Context) *sampler {
	s := &sampler{
		run: r, done: make(chan struct{}), pods: map[string]*results.PodLimits{},
		probes: map[string]*probe{}, agents: map[string]cgroup.Sample{},
	}
	go func() {
		defer close(s.done)
		for i := 0; time.Duration(i)*time.Second <= r.time.length; i++ {
			at := time.Duration(i) * time.Second
			if !poll.Sleep(ctx, time.Until(r.time.start().Add(at))) {
				return
			}
			second := s.second(at)
			if i > 0 {
				s.series = append(s.series, second)
			}
			s.last = readCounters()
			if s.first.at.IsZero() && at >= r.time.event {
				s.first = s.last
				s.readAgents()
			}
		}
	}()
	return s
}

// second is one sample of all containers: sums over the pods of each workload.
func (s *sampler) second(at time.Duration) results.Second {
	x := results.Second{
		At: at.Seconds(), LimitM: map[string]int64{}, UsageM: map[string]float64{}, Throttled: map[string]float64{},
		IdleClass: map[string]int{},
	}
	for _, p := range s.run.stage.Pods.In(s.run.namespace, "") {
		if p.ContainerID == "" {
			continue
		}
		b := s.probes[p.UID+p.ContainerID]
		if b == nil {
			files, err := s.run.stage.Kernel.Find(p.ContainerID)
			if err != nil {
				continue // it has just ended
			}
			b = &probe{files: files}
			s.probes[p.UID+p.ContainerID] = b
		}
		now, err := b.files.Read()
		if err != nil {
			continue
		}
		x.LimitM[p.App] += now.Quota
		if class, err := b.files.PodClass(); err == nil && class.Idle { // Linux before 5.15 has no such class
			x.IdleClass[p.App]++
		}
		if s.pods[p.UID] == nil {
			s.pods[p.UID] = &results.PodLimits{UID: p.UID, Workload: p.App}
		}
		s.pods[p.UID].Add(at.Seconds(), now.Quota)
		if last := b.last; !last.At.IsZero() {
			seconds := now.At.Sub(last.At).Seconds()
			x.UsageM[p.App] += 1000 * (now.Usage - last.Usage).Seconds() / seconds
			x.Throttled[p.App] += results.Milliseconds(now.Throttled-last.Throttled) / seconds
		}
		b.last = now
	}
	return x
}

// limits are those of each pod, in the order of their UIDs, after the last sample.
func (s *sampler) limits(event time.Duration) (all []results.PodLimits) {
	<-s.done
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		s.pods[uid].Converge(event.Seconds())
		all = append(all, *s.pods[uid])
	}
	return all
}

// readAgents notes the counters of MBCAS' own containers.
func (s *sampler) readAgents() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.run.stage.Pods.In(cluster.System, "") {
		if files, err := s.run.stage.Kernel.Find(p.ContainerID); err == nil {
			if now, err := files.Read(); err == nil {
				s.agents[p.ContainerID] = now
			}
		}
	}
}

// system is the CPU of agent and controller since the event, in thousandths of a core.
func (s *sampler) system() (usage float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, was := range s.agents {
		if files, err := s.run.stage.Kernel.Find(id); err == nil {
			if now, err := files.Read(); err == nil {
				usage += 1000 * (now.Usage - was.Usage).Seconds() / now.At.Sub(was.At).Seconds()
			}
		}
	}
	return usage
}

// end waits for the last sample and fills in what the machine did since the event.
func (s *sampler) end(m *results.Machine) []results.Second {
	<-s.done
	last := s.last
	seconds := last.at.Sub(s.first.at).Seconds()
	if s.first.err != nil || last.err != nil || seconds <= 0 {
		return s.series
	}
	busy, idle := last.busy-s.first.busy, last.idle-s.first.idle
	m.BusyM, m.IdleM = int64(float64(busy)*10/seconds), int64(float64(idle)*10/seconds)
	m.StealShare = float64(last.steal-s.first.steal) / float64(max(1, busy+idle))
	m.PressureSec = (last.pressureSum - s.first.pressureSum).Seconds() / seconds
	return s.series
}

// readCounters reads /proc/stat and, where the kernel has it, /proc/pressure/cpu.
func readCounters() (c counters) {
	c.at = time.Now()
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return counters{err: err}
	}
	if c.busy, c.idle, c.steal, c.err = cpuTicks(string(stat)); c.err != nil {
		return c
	}
	if pressure, err := os.ReadFile("/proc/pressure/cpu"); err == nil {
		c.pressureSum = pressureTotal(string(pressure))
	}
	return c
}

// cpuTicks reads the line "cpu": user nice system idle iowait irq softirq steal. Steal is part of busy.
func cpuTicks(stat string) (busy, idle, steal int64, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, 0, 0, fmt.Errorf("/proc/stat begins with %q: want cpu and eight counters", line)
	}
	for i, f := range fields[1:9] {
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("/proc/stat: %w", err)
		}
		switch i {
		case 3, 4: // idle, and waiting for a disk
			idle += v
		case 7:
			steal = v
			busy += v
		default:
			busy += v
		}
	}
	return busy, idle, steal, nil
}

// pressureTotal is the time in which something waited for a CPU, out of the line "some".
func pressureTotal(text string) time.Duration {
	line, _, _ := strings.Cut(text, "\n")
	_, total, _ := strings.Cut(line, "total=")
	us, err := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}
