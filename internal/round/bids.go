package round

import (
	"math"
	"slices"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// bidder is one line of the order book: a pod's limited containers, or what stands outside of
// the market (a shadow pod, or the unlimited containers of a pod).
type bidder struct {
	pod          int // index into the input
	managed      bool
	bid          market.Bid // with the smoothed demand
	minLimit     cpu.Milli  // the lowest limit; above the bid's floor where others than the market ask for it
	latestDemand cpu.Milli  // demand of the last tick alone
	usage        cpu.Milli  // in the last tick
	limit        cpu.Milli  // in force, or on its way
	published    cpu.Milli  // published last; 0: nothing
	// throttle is the worst smoothed throttle ratio among the containers; throttledNow that of the last tick.
	throttleRatio, latestThrottleRatio float64
	// warmingUp: not watched for long enough to be lowered
	warmingUp bool
	// signalPercent is what the market is to take the demand for, as somebody asks who knows more than the kernel; at least 100
	signalPercent int32
}

// bound is what holds the pod at a price. Who is not held yet and demands hardly more than its budget buys is not held: noise
// would have it lowered and lifted in turn. Who is held is told from what was published last, so a price that rises a little may
// let one go that is not throttled at its limit, as if it had never been held. A pod of which nothing was published counts as held.
func (e *bidder) bound(cfg Config, p market.Price) market.Bound {
	line := (1 + cfg.CapBand) * max(e.bid.Limit(p), e.minLimit).Cores()
	if e.bid.Demand.Cores() <= line && e.published.Cores() > line {
		return market.ByNothing
	}
	b := e.bid.Bound(p)
	if b == market.ByPrice && e.bid.Limit(p) <= e.minLimit {
		return market.ByFloor
	}
	return b
}

// estimate folds the tick into what is known of every container that is still there.
func estimate(cfg demand.Config, before map[string]demand.Estimate, pods []PodInput, rates []sense.PodRates, perBudget float64) map[string]demand.Estimate {
	after := make(map[string]demand.Estimate, len(before))
	for i, p := range pods {
		var request cpu.Milli
		for _, c := range p.Containers {
			request += c.Request
		}
		for j, c := range p.Containers {
			if c.ID != "" {
				entitled := cpu.FromCores(perBudget * float64(budgetPart(p.Budget, c.Request, request)))
				after[c.ID] = cfg.Next(before[c.ID], withPodQuota(rates[i].Containers[j], rates[i].Own, c), entitled)
			}
		}
	}
	return after
}

// withPodQuota counts throttling by the pod's own quota as throttling of its limited containers: the
// kernel counts it at the cgroup that has the quota, and nowhere else.
func withPodQuota(r, own sense.Rate, c demand.Container) sense.Rate {
	if c.Limited() && own.Validity == sense.Valid {
		r.ThrottleRatio = max(r.ThrottleRatio, own.ThrottleRatio)
	}
	return r
}

// bidders writes the order book. A managed pod that is not warm or not fresh takes part as a shadow.
//
// known says that the node has been watched for as long as a container takes to get warm. Before, nothing is decided;
// after, a new pod may be raised, as what is scarce and what is not is known without it.
func bidders(cfg demand.Config, pods []PodInput, rates []sense.PodRates, estimates map[string]demand.Estimate, known bool) ([]bidder, Skipped) {
	book := make([]bidder, 0, len(pods)+4)
	var held Skipped
	for i, p := range pods {
		managed, unheld, isYoung := !p.Unmanaged, false, false
		if managed {
			switch s := readinessOf(cfg, p.Pod, rates[i], estimates); {
			case s == warmingUp && known:
				isYoung = true
			case s == warmingUp, s == noRates:
				held.WarmingUp++
				managed = false
			case s == stale:
				held.Stale++
				managed = false
			case s == unenforced:
				held.Unenforced++
				managed, unheld = false, true
			}
		}
		in := bidder{pod: i, managed: true, warmingUp: isYoung, signalPercent: p.DemandPercent}
		out := bidder{pod: i}
		var inRequest, outRequest cpu.Milli
		for j, c := range p.Containers {
			e, est := &out, estimates[c.ID]
			if managed && c.Limited() {
				e = &in
				inRequest += c.Request
				in.limit += c.Limit
				in.published += p.Published.Limits[c.Name]
				e.bid.Floor += c.BidFloor()
				e.minLimit += c.Floor
				e.bid.Ceiling += c.Ceiling
			} else {
				outRequest += c.Request
			}
			demand, now := est.Demand(), est.LatestDemand()
			if e == &out && c.Limit > 0 && !unheld {
				// Whatever it wants, it cannot use more than a limit that nobody moves.
				demand, now = min(demand, c.Limit), min(now, c.Limit)
			}
			e.bid.Demand += demand
			e.latestDemand += now
			e.usage += rates[i].Containers[j].Usage
			e.throttleRatio = max(e.throttleRatio, est.ThrottleRatio)
			e.latestThrottleRatio = max(e.latestThrottleRatio, withPodQuota(rates[i].Containers[j], rates[i].Own, c).ThrottleRatio)
		}
		// The budget is divided over the two parts of a pod as its requests are.
		whole := inRequest + outRequest
		if managed {
			if p.Ceiling > 0 {
				in.bid.Ceiling = max(min(in.bid.Ceiling, p.Ceiling), in.minLimit)
			}
			in.minLimit = max(in.minLimit, min(rates[i].Own.MinLimit, in.bid.Ceiling))
			in.bid.Budget = budgetPart(p.Budget, inRequest, whole)
			book = append(book, in)
		}
		if out.bid.Demand > 0 {
			out.bid.Budget = budgetPart(p.Budget, outRequest, whole)
			// The kernel's weights give a shadow its request, whatever the price says.
			out.bid.Floor = outRequest
			out.bid.Ceiling = max(out.bid.Demand, outRequest)
			book = append(book, out)
		}
	}
	return book, held
}

// signalled is a demand of the entry as the market is to take it. It makes the price, and nothing else: what holds
// the pod itself is what it demands indeed. Else to ask for more than one's share would be to be held to it, and bursts, whose mean
// lies below it, would be throttled for the asking. For less than it is no demand is taken: a hog that asked for
// little would hide from the price.
func (e *bidder) signalled(demand cpu.Milli) cpu.Milli {
	return demand * cpu.Milli(max(100, e.signalPercent)) / 100
}

// keptForSignals is what a price keeps free because demands are to be taken for more than they are. It counts as used: the market left it
// free on purpose.
func keptForSignals(book []bidder, p market.Price) (sum cpu.Milli) {
	for i := range book {
		e := &book[i]
		line := e.bid.Limit(p)
		sum += max(0, min(e.signalled(e.bid.Demand), line)-max(e.bid.Demand, e.usage)) // a burst takes the room it was kept for
	}
	return sum
}

// withKernelMinimums is the pods with the lowest limits that the kernel takes for their containers. Almost always these lie
// below the floors that the containers have anyway, and then it is the pods themselves.
func withKernelMinimums(pods []PodInput, rates []sense.PodRates) []PodInput {
	shared := true
	for i, p := range pods {
		own := false // the containers are the caller's, so they are copied
		for j, c := range p.Containers {
			least := rates[i].Containers[j].MinLimit
			if !c.Limited() || least <= c.Floor {
				continue
			}
			if shared {
				pods, shared = slices.Clone(pods), false
			}
			if !own {
				pods[i].Containers, own = slices.Clone(p.Containers), true
			}
			pods[i].Containers[j].Floor = max(c.Floor, min(least, c.Ceiling))
		}
	}
	return pods
}

func budgetPart(budget market.Budget, request, whole cpu.Milli) market.Budget {
	if whole == 0 || request == whole {
		return budget
	}
	return max(1, market.Budget(math.Round(float64(budget)*float64(request)/float64(whole))))
}

// hasNoQuota says that the kernel knows quotas, and sets none.
func hasNoQuota(r sense.Rate) bool { return r.QuotaKnown && r.Quota == 0 }

type readiness uint8

const (
	ready     readiness = iota
	warmingUp           // not watched for long enough to be lowered
	noRates             // no rates yet
	stale
	unenforced // the kernel holds it to no limit
)

// readinessOf says whether a pod can be decided: every limited container that runs has a fresh rate
// and a quota, and at least one does. One with too few samples makes it young. The quota may be that of the whole pod.
func readinessOf(cfg demand.Config, p demand.Pod, r sense.PodRates, estimates map[string]demand.Estimate) readiness {
	s := stale
	for j, c := range p.Containers {
		if !c.Limited() || c.ID == "" {
			continue
		}
		switch {
		case r.Containers[j].Validity == sense.NoEarlierSample:
			return noRates
		case r.Containers[j].Validity != sense.Valid:
			return stale
		case hasNoQuota(r.Containers[j]) && !(r.Own.QuotaKnown && r.Own.Quota > 0):
			return unenforced
		case !estimates[c.ID].Warm(cfg):
			s = warmingUp
		case s != warmingUp:
			s = ready
		}
	}
	return s
}
