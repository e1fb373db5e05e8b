// Package quota divides what a ResourceQuota leaves for CPU limits over the pods of its namespace, on
// all nodes, and keeps increases within it. It is pure.
//
// What it promises, each a test of the same name:
//   - WithinTheRoom: the shares add up to no more than the room, unless what may not be taken away
//     does already.
//   - NeverBelowItsOwn: no share is less than what the pod may always have.
//   - NothingIsLeftWhileWanted: room is left over only when every share is the most that its pod can
//     get.
//   - NeedComesFirst: no pod gets more than it needs, and than its own, while another gets less than
//     it needs.
//   - BudgetsDecide: of pods that get more than their own and less than they need, and of those that
//     get more than they need, each gets as much for its budget.
//   - NoSplitStays: pods with equal bids that are capped get equal shares, however small some of
//     their shares were before.
//   - SteadySharesStay: shares that would change by less than the band stay as they were, where that
//     leaves enough free. The promises about need and budgets are to within that.
//   - GrantsShowInTurn: what one increase adds to a quota is not taken for another one.
//   - ReplicasGrantNoMoreThanIsLeft: replicas that do not know of each other's grants yet grant no more
//     than a quota leaves, and what one of them does not use the others get.
//   - TalliesAreExact: a question costs the same however many pods wait, and has the same answer.
//   - OneShortageCountsOnce: refusals at the same time cause one back-off.
package quota

import (
	"errors"
	"fmt"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// Config is how a quota is divided.
type Config struct {
	// Headroom is the share of a quota, in [0, 1), that increases leave free, so that new pods find
	// room. Larger lets more of them start at once; smaller gives running pods more.
	Headroom float64
	// Band is the relative change of a share that is not worth telling, in [0, 1). Larger is
	// steadier.
	Band float64
}

// DefaultConfig is what we would run ourselves.
func DefaultConfig() Config { return Config{Headroom: 0.10, Band: 0.10} }

// Validate says everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	for i, v := range []float64{c.Headroom, c.Band} {
		if !(v >= 0 && v < 1) {
			name := []string{"Headroom", "Band"}[i]
			errs = append(errs, fmt.Errorf("quota %s is %v: want at least 0 and less than 1", name, v))
		}
	}
	return errors.Join(errs...)
}

// Claim is the part of one pod in what a quota leaves.
type Claim struct {
	// Own is the limit that the pod may always have: what its owner declared, or its floor.
	Own cpu.Milli
	// Most is the highest limit that it can get, at least Own.
	Most cpu.Milli
	// Demand is its mean demand.
	Demand cpu.Milli
	// Budget is what it bids with: its request, times what its priority counts.
	Budget market.Budget
	// Last is the share that it was told last; 0: none.
	Last cpu.Milli
}

// Room is what a quota leaves. One that has not been counted yet leaves nothing.
type Room struct {
	Name       string
	Hard, Used cpu.Milli
	// Others is what pods other than the claimants count. It need not be of the same moment as Used.
	Others cpu.Milli
}

// loadFactor is how many times its mean demand a pod needs as a limit, as its load varies. By usage,
// its agent asks for a higher limit from half of the one it has (internal/round).
const loadFactor = 2

// need is the limit that the pod needs now, within what it may always have and the most that it can
// get.
func (c Claim) need() cpu.Milli {
	return (loadFactor * c.Demand).RoundUp(cpu.Quantum).Clamp(c.Own, c.top())
}

func (c Claim) top() cpu.Milli { return max(c.Own, c.Most) }

// Share is the highest limit of each claimant, in the order of the claims. What others leave, less
// the headroom, is divided by budgets, up to the need of each pod; what is over then goes to all, by
// budgets again. It is not divided by demand: a capped pod shows at most twice what it has, so a
// small share would stay small. short is false where all claimants can have the most, so that none
// need be bounded.
func (c Config) Share(r Room, claims []Claim) (shares []cpu.Milli, short bool) {
	supply := c.mark(r.Hard) - r.Others
	var needs, most cpu.Milli
	for _, claim := range claims {
		needs += claim.need()
		most += claim.top()
	}
	if most <= supply {
		return nil, false
	}
	problem := market.Problem{Supply: supply, Bids: make([]market.Bid, len(claims))}
	for i, claim := range claims {
		low, high := claim.Own, claim.need()
		if needs <= supply {
			low, high = high, claim.top()
		}
		problem.Bids[i] = market.Bid{Budget: claim.Budget, Demand: high, Floor: low, Ceiling: high}
	}
	price := market.Clear(problem).Price
	shares, steady := make([]cpu.Milli, len(claims)), make([]cpu.Milli, len(claims))
	var sum cpu.Milli
	for i, b := range problem.Bids {
		shares[i] = max(b.Limit(price).RoundDown(cpu.Quantum), b.Floor)
		steady[i] = shares[i]
		if last := claims[i].Last; last >= claims[i].Own && last <= claims[i].top() && c.near(shares[i], last) {
			steady[i] = last
		}
		sum += steady[i]
	}
	if sum <= supply && r.Used <= c.mark(r.Hard) { // else another pod waits for the difference
		return steady, true
	}
	return shares, true
}

// mark is up to where increases may fill the quota.
func (c Config) mark(hard cpu.Milli) cpu.Milli { return cpu.FromCores(hard.Cores() * (1 - c.Headroom)) }

func (c Config) near(now, before cpu.Milli) bool {
	d := (now - before).Cores()
	return max(d, -d) <= c.Band*before.Cores()
}

// Grant is how much of an increase fits now: below is what is missing to what the pod may always
// have, for which the whole quota is there; above is the rest, which leaves the headroom alone.
// reserved is what was granted and does not show in Used yet.
func (c Config) Grant(r Room, reserved, below, above cpu.Milli) (cpu.Milli, cpu.Milli) {
	below = max(0, min(below, r.Hard-r.Used-reserved))
	above = max(0, min(above, c.mark(r.Hard)-r.Used-reserved-below))
	return below, above
}
