package round

import (
	"math"
	"slices"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// entry is one line of the order book: a pod's limited containers, or what stands outside of
// the market (a shadow pod, or the unlimited containers of a pod).
type entry struct {
	pod     int // index into the input
	managed bool
	bid     market.Bid // with the smoothed demand
	least   cpu.Milli  // the lowest limit; above the bid's floor where others than the market ask for it
	now     cpu.Milli  // demand of the last tick alone
	use     cpu.Milli  // in the last tick
	limit   cpu.Milli  // in force, or on its way
	offered cpu.Milli  // published last; 0: nothing
	// throttle is the worst smoothed throttle ratio among the containers; throttledNow that of the last tick.
	throttle, throttledNow float64
	// young: not watched for long enough to be lowered
	young bool
	// percent is what the market is to take the demand for, as somebody asks who knows more than the kernel; at least 100
	percent int32
}

// bound is what holds the pod at a price. Who is not held yet and demands hardly more than its budget buys is not held: noise
// would have it lowered and lifted in turn. Who is held is told from what was published last, so a price that rises a little may
// let one go that is not throttled at its limit, as if it had never been held. A pod of which nothing was published counts as held.
func (e *entry) bound(cfg Config, p market.Price) market.Bound {
	line := (1 + cfg.HoldBand) * max(e.bid.Limit(p), e.least).Cores()
	if e.bid.Demand.Cores() <= line && e.offered.Cores() > line {
		return market.ByNothing
	}
	b := e.bid.Bound(p)
	if b == market.ByPrice && e.bid.Limit(p) <= e.least {
		return market.ByFloor
	}
	return b
}

// estimate folds the tick into what is known of every container that is still there.
func estimate(cfg demand.Config, before map[string]demand.Estimate, pods []Pod, rates []sense.Pod, perBudget float64) map[string]demand.Estimate {
	after := make(map[string]demand.Estimate, len(before))
	for i, p := range pods {
		var request cpu.Milli
		for _, c := range p.Containers {
			request += c.Request
		}
		for j, c := range p.Containers {
			if c.ID != "" {
				entitled := cpu.FromCores(perBudget * float64(part(p.Budget, c.Request, request)))
				after[c.ID] = cfg.Next(before[c.ID], withPodQuota(rates[i].Containers[j], rates[i].Own, c), entitled)
			}
		}
	}
	return after
}

// withPodQuota counts throttling by the pod's own quota as throttling of its limited containers: the
// kernel counts it at the cgroup that has the quota, and nowhere else.
func withPodQuota(r, own sense.Rate, c demand.Container) sense.Rate {
	if c.Limited() && own.Verdict == sense.Fresh {
		r.Throttle = max(r.Throttle, own.Throttle)
	}
	return r
}

// bids writes the order book. A managed pod that is not warm or not fresh takes part as a shadow.
//
// known says that the node has been watched for as long as a container takes to get warm. Before, nothing is decided;
// after, a new pod may be raised, as what is scarce and what is not is known without it.
func bids(cfg demand.Config, pods []Pod, rates []sense.Pod, estimates map[string]demand.Estimate, known bool) ([]entry, Held) {
	book := make([]entry, 0, len(pods)+4)
	var held Held
	for i, p := range pods {
		managed, unheld, isYoung := !p.Shadow, false, false
		if managed {
			switch s := standing(cfg, p.Pod, rates[i], estimates); {
			case s == young && known:
				isYoung = true
			case s == young, s == warming:
				held.Warming++
				managed = false
			case s == stale:
				held.Stale++
				managed = false
			case s == loose:
				held.Unenforced++
				managed, unheld = false, true
			}
		}
		in := entry{pod: i, managed: true, young: isYoung, percent: p.DemandPercent}
		out := entry{pod: i}
		var inRequest, outRequest cpu.Milli
		for j, c := range p.Containers {
			e, est := &out, estimates[c.ID]
			if managed && c.Limited() {
				e = &in
				inRequest += c.Request
				in.limit += c.Limit
				in.offered += p.Published.Limits[c.Name]
				floor, ceiling := c.Bounds()
				e.bid.Floor += c.Entitled()
				e.least += floor
				e.bid.Ceiling += ceiling
			} else {
				outRequest += c.Request
			}
			demand, now := est.Demand(), est.Now()
			if e == &out && c.Limit > 0 && !unheld {
				// Whatever it wants, it cannot use more than a limit that nobody moves.
				demand, now = min(demand, c.Limit), min(now, c.Limit)
			}
			e.bid.Demand += demand
			e.now += now
			e.use += rates[i].Containers[j].Usage
			e.throttle = max(e.throttle, est.Throttle)
			e.throttledNow = max(e.throttledNow, withPodQuota(rates[i].Containers[j], rates[i].Own, c).Throttle)
		}
		// The budget is divided over the two parts of a pod as its requests are.
		whole := inRequest + outRequest
		if managed {
			if p.Ceiling > 0 {
				in.bid.Ceiling = max(min(in.bid.Ceiling, p.Ceiling), in.least)
			}
			in.least = max(in.least, min(rates[i].Own.LeastLimit, in.bid.Ceiling))
			in.bid.Budget = part(p.Budget, inRequest, whole)
			book = append(book, in)
		}
		if out.bid.Demand > 0 {
			out.bid.Budget = part(p.Budget, outRequest, whole)
			// The kernel's weights give a shadow its request, whatever the price says.
			out.bid.Floor = outRequest
			out.bid.Ceiling = max(out.bid.Demand, outRequest)
			book = append(book, out)
		}
	}
	return book, held
}

// asked is a demand of the entry as the market is to take it. It makes the price, and nothing else: what holds
// the pod itself is what it demands indeed. Else to ask for more than one's share would be to be held to it, and bursts, whose mean
// lies below it, would be throttled for the asking. For less than it is no demand is taken: a hog that asked for
// little would hide from the price.
func (e *entry) asked(demand cpu.Milli) cpu.Milli {
	return demand * cpu.Milli(max(100, e.percent)) / 100
}

// kept is what a price keeps free because demands are to be taken for more than they are. It counts as used: the market left it
// free on purpose.
func kept(book []entry, p market.Price) (sum cpu.Milli) {
	for i := range book {
		e := &book[i]
		line := e.bid.Limit(p)
		sum += max(0, min(e.asked(e.bid.Demand), line)-max(e.bid.Demand, e.use)) // a burst takes the room it was kept for
	}
	return sum
}

// enforceable is the pods with the lowest limits that the kernel takes for their containers. Almost always these lie
// below the floors that the containers have anyway, and then it is the pods themselves.
func enforceable(pods []Pod, rates []sense.Pod) []Pod {
	shared := true
	for i, p := range pods {
		own := false // the containers are the caller's, so they are copied
		for j, c := range p.Containers {
			least := rates[i].Containers[j].LeastLimit
			if floor, _ := c.Bounds(); !c.Limited() || least <= floor {
				continue
			}
			if shared {
				pods, shared = slices.Clone(pods), false
			}
			if !own {
				pods[i].Containers, own = slices.Clone(p.Containers), true
			}
			pods[i].Containers[j].Least = least
		}
	}
	return pods
}

func part(budget market.Budget, request, whole cpu.Milli) market.Budget {
	if whole == 0 || request == whole {
		return budget
	}
	return max(1, market.Budget(math.Round(float64(budget)*float64(request)/float64(whole))))
}

// noQuota says that the kernel knows quotas, and sets none.
func noQuota(r sense.Rate) bool { return r.QuotaKnown && r.Quota == 0 }

type podStanding uint8

const (
	ready   podStanding = iota
	young               // not watched for long enough to be lowered
	warming             // no rates yet
	stale
	loose // the kernel holds it to no limit
)

// standing says whether a pod can be decided: every limited container that runs has a fresh rate
// and a quota, and at least one does. One with too few samples makes it young. The quota may be that of the whole pod.
func standing(cfg demand.Config, p demand.Pod, r sense.Pod, estimates map[string]demand.Estimate) podStanding {
	s := stale
	for j, c := range p.Containers {
		if !c.Limited() || c.ID == "" {
			continue
		}
		switch {
		case r.Containers[j].Verdict == sense.First:
			return warming
		case r.Containers[j].Verdict != sense.Fresh:
			return stale
		case noQuota(r.Containers[j]) && !(r.Own.QuotaKnown && r.Own.Quota > 0):
			return loose
		case !estimates[c.ID].Warm(cfg):
			s = young
		case s != young:
			s = ready
		}
	}
	return s
}
