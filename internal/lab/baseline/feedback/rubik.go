package feedback

import (
	"maps"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// The constants of openEuler Rubik's quotaTurbo (pkg/lib/cpu/quotaturbo).
const (
	turboInterval = 100 * time.Millisecond
	// The node's use in percent from which on quotas fall slowly, and fast.
	turboHigh, turboAlarm = 60, 80
	// turboFall is the share of its excess that a quota loses per call when the node is at turboAlarm.
	turboFall = 0.1
	// turboRise is by how much all quotas together rise in a call, in percent of the node; nothing
	// rises when the node is closer than that to turboAlarm.
	turboRise = 1.0
	// turboSwing is by how many points the node's use may have moved within turboMemory; nothing
	// rises when it moved more.
	turboSwing  = 10
	turboMemory = time.Minute
	// turboHeight is the highest quota as a multiple of the declared limit.
	turboHeight = 2
	// turboSamples is over how many reads, the last one included, the mean use must stay at the
	// declared limit.
	turboSamples = 59
)

// QuotaTurbo lends quota to pods that are throttled while the node has room, as far as they have
// used less than their limit in the last six seconds. It writes cgroups itself.
type QuotaTurbo struct {
	at    time.Duration // of the last call
	usage time.Duration // of the node then
	begun bool
	utils []nodeUtil // within turboMemory
	pods  map[int]*quotaTurboPod
}

type nodeUtil struct {
	at      time.Duration
	percent float64
}

// quotaTurboPod is what is kept of one pod. Quotas are in cores, as the kernel's are finer than 1m.
type quotaTurboPod struct {
	limit, cur    float64
	sent          cpu.Milli
	throttled     uint64
	throttledTime time.Duration
	newThrottled  uint64 // in the last call
	newTime       time.Duration
	uses          []nodeUse // the oldest first
	delta         float64
}

// NewQuotaTurbo is what Rubik ships.
func NewQuotaTurbo() *QuotaTurbo { return &QuotaTurbo{pods: map[int]*quotaTurboPod{}} }

// Decide implements sim.Policy.
func (q *QuotaTurbo) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	util := q.util(r)
	var ids []int
	var pods []*quotaTurboPod
	for _, p := range r.Pods {
		if p.Spec.Managed() && p.Spec.Limit < cpu.Milli(r.Cores)*cpu.Core {
			ids = append(ids, p.ID)
			pods = append(pods, q.sample(r.Now, p))
		}
	}
	if len(q.pods) > len(pods) {
		maps.DeleteFunc(q.pods, func(id int, _ *quotaTurboPod) bool { return !slices.Contains(ids, id) })
	}
	decrease(util, r.Cores, pods)
	if q.calm() && turboAlarm-util >= turboRise {
		increase(r, pods)
	}
	var actions []sim.Action
	for i, p := range pods {
		p.cur = max(min(p.cur+p.delta, p.maxLimit()), p.limit)
		if limit := cpu.FromCores(p.cur); limit != p.sent {
			p.sent = limit
			actions = append(actions, sim.Action{Pod: ids[i], Limit: limit, Delay: sim.DirectDelay})
		}
	}
	return actions, r.Now + turboInterval
}

// util is the node's use in the last interval, in percent; 0 at the first call, which is remembered
// as such, so nothing rises in the first minute on a node with a use of more than turboSwing.
func (q *QuotaTurbo) util(r *sim.Snapshot) float64 {
	var percent float64
	if q.begun && r.Now > q.at {
		percent = 100 * float64(r.Usage-q.usage) / float64(r.Now-q.at) / float64(r.Cores)
	}
	q.begun, q.at, q.usage = true, r.Now, r.Usage
	q.utils = append(q.utils, nodeUtil{r.Now, percent})
	for r.Now-q.utils[0].at > turboMemory {
		q.utils = q.utils[1:]
	}
	return percent
}

// calm says whether the node's use moved little.
func (q *QuotaTurbo) calm() bool {
	low, high := 100.0, 0.0
	for _, u := range q.utils {
		low, high = min(low, u.percent), max(high, u.percent)
	}
	return high-low <= turboSwing
}

// sample brings what is known of a pod up to date.
func (q *QuotaTurbo) sample(now time.Duration, r sim.PodSnapshot) *quotaTurboPod {
	p := q.pods[r.ID]
	if p == nil {
		p = &quotaTurboPod{
			limit: r.Spec.Limit.Cores(), cur: r.Limit.Cores(), sent: r.Limit, throttled: r.Throttled, throttledTime: r.ThrottledTime,
		}
		q.pods[r.ID] = p
	}
	p.delta = 0
	p.newThrottled, p.newTime = r.Throttled-p.throttled, r.ThrottledTime-p.throttledTime
	p.throttled, p.throttledTime = r.Throttled, r.ThrottledTime
	p.uses = append(p.uses, nodeUse{now, r.Usage})
	if len(p.uses) > turboSamples {
		p.uses = p.uses[1:]
	}
	return p
}

// decrease takes back: slowly from those that are not throttled, and fast from all.
func decrease(util float64, cores int, pods []*quotaTurboPod) {
	var excess float64
	for _, p := range pods {
		excess += p.cur - p.limit
	}
	for _, p := range pods {
		if util >= turboHigh && p.newThrottled == 0 {
			p.delta -= (util - turboHigh) / (turboAlarm - turboHigh) * turboFall * (p.cur - p.limit)
		}
		if util >= turboAlarm && excess > 0 {
			p.delta -= (util - turboAlarm) / 100 * float64(cores) * (p.cur - p.limit) / excess
		}
	}
}

// increase gives to those that were throttled, in proportion to how long they were in each period
// in which they were.
func increase(r *sim.Snapshot, pods []*quotaTurboPod) {
	want := func(p *quotaTurboPod) float64 {
		if p.newThrottled == 0 {
			return 0
		}
		return float64(p.newTime) / float64(p.newThrottled) / float64(r.Period)
	}
	var sum float64
	for _, p := range pods {
		sum += want(p)
	}
	if sum == 0 {
		return
	}
	given := min(sum, turboRise/100*float64(r.Cores))
	for _, p := range pods {
		p.delta += given * want(p) / sum
	}
}

// nearEmpty is how many periods at the highest quota a balance must last; below that the highest
// quota falls with it.
const nearEmpty = 3

// maxLimit is the highest quota that the pod's balance allows: what it may use in the interval to
// come, if its mean over the samples is to stay at its limit.
func (p *quotaTurboPod) maxLimit() float64 {
	height := turboHeight * p.limit
	n := len(p.uses)
	if n <= 1 {
		return height
	}
	first, last := p.uses[0], p.uses[n-1]
	window := float64(last.at - first.at)
	allowed := p.limit * window * float64(n) / float64(n-1)
	left := (allowed - float64(last.usage-first.usage)) / window * float64(n-1)
	if threshold := nearEmpty * height; left <= threshold {
		left = p.limit + (height-p.limit)*left/threshold
	}
	return max(min(left, height), p.limit)
}
