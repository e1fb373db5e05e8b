package coordinator

import (
	"math"

	"github.com/mbcas/mbcas/market"
)

// workload is a buyer: its replicas with the figures of their nodes.
type workload struct {
	base       float64  // budget of all replicas without factors
	inForce    float64  // the same with the factors in force
	fixed      float64  // the part of that of outdated replicas
	members    []member // with current figures
	outdated   []member
	node       string // of one replica
	spansNodes bool
	kappa      float64
}

// member is a replica in its workload.
type member struct {
	claim
	index   int    // into the input
	percent Factor // in force
	price   float64
}

func (m *member) factor() float64 { return float64(m.percent) / float64(Neutral) }

// workload collects the replicas of one workload.
func (c Config) workload(replicas []Replica, order []int) *workload {
	w := &workload{node: replicas[order[0]].Node}
	rho := c.WorkloadRho
	for _, i := range order {
		if replicas[i].TopologySpread {
			rho = c.SpreadRho
		}
		w.spansNodes = w.spansNodes || replicas[i].Node != w.node
	}
	w.kappa = priceExponent(rho)
	for _, i := range order {
		r := &replicas[i]
		m := member{index: i, percent: r.Factor, price: float64(r.Price)}
		if m.percent <= 0 {
			m.percent = Neutral
		}
		base := float64(max(r.BaseBudget, 1))
		w.base += base
		if !r.UpToDate || !(m.price >= 0 && r.Price <= market.MaxPrice) {
			w.inForce += base * m.factor()
			w.fixed += base * m.factor()
			w.outdated = append(w.outdated, m)
			continue
		}
		m.percent = min(max(m.percent, c.MinFactor), c.MaxFactor)
		w.inForce += base * m.factor()
		m.claim = c.replicaClaim(r, base)
		if w.movable() {
			m.rate = math.Pow(m.price, w.kappa)
		}
		w.members = append(w.members, m)
	}
	return w
}

// movable says whether budget moves between the replicas.
func (w *workload) movable() bool { return w.spansNodes && w.kappa > 0 }

// priceExponent is the power of its price to which a node gets budget: the spending of a buyer with
// a CES utility on a good.
func priceExponent(rho float64) float64 { return rho / (rho - 1) }

// replicaClaim is the claim of a replica with this base budget.
func (c Config) replicaClaim(r *Replica, base float64) claim {
	price, floor := float64(r.Price), float64(max(r.Floor, 1))
	m := claim{
		weight: base, rate: 1, gain: 1,
		low: float64(c.MinFactor) / float64(Neutral), high: float64(c.MaxFactor) / float64(Neutral),
	}
	if r.FixedToNode {
		m.low = 1
	}
	// The floor needs no budget, so a replica that needs hardly more has hardly use for one.
	need := min((1+c.Headroom)*float64(max(r.Demand, 0)), max(floor, float64(r.Ceiling)))
	m.useful = price * need / base * ramp(need/floor-1, c.Headroom)
	if price > 0 {
		m.gain = ramp(base/(price*floor)-1, c.FloorMargin)
	}
	return m
}

// ramp rises from 0 at 0 to 1 at to.
func ramp(x, to float64) float64 { return min(1, max(0, x/to)) }

// priceIndex is the price of even service of all replicas when budget moves between them: the price
// index of a CES utility.
func (w *workload) priceIndex() float64 {
	kappa := w.kappa
	if kappa == 0 {
		kappa = 1
	}
	sum, weights := 0.0, 0.0
	for k := range w.members {
		m := &w.members[k]
		sum += m.weight * math.Pow(m.price, kappa)
		weights += m.weight
	}
	if weights == 0 {
		return 0
	}
	return math.Pow(sum/weights, 1/kappa)
}

// claim is the claim of the workload in its namespace.
func (w *workload) claim(kappa float64) claim {
	total := claim{
		weight: w.base, rate: math.Pow(w.priceIndex(), kappa), useful: w.fixed, low: w.fixed, high: w.fixed, gain: 1,
	}
	for k := range w.members {
		m := &w.members[k]
		total.useful += m.weight * m.satisfied()
		total.low += m.weight * m.minimum()
		total.high += m.weight * m.maximum()
	}
	total.useful, total.low, total.high = total.useful/w.base, total.low/w.base, total.high/w.base
	return total
}
