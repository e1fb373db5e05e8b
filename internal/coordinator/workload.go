package coordinator

import (
	"math"

	"github.com/mbcas/mbcas/market"
)

// workload is a buyer: its replicas, and what is known of their nodes.
type workload struct {
	base       float64 // budget of all replicas without factors
	inForce    float64 // the same with those in force
	fixed      float64 // the part of that which stays, as nothing is known of those replicas
	members    []member
	unknown    []member // those of which nothing is known
	node       string   // of one replica
	spansNodes bool     // they are on several
	kappa      float64
}

// member is a replica in its workload.
type member struct {
	claim
	index   int
	percent Factor // in force
	price   float64
}

func (m *member) factor() float64 { return float64(m.percent) / float64(One) }

// workload takes in the replicas of one.
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
			m.percent = One
		}
		own := float64(max(r.BaseBudget, 1))
		w.base += own
		if !r.UpToDate || !(m.price >= 0 && r.Price <= market.MaxPrice) {
			w.inForce += own * m.factor()
			w.fixed += own * m.factor()
			w.unknown = append(w.unknown, m)
			continue
		}
		m.percent = c.bound(m.percent)
		w.inForce += own * m.factor()
		m.claim = c.item(r, own)
		if w.movable() {
			m.rate = math.Pow(m.price, w.kappa)
		}
		w.members = append(w.members, m)
	}
	return w
}

func (c Config) bound(f Factor) Factor { return min(max(f, c.MinFactor), c.MaxFactor) }

// movable says whether budget goes from one replica to another.
func (w *workload) movable() bool { return w.spansNodes && w.kappa > 0 }

// priceExponent is the power of its price to which budget goes to a node: what a buyer with a CES utility spends on a good.
func priceExponent(rho float64) float64 { return rho / (rho - 1) }

// item is what a replica may get, and what use it has for it.
func (c Config) item(r *Replica, own float64) claim {
	price, floor := float64(r.Price), float64(max(r.Floor, 1))
	m := claim{
		weight: own, rate: 1, gain: 1,
		low: float64(c.MinFactor) / float64(One), high: float64(c.MaxFactor) / float64(One),
	}
	if r.FixedToNode {
		m.low = 1
	}
	// What lies within the floor is had for nothing, so who needs hardly more has hardly use for a budget.
	need := min((1+c.Headroom)*float64(max(r.Demand, 0)), max(floor, float64(r.Ceiling)))
	m.useful = price * need / own * ramp(need/floor-1, c.Headroom)
	if price > 0 {
		m.gain = ramp(own/(price*floor)-1, c.FloorMargin)
	}
	return m
}

// ramp rises from 0 at 0 to 1 at to.
func ramp(x, to float64) float64 { return min(1, max(0, x/to)) }

// priceIndex is what even service of all replicas costs when budget is moved between them: the price index of a CES utility.
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

// item is the workload as its namespace sees it.
func (w *workload) item(kappa float64) claim {
	whole := claim{weight: w.base, rate: math.Pow(w.priceIndex(), kappa), useful: w.fixed, low: w.fixed, high: w.fixed, gain: 1}
	for k := range w.members {
		m := &w.members[k]
		whole.useful += m.weight * m.satisfied()
		whole.low += m.weight * m.minimum()
		whole.high += m.weight * m.maximum()
	}
	whole.useful, whole.low, whole.high = whole.useful/w.base, whole.low/w.base, whole.high/w.base
	return whole
}
