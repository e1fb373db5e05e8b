package mbcas

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// weightsConfig is what ships, with weights.
func weightsConfig() Config {
	cfg := DefaultConfig()
	cfg.Weights = true
	return cfg
}

// beside is a saturating pod and a service of this rate, both with limits.
func beside(seed uint64, cores int, hogRequest, serviceRequest cpu.Milli, rate float64) sim.Setup {
	return sim.Setup{
		Machine: sim.Machine{Cores: cores}, Length: 5 * time.Minute, WarmUp: time.Minute, Seed: seed,
		Pods: []sim.PodSpec{
			{Name: "hog", Request: hogRequest, Limit: cpu.Milli(cores) * cpu.Core, Spin: load.Constant(float64(2 * cores))},
			{
				Name: "service", Request: serviceRequest, Limit: cpu.Milli(cores) * cpu.Core, Threads: 4 * cores,
				Requests: load.Requests{Rate: load.Constant(rate), ServiceTime: 10 * time.Millisecond},
			},
		},
	}
}

// TestWeightsKeepTheGuarantee: a saturating pod that requests a core has 0.95 cores at least beside a service that
// would take everything, whatever the size of the node, the service's request and its priority are.
func TestWeightsKeepTheGuarantee(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cores := rapid.IntRange(2, 4).Draw(t, "cores")
		most := int(cpu.Milli(cores)*cpu.Core-1000) / 10
		s := beside(rapid.Uint64().Draw(t, "seed"), cores, 1000, cpu.Milli(rapid.IntRange(1, most-1).Draw(t, "request")*10),
			rapid.Float64Range(150, 300).Draw(t, "rate")*float64(cores))
		s.Pods[1].Priority = rapid.SampledFrom([]int32{0, 4000, 1_000_000}).Draw(t, "priority")
		r := sim.Run(s, New(weightsConfig()))
		if got := r.Pods[0].Usage.Seconds() / (s.Length - s.WarmUp).Seconds(); got < 0.95 {
			t.Fatalf("on %d cores beside a service that requests %v the pod has %.2f cores: want 0.95",
				cores, s.Pods[1].Request, got)
		}
	})
}

// TestWeightsAreSteady: beside a service that leaves it more than its request, a saturating pod enters the class once
// and no limit changes any more. It leaves the class when CPU is no longer scarce, and in an outage of the agent.
func TestWeightsAreSteady(t *testing.T) {
	s := beside(1, 2, 500, 500, 60)
	s.Length = 20 * time.Minute
	r := sim.Run(s, New(weightsConfig()))
	for _, p := range r.Pods {
		if n := len(p.ChangesBetween(time.Minute, s.Length)); n > 0 {
			t.Errorf("%d changes of the limit of %s under steady load", n, p.Spec.Name)
		}
	}
	hog := r.Pods[0]
	if len(hog.ClassChanges) != 1 || hog.ClassChanges[0] > 20*time.Second {
		t.Errorf("the hog changed its class at %v: want it to enter once, in the first 20 s", hog.ClassChanges)
	}
	if n := len(r.Pods[1].ClassChanges); n > 0 {
		t.Errorf("the service changed its class %d times", n)
	}

	s.Pods[0].Spin = load.Step{Before: 4, After: 1, Time: 5 * time.Minute}
	r = sim.Run(s, New(weightsConfig()))
	if at := r.Pods[0].ClassChanges; len(at) != 2 || at[1] > 5*time.Minute+30*time.Second {
		t.Errorf("a pod that stopped to saturate at 5m changed its class at %v: want it to leave in 30 s", at)
	}

	s = beside(1, 2, 500, 500, 60)
	s.Outages = []sim.Outage{{At: 2 * time.Minute, Duration: time.Minute}}
	r = sim.Run(s, New(weightsConfig()))
	if at := r.Pods[0].ClassChanges; len(at) < 2 || at[1] > 2*time.Minute+restoreAfter+2*time.Second {
		t.Errorf("in an outage from 2m on the class changed at %v: want it restored within %v", at, restoreAfter)
	}
}

// TestLimitsTakeOver: where the program that writes the class stops, limits begin to cap the pod within 5 s.
func TestLimitsTakeOver(t *testing.T) {
	s := beside(1, 2, 500, 500, 60)
	cfg := weightsConfig()
	cfg.WeightsUntil = 2 * time.Minute
	hog := sim.Run(s, New(cfg)).Pods[0]
	if at := hog.ClassChanges; len(at) != 2 || at[1] > cfg.WeightsUntil+2*time.Second {
		t.Fatalf("the class changed at %v: want it to end when the program stops", at)
	}
	after := hog.ChangesBetween(cfg.WeightsUntil, s.Length)
	if len(after) == 0 || after[0].At > cfg.WeightsUntil+5*time.Second || after[0].To >= after[0].From {
		t.Errorf("limits after the program stopped: %v: want a decrease within 5 s", after)
	}
	if limit := hog.LimitAt(s.Length); limit > 1300 {
		t.Errorf("in the end the hog has a limit of %v", limit)
	}
}

// TestMisleadingRequestsNeedNoPriority: beside a pod that requests eight times as much and starts to saturate, a
// service that had enough CPU before has it again after 10 s, without a PriorityClass.
func TestMisleadingRequestsNeedNoPriority(t *testing.T) {
	s := beside(1, 2, 1024, 128, 60)
	s.WarmUp, s.Pods[0].Start = 30*time.Second, time.Minute
	r := sim.Start(s, New(weightsConfig()))
	r.RunUntil(s.Pods[0].Start - time.Second)
	alone := r.Partial().Pods[0].Latency.Quantile(0.99)
	r.RunUntil(s.Pods[0].Start + 10*time.Second)
	service := &r.Partial().Pods[0]
	if service.Spec.Name != "service" {
		t.Fatalf("the first pod is %s", service.Spec.Name)
	}
	before := service.Latency.Clone()
	r.RunUntil(s.Length)
	after := r.Partial().Pods[0].Latency.Since(before)
	if got := after.Quantile(0.99); got > alone*13/10 {
		t.Errorf("p99 of the service is %v beside the pod, and %v alone: want at most 1.3 times", got, alone)
	}
	hog := r.Partial().Pods[1]
	if used := hog.Points[len(hog.Points)-1].Usage; used < 1200 {
		t.Errorf("the pod uses %v: want all of the 1.4 cores that the service leaves", used)
	}
}
