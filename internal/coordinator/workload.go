package coordinator

import (
	"math"

	"github.com/mbcas/mbcas/market"
)

// workload is a buyer: its replicas, and what is known of their nodes.
type workload struct {
	own     float64 // budget of all replicas without factors
	now     float64 // the same with those in force
	stale   float64 // the part of that which stays, as nothing is known of those replicas
	members []member
	left    []member // those of which nothing is known
	node    string   // of one replica
	apart   bool     // they are on several
	kappa   float64
}

// member is a replica in its workload.
type member struct {
	item
	index   int
	percent Factor // in force
	price   float64
}

func (m *member) factor() float64 { return float64(m.percent) / float64(One) }

// workload takes in the replicas of one.
func (c Config) workload(replicas []Replica, order []int) *workload {
	w := &workload{node: replicas[order[0]].Node}
	rho := c.Workload
	for _, i := range order {
		if replicas[i].Spread {
			rho = c.Spread
		}
		w.apart = w.apart || replicas[i].Node != w.node
	}
	w.kappa = power(rho)
	for _, i := range order {
		r := &replicas[i]
		m := member{index: i, percent: r.Factor, price: float64(r.Price)}
		if m.percent <= 0 {
			m.percent = One
		}
		own := float64(max(r.Own, 1))
		w.own += own
		if !r.Fresh || !(m.price >= 0 && r.Price <= market.MaxPrice) {
			w.now += own * m.factor()
			w.stale += own * m.factor()
			w.left = append(w.left, m)
			continue
		}
		m.percent = c.bound(m.percent)
		w.now += own * m.factor()
		m.item = c.item(r, own)
		if w.moves() {
			m.rate = math.Pow(m.price, w.kappa)
		}
		w.members = append(w.members, m)
	}
	return w
}

func (c Config) bound(f Factor) Factor { return min(max(f, c.Least), c.Most) }

// moves says whether budget goes from one replica to another.
func (w *workload) moves() bool { return w.apart && w.kappa > 0 }

// power is the power of its price to which budget goes to a node: what a buyer with a CES utility spends on a good.
func power(rho float64) float64 { return rho / (rho - 1) }

// item is what a replica may get, and what use it has for it.
func (c Config) item(r *Replica, own float64) item {
	price, floor := float64(r.Price), float64(max(r.Floor, 1))
	m := item{
		weight: own, rate: 1, open: 1,
		low: float64(c.Least) / float64(One), high: float64(c.Most) / float64(One),
	}
	if r.Pinned {
		m.low = 1
	}
	// What lies within the floor is had for nothing, so who needs hardly more has hardly use for a budget.
	need := min((1+c.Headroom)*float64(max(r.Demand, 0)), max(floor, float64(r.Ceiling)))
	m.most = price * need / own * ramp(need/floor-1, c.Headroom)
	if price > 0 {
		m.open = ramp(own/(price*floor)-1, c.Reach)
	}
	return m
}

// ramp rises from 0 at 0 to 1 at to.
func ramp(x, to float64) float64 { return min(1, max(0, x/to)) }

// dearness is what even service of all replicas costs when budget is moved between them: the price index of a CES utility.
func (w *workload) dearness() float64 {
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
func (w *workload) item(kappa float64) item {
	whole := item{weight: w.own, rate: math.Pow(w.dearness(), kappa), most: w.stale, low: w.stale, high: w.stale, open: 1}
	for k := range w.members {
		m := &w.members[k]
		whole.most += m.weight * m.full()
		whole.low += m.weight * m.least()
		whole.high += m.weight * m.greatest()
	}
	whole.most, whole.low, whole.high = whole.most/w.own, whole.low/w.own, whole.high/w.own
	return whole
}
