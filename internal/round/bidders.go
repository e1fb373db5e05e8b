package round

import (
	"math"
	"slices"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// bidder is one bid of the order book: the limited containers of a managed pod, or an unmanaged part.
type bidder struct {
	pod          int // index into the input
	managed      bool
	bid          market.Bid // with the smoothed demand
	minLimit     cpu.Milli  // the lowest limit; a constraint may set it above the bid's floor
	latestDemand cpu.Milli  // demand of the last tick alone
	usage        cpu.Milli  // in the last tick
	limit        cpu.Milli  // in the spec of the pod
	declared     cpu.Milli  // limit that its owner declared, as far as the ceiling allows it
	published    cpu.Milli  // limit in the published decision; 0: none
	request      cpu.Milli
	saturating   bool      // see disagreement
	keeps        float64   // share of its declared limit that each container keeps
	keptLimit    cpu.Milli // what the pod keeps, if that is more than its floor
	idle         cpu.Milli // what idle containers leave of that
	revocableTo  cpu.Milli // the limit to which its raise may be revoked; 0: it may not
	whenBusy     cpu.Milli // what it keeps once it needs that
	revoked      bool      // its raise was revoked: the declared limit is its ceiling
	takesAll     bool      // its raise may be revoked before a look sees that it takes all it can get
	// The highest throttle ratio among its containers: smoothed, and of the last tick.
	throttleRatio, latestThrottleRatio float64

	needs        []cpu.Milli // how far each of its containers is raised while CPU is not scarce; nil: as far as others leave it
	brief        bool        // throttled within a look, too brief to tell whether it saturates
	warmingUp    bool        // too few samples to be lowered
	leftByOthers cpu.Milli   // of the supply by the other bidders, and at least its share
	// signalPercent is the factor of a DemandSignal on the demand; below 100 it has no effect.
	signalPercent int32
}

// bound is what bounds the pod's limit at a price. An uncapped pod whose demand exceeds its budget line by less than
// CapBand stays uncapped: noise would cap and uncap it in turn. What it keeps counts as its line, and its floor has no
// band. Whether a pod is capped is judged by its published limit, so after a small rise of the price a pod that is not
// throttled at its limit may become uncapped. A pod without a published decision counts as capped.
func (b *bidder) bound(cfg Config, p market.Price) market.Bound {
	buys, band := b.bid, 1+cfg.CapBand
	buys.Floor = max(0, b.keptLimit-b.idle)
	if b.saturating { // it demands more than is known
		band = 1
	}
	line := max(band*buys.Limit(p).Cores(), (b.minLimit - b.idle).Cores())
	if b.bid.Demand.Cores() <= line && b.published.Cores() > line {
		return market.ByNothing
	}
	bound := b.bid.Bound(p)
	if bound == market.ByPrice && b.bid.Limit(p)+b.idle <= b.minLimit {
		return market.ByFloor
	}
	return bound
}

// estimate folds the tick into the estimates of the containers that still exist. perBudget is the
// share in cores of a unit of budget, and 0 while CPU of the node is idle.
func estimate(
	cfg demand.Config, before map[string]demand.Estimate, pods []PodInput, rates []sense.PodRates, perBudget float64,
) map[string]demand.Estimate {
	after := make(map[string]demand.Estimate, len(before))
	for i, p := range pods {
		var request cpu.Milli
		for _, c := range p.Containers {
			request += c.Request
		}
		for j, c := range p.Containers {
			if c.ID != "" {
				share := cpu.FromCores(perBudget * float64(budgetPart(p.Budget, c.Request, request)))
				after[c.ID] = cfg.Next(before[c.ID], withPodQuota(rates[i].Containers[j], rates[i].Own, c), share)
			}
		}
	}
	return after
}

// withPodQuota counts throttling by the pod's own quota as throttling of its limited containers:
// the kernel counts it only at the cgroup with the quota.
func withPodQuota(r, own sense.Rate, c demand.Container) sense.Rate {
	if c.Limited() && own.Validity == sense.Valid {
		r.ThrottleRatio = max(r.ThrottleRatio, own.ThrottleRatio)
	}
	return r
}

// bidders is the order book. A managed pod without valid rates counts as unmanaged.
//
// warm says that the node has WarmUpSamples. Before, nothing is decided. After, a new pod may be
// raised, as the demand of the other pods is known without it.
func bidders(
	cfg demand.Config, pods []PodInput, rates []sense.PodRates, estimates map[string]demand.Estimate, warm bool,
) ([]bidder, Skipped) {
	book := make([]bidder, 0, len(pods)+4)
	var skipped Skipped
	for i, p := range pods {
		state := unmanaged
		if !p.Unmanaged {
			switch state = readinessOf(cfg, p.Pod, rates[i], estimates); {
			case state == noRates, state == warmingUp && !warm:
				skipped.WarmingUp++
			case state == stale:
				skipped.Stale++
			case state == unenforced:
				skipped.Unenforced++
			}
		}
		managed := state == ready || state == warmingUp && warm
		in, out := podBidders(p, rates[i], estimates, managed, state == unenforced)
		in.pod, out.pod, in.warmingUp = i, i, state == warmingUp
		if managed {
			book = append(book, in)
		}
		if out.bid.Demand > 0 {
			book = append(book, out)
		}
	}
	return book, skipped
}

// podBidders are the two parts of a pod: in with its limited containers where it is managed, and
// out with its other containers. Its budget is divided between them as its requests are.
func podBidders(
	p PodInput, rates sense.PodRates, estimates map[string]demand.Estimate, managed, unenforced bool,
) (in, out bidder) {
	in.managed, in.signalPercent = true, p.DemandPercent
	var inRequest, outRequest cpu.Milli
	for j, c := range p.Containers {
		b, est := &out, estimates[c.ID]
		if managed && c.Limited() {
			b = &in
			inRequest += c.Request
			in.limit += c.Limit
			in.declared += c.DeclaredLimit()
			in.published += p.Published.Limits[c.Name]
			in.bid.Floor += c.BidFloor()
			in.minLimit += c.Floor
			in.bid.Ceiling += c.Ceiling
		} else {
			outRequest += c.Request
		}
		smoothed, latest := est.Demand(), est.LatestDemand()
		if b == &out && c.Limit > 0 && !unenforced {
			// Its limit does not change, so it cannot use more than that.
			smoothed, latest = min(smoothed, c.Limit), min(latest, c.Limit)
		}
		r := rates.Containers[j]
		b.bid.Demand += smoothed
		b.latestDemand += latest
		b.usage += r.Usage
		ratio := withPodQuota(r, rates.Own, c).ThrottleRatio
		b.throttleRatio, b.latestThrottleRatio = max(b.throttleRatio, est.ThrottleRatio), max(b.latestThrottleRatio, ratio)
		if b == &in {
			in.needs = append(in.needs, c.Need(r.Usage, est.ThrottleRatio >= needThrottleRatio && ratio > 0))
		}
	}
	whole := inRequest + outRequest
	if p.Ceiling > 0 {
		in.bid.Ceiling = max(min(in.bid.Ceiling, p.Ceiling), in.minLimit)
	}
	in.minLimit = max(in.minLimit, min(rates.Own.MinLimit, in.bid.Ceiling))
	in.request, out.request = inRequest, outRequest
	in.bid.Budget = budgetPart(p.Budget, inRequest, whole)
	out.bid.Budget = budgetPart(p.Budget, outRequest, whole)
	// The kernel's weights give an unmanaged pod its request at any price.
	out.bid.Floor = outRequest
	out.bid.Ceiling = max(out.bid.Demand, outRequest)
	return in, out
}

// signalled is a demand of the bidder with its DemandSignal. It determines the price, and nothing else: the pod itself
// is capped by its own demand. Otherwise a signal for more than its share would cap the pod, and throttle its bursts,
// whose mean is below the share. A signal never lowers a demand: a saturating pod could avoid the price with it.
func (b *bidder) signalled(demand cpu.Milli) cpu.Milli {
	return demand * cpu.Milli(max(100, b.signalPercent)) / 100
}

// keptForSignals is the CPU that a price keeps free because of DemandSignals. It counts as used:
// the market left it free on purpose.
func keptForSignals(book []bidder, p market.Price) (sum cpu.Milli) {
	for i := range book {
		b := &book[i]
		sum += b.kept(p, max(b.bid.Demand, b.usage)) // a burst uses the CPU that was kept free for it
	}
	return sum
}

// kept is what a price keeps free for the DemandSignal of a bidder beyond what it has.
func (b *bidder) kept(p market.Price, has cpu.Milli) cpu.Milli {
	return max(0, min(b.signalled(b.bid.Demand), b.bid.Limit(p))-has)
}

// bounded is a copy of the pods, with their declared limits as ceilings where a raise was revoked, and with floors that
// are at least the lowest quotas that the kernel accepts.
func (s *State) bounded(pods []PodInput, rates []sense.PodRates) []PodInput {
	pods = slices.Clone(pods)
	for i := range pods {
		p := &pods[i]
		if s.raises[p.UID].RevokedFor() > 0 {
			p.Pod = p.AtDeclared()
		}
		for j, c := range p.Containers {
			if least := rates[i].Containers[j].MinLimit; c.Limited() && least > c.Floor {
				p.Containers = slices.Clone(p.Containers)
				p.Containers[j].Floor = max(c.Floor, min(least, c.Ceiling))
			}
		}
	}
	return pods
}

// budgetPart is the part of a pod's budget for a part of its requests.
func budgetPart(budget market.Budget, request, whole cpu.Milli) market.Budget {
	if whole == 0 || request == whole {
		return budget
	}
	return max(1, market.Budget(math.Round(float64(budget)*float64(request)/float64(whole))))
}

// readiness is whether a pod can be decided.
type readiness uint8

const (
	unmanaged readiness = iota
	ready
	warmingUp // too few samples to be lowered
	noRates   // only one sample
	stale
	unenforced // the kernel enforces no limit
)

// readinessOf is the readiness of a managed pod: ready if every running limited container has valid
// rates and a quota, and there is at least one. The quota may be that of the whole pod.
func readinessOf(cfg demand.Config, p demand.Pod, r sense.PodRates, estimates map[string]demand.Estimate) readiness {
	state := stale
	for j, c := range p.Containers {
		if !c.Limited() || c.ID == "" {
			continue
		}
		switch {
		case r.Containers[j].Validity == sense.NoEarlierSample:
			return noRates
		case r.Containers[j].Validity != sense.Valid:
			return stale
		case r.Containers[j].QuotaKnown && r.Containers[j].Quota == 0 && !(r.Own.QuotaKnown && r.Own.Quota > 0):
			return unenforced
		case !estimates[c.ID].Warm(cfg):
			state = warmingUp
		case state != warmingUp:
			state = ready
		}
	}
	return state
}
