package autoscaler

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// VPAConfig is the constants of Kubernetes' Vertical Pod Autoscaler, from pkg/recommender and
// pkg/updater of kubernetes/autoscaler at 1.7.1.
type VPAConfig struct {
	Interval    time.Duration // of the recommender and of the updater
	FirstBucket cpu.Milli
	Growth      float64 // of a bucket over the one before
	LastBucket  cpu.Milli
	HalfLife    time.Duration
	Weight      float64 // of a sample
	Empty       float64 // weight below which a bucket does not count

	Target, Lower, Upper float64 // percentiles
	Margin               float64 // factor on each of them
	Least                cpu.Milli

	// OldAge and Difference: a pod as old as this is changed, too, when its request is off by this
	// share of it, though within the bounds.
	OldAge     time.Duration
	Difference float64

	// History is for how long, before the run begins, every pod has used what it is declared to use
	// in its first minute, so that the first decisions do not come from an empty histogram. A
	// workload that begins later has such a history, too. 0: none. VPA keeps 8 days.
	History time.Duration
}

// VPA is Kubernetes' Vertical Pod Autoscaler in the mode InPlace: a recommender that learns the
// percentiles of the use of each workload, and an updater that brings requests there. Limits follow
// in proportion. A request for which the node has no room waits for the updater's next run; it
// evicts no pod. A pod that starts when there is a recommendation starts with it. It ignores
// disruption budgets (--in-place-skip-disruption-budget), so it changes pods without replicas, too.
type VPA struct {
	cfg     VPAConfig
	metrics metricsServer
	due     time.Duration // next run of the recommender and the updater

	models map[string]*vpaModel // by workload
	met    map[int]bool
}

// vpaModel is what is known of the container of a workload.
type vpaModel struct {
	use         histogram
	first, last time.Duration
	samples     int
	bounds      vpaBounds
	known       bool // bounds are
}

// vpaBounds are the recommendation.
type vpaBounds struct{ lower, target, upper cpu.Milli }

// NewVPA is what VPA ships, with a history.
func NewVPA(history time.Duration) *VPA {
	cfg := VPAConfig{
		Interval:    time.Minute,
		FirstBucket: 10, Growth: 1.05, LastBucket: 1000 * cpu.Core, HalfLife: 24 * time.Hour, Weight: 0.1, Empty: 1e-4,
		Target: 0.9, Lower: 0.5, Upper: 0.95, Margin: 1.15, Least: 25,
		OldAge: 12 * time.Hour, Difference: 0.1, History: history,
	}
	return &VPA{cfg: cfg, models: map[string]*vpaModel{}, met: map[int]bool{}}
}

// vpaInterval is how soon a pod that begins is seen, in place of a webhook that sees it at once.
const vpaInterval = time.Second

// Decide implements sim.Policy.
func (v *VPA) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	v.metrics.read(r)
	actions := v.admit(r)
	if r.Now >= v.due {
		v.due = r.Now + v.cfg.Interval
		v.sample(r)
		for _, m := range v.models {
			v.recommend(m)
		}
		actions = append(actions, v.update(r)...)
	}
	return actions, min(v.due, v.metrics.due, r.Now+vpaInterval)
}

// scaled says whether VPA may set the pod's request. Where there is none, it sets the limit equal
// to it; in place the API refuses that, as it may change the QoS class.
func (v *VPA) scaled(p *sim.PodSnapshot) bool { return p.Spec.Managed() && p.Spec.Request > 0 }

func vpaKey(s *sim.PodSpec) string {
	if s.Workload != "" {
		return s.Namespace + "/" + s.Workload
	}
	return s.Namespace + "/pod/" + s.Name
}

// admit deals with pods that were not there before.
func (v *VPA) admit(r *sim.Snapshot) []sim.Action {
	var actions []sim.Action
	for _, p := range r.Pods {
		if !v.scaled(&p) || v.met[p.ID] {
			continue
		}
		v.met[p.ID] = true
		key := vpaKey(p.Spec)
		m := v.models[key]
		if m == nil {
			m = &vpaModel{use: histogram{
				first: v.cfg.FirstBucket.Cores(), growth: v.cfg.Growth, most: v.cfg.LastBucket.Cores(), least: v.cfg.Empty, halfLife: v.cfg.HalfLife,
			}}
			v.models[key] = m
			v.recordHistory(m, r, p)
		}
		if m.known && r.Now > 0 {
			actions = append(actions, v.resize(p, m.bounds.target))
		}
	}
	return actions
}

// recordHistory gives a workload its history.
func (v *VPA) recordHistory(m *vpaModel, r *sim.Snapshot, p sim.PodSnapshot) {
	n := int(v.cfg.History / v.cfg.Interval)
	if n == 0 {
		return
	}
	use := min(declaredUse(p.Spec, r.Now-p.Age), p.Spec.Limit.Cores())
	m.use.steady(use, v.cfg.Weight, n, v.cfg.Interval, r.Now)
	m.first, m.last, m.samples = r.Now-time.Duration(n)*v.cfg.Interval, r.Now-v.cfg.Interval, n
	v.recommend(m)
}

// declaredUse is the mean of the load that a pod is given in the minute from a time on, in cores.
func declaredUse(s *sim.PodSpec, from time.Duration) float64 {
	const minute = time.Minute
	var sum float64
	for t := from; t < from+minute; {
		until := from + minute
		var now float64
		if s.Requests.Rate != nil {
			v, end := s.Requests.Rate.At(t)
			now, until = now+v*s.Requests.ServiceTime.Seconds(), min(until, end)
		}
		if s.Spin != nil {
			v, end := s.Spin.At(t)
			now, until = now+math.Round(v), min(until, end)
		}
		sum += now * float64(until-t)
		t = until
	}
	return sum / float64(minute)
}

// sample reads the metrics: one sample per container, where there is a new one.
func (v *VPA) sample(r *sim.Snapshot) {
	for _, p := range r.Pods {
		m := v.models[vpaKey(p.Spec)]
		u := v.metrics.pods[p.ID]
		cores, ok := u.cores()
		if !v.scaled(&p) || !ok || u.at <= r.Now-v.cfg.Interval {
			continue
		}
		m.use.add(cores, v.cfg.Weight, u.at)
		if m.samples++; m.samples == 1 {
			m.first = u.at
		}
		m.last = u.at
	}
}

// recommend derives bounds from percentiles: the shorter the history, the wider they are.
func (v *VPA) recommend(m *vpaModel) {
	if m.samples == 0 {
		return
	}
	const day = 24 * time.Hour
	confidence := min(float64(m.last-m.first)/float64(day), float64(m.samples)/float64(day/time.Minute))
	estimate := func(share, factor float64) cpu.Milli {
		cores := m.use.percentile(share) * v.cfg.Margin * factor
		return max(v.cfg.Least, cpu.Milli(min(cores*1000, 1e12))) // VPA drops what is below 1m
	}
	m.known = true
	m.bounds = vpaBounds{
		lower:  estimate(v.cfg.Lower, math.Pow(1+0.001/confidence, -2)),
		target: estimate(v.cfg.Target, 1),
		upper:  estimate(v.cfg.Upper, 1+1/confidence),
	}
}

// update is the updater's run: the pods that are out of bounds, increases first, then the largest
// differences.
func (v *VPA) update(r *sim.Snapshot) []sim.Action {
	type candidate struct {
		pod    int // index in the reading
		bounds vpaBounds
		off    float64
	}
	var free = r.Allocatable
	var all []candidate
	for i, p := range r.Pods {
		free -= p.Request
		m := v.models[vpaKey(p.Spec)]
		if !v.scaled(&p) || !m.known || p.Request == m.bounds.target {
			continue
		}
		off := math.Abs(float64(p.Request-m.bounds.target)) / max(1, float64(p.Request))
		age := p.Age
		if p.Age == r.Now {
			age += v.cfg.History
		}
		if p.Request < m.bounds.lower || p.Request > m.bounds.upper || age >= v.cfg.OldAge && off >= v.cfg.Difference {
			all = append(all, candidate{i, m.bounds, off})
		}
	}
	raises := func(c candidate) bool { return c.bounds.target > r.Pods[c.pod].Request }
	slices.SortStableFunc(all, func(a, b candidate) int {
		if raises(a) != raises(b) {
			if raises(a) {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.off, a.off)
	})
	var actions []sim.Action
	for _, c := range all {
		p := r.Pods[c.pod]
		more := c.bounds.target - p.Request
		if more > 0 && more > free {
			continue // the kubelet defers it
		}
		free -= more
		actions = append(actions, v.resize(p, c.bounds.target))
	}
	return actions
}

// resize sets the request, and the limit in the proportion that it was declared in. They stay
// apart, as the API refuses a change of the QoS class.
func (v *VPA) resize(p sim.PodSnapshot, request cpu.Milli) sim.Action {
	limit := cpu.FromCores(request.Cores() * float64(p.Spec.Limit) / float64(p.Spec.Request))
	return sim.Action{Pod: p.ID, Limit: max(limit, request+1), Request: request, Delay: sim.ResizeDelay}
}
