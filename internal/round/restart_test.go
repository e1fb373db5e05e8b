package round

import (
	"fmt"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/disagreement"
	"github.com/mbcas/mbcas/internal/kernel"
)

// settledNode is a node with a steady price that is not the cleared one, but within its band.
func settledNode(t *testing.T) (w *world, service, batch *fakePod) {
	t.Helper()
	service = &fakePod{name: "service", request: 1000, declared: 2000, demand: 420, bursts: 0.9}
	batch = &fakePod{name: "batch", request: 1000, declared: 4000, demand: 8000}
	w = priceAlone(service, batch)
	w.run(900)
	service.demand += 80
	w.run(300)
	p, n := w.state.price, w.run(60).Node
	if p.inForce == 0 || n.Price != p.inForce || n.Cleared == n.Price {
		t.Fatalf("price %v, then %v, cleared at %v: want one in force, steady, and another than the cleared", p.inForce, n.Price, n.Cleared)
	}
	return w, service, batch
}

// TestRestartKeepsThePrice: after a restart of the agent, a pause, or counters of the node that went
// back, the price in force goes on, and while load is steady no decision is published.
func TestRestartKeepsThePrice(t *testing.T) {
	for name, interrupt := range map[string]func(*world){
		"restart": func(w *world) { w.state, w.before = State{}, w.state.price.inForce },
		"pause":   func(w *world) { w.now = w.now.Add(30 * time.Second) },
		"counters of the node went back": func(w *world) {
			w.state.last.Node.Usage = kernel.KnownTotal(w.all + time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, batch := settledNode(t)
			price, changes, at := w.state.price.inForce, batch.changes, batch.published.At
			interrupt(w)
			for second := range 120 {
				out := w.tick()
				warm := w.state.samples >= w.cfg.Demand.WarmUpSamples
				if warm && out.Node.Price != price {
					t.Fatalf("price %v instead of %v %d s after it", out.Node.Price, price, second)
				}
				for _, d := range out.Decisions {
					if !warm && d.Publish {
						t.Fatalf("%s gets %v at price %v before the node has enough samples", d.UID, d.Limit, d.Price)
					}
				}
			}
			if batch.changes != changes || !batch.published.At.Equal(at) {
				t.Errorf("the limit of the capped pod changed %d times, or was published again", batch.changes-changes)
			}
		})
	}
}

// TestPriceBeforeCountsOnce: a price of the time before that becomes known late, when the node has
// enough samples, changes nothing.
func TestPriceBeforeCountsOnce(t *testing.T) {
	idle := &fakePod{name: "idle", request: 1000, declared: 4000, demand: 500}
	w := newWorld(idle)
	w.run(w.cfg.Demand.WarmUpSamples + 1)
	w.before = 0.5
	if out := w.tick(); out.Node.Price != 0 {
		t.Errorf("price %v on an idle node, of a time long before", out.Node.Price)
	}
}

// TestPriceOfTheTimeBeforeEnds: a price that was taken up after a restart falls as any other when
// CPU is not scarce any more.
func TestPriceOfTheTimeBeforeEnds(t *testing.T) {
	w, _, batch := settledNode(t)
	w.state, w.before, batch.demand = State{}, w.state.price.inForce, 100
	out := w.run(w.cfg.Demand.WarmUpSamples + int(w.cfg.FallDelay.Seconds()) + 5)
	if out.Node.Price != 0 {
		t.Errorf("price %v, and no pod needs CPU", out.Node.Price)
	}
}

// TestStateForgetsPods: what a round keeps for the next of a pod goes with the pod, however many there were.
func TestStateForgetsPods(t *testing.T) {
	w := newWorld()
	w.cfg.Disagreement = disagreement.DefaultConfig()
	for i := range 200 {
		w.pods = nil
		w.join(&fakePod{name: fmt.Sprintf("p%d", i), request: 100, declared: 500, demand: 300},
			&fakePod{name: fmt.Sprintf("q%d", i), request: 100, declared: 500, demand: 9000})
		w.run(20)
	}
	if n := len(w.state.estimates); n != 2 {
		t.Errorf("%d estimates for two pods", n)
	}
	w.pods = nil
	w.run(2)
	if s := w.state; len(s.estimates)+len(s.disagreement)+len(s.raises)+len(s.last.Pods) > 0 {
		t.Errorf("%d estimates, %d pods in disagreement, %d raises and %d samples without pods", len(s.estimates),
			len(s.disagreement), len(s.raises), len(s.last.Pods))
	}
}
