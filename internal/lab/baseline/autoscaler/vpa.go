package autoscaler

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// The constants of Kubernetes' Vertical Pod Autoscaler, from pkg/recommender and pkg/updater of
// kubernetes/autoscaler at 1.7.1.
const (
	vpaInterval  = time.Minute // of the recommender and of the updater
	sampleWeight = 0.1

	targetPercentile, lowerPercentile, upperPercentile = 0.9, 0.5, 0.95

	vpaMargin = 1.15 // factor on each of them
	vpaLeast  = cpu.Milli(25)

	// A pod as old as oldAge is changed, too, when its request is off by oldDifference of it, though
	// within the bounds.
	oldAge        = 12 * time.Hour
	oldDifference = 0.1
)

// VPA is Kubernetes' Vertical Pod Autoscaler in the mode InPlace: a recommender that learns the
// percentiles of the use of each workload, and an updater that brings requests there. Limits follow
// in proportion. A request for which the node has no room waits for the updater's next run; it
// evicts no pod. A pod that starts when there is a recommendation starts with it. It ignores
// disruption budgets (--in-place-skip-disruption-budget), so it changes pods without replicas, too.
type VPA struct {
	// history is for how long, before the run begins, every pod has used what it is declared to use
	// in its first minute, so that the first decisions do not come from an empty histogram. A
	// workload that begins later has such a history, too. 0: none. VPA keeps 8 days.
	history time.Duration
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
	return &VPA{history: history, models: map[string]*vpaModel{}, met: map[int]bool{}}
}

// admitInterval is how soon a pod that begins is seen, in place of a webhook that sees it at once.
const admitInterval = time.Second

// Decide implements sim.Policy.
func (v *VPA) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	v.metrics.read(r)
	actions := v.admit(r)
	if r.Now >= v.due {
		v.due = r.Now + vpaInterval
		v.sample(r)
		for _, m := range v.models {
			m.recommend()
		}
		actions = append(actions, v.update(r)...)
	}
	return actions, min(v.due, v.metrics.due, r.Now+admitInterval)
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
			m = &vpaModel{}
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
	n := int(v.history / vpaInterval)
	if n == 0 {
		return
	}
	use := min(declaredUse(p.Spec, r.Now-p.Age), p.Spec.Limit.Cores())
	m.use.steady(use, sampleWeight, n, vpaInterval, r.Now)
	m.first, m.last, m.samples = r.Now-time.Duration(n)*vpaInterval, r.Now-vpaInterval, n
	m.recommend()
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
		if !v.scaled(&p) || !ok || u.at <= r.Now-vpaInterval {
			continue
		}
		m.use.add(cores, sampleWeight, u.at)
		if m.samples++; m.samples == 1 {
			m.first = u.at
		}
		m.last = u.at
	}
}

// recommend derives bounds from percentiles: the shorter the history, the wider they are.
func (m *vpaModel) recommend() {
	if m.samples == 0 {
		return
	}
	const day = 24 * time.Hour
	confidence := min(float64(m.last-m.first)/float64(day), float64(m.samples)/float64(day/time.Minute))
	estimate := func(share, factor float64) cpu.Milli {
		cores := m.use.percentile(share) * vpaMargin * factor
		return max(vpaLeast, cpu.Milli(min(cores*1000, 1e12))) // VPA drops what is below 1m
	}
	m.known = true
	m.bounds = vpaBounds{
		lower:  estimate(lowerPercentile, math.Pow(1+0.001/confidence, -2)),
		target: estimate(targetPercentile, 1),
		upper:  estimate(upperPercentile, 1+1/confidence),
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
			age += v.history
		}
		if p.Request < m.bounds.lower || p.Request > m.bounds.upper || age >= oldAge && off >= oldDifference {
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
