package round

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/disagreement"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// TestRaisesAreRevoked: what a pod has above its declared limit while CPU is idle is revoked by a look, in one
// step, when others need it: 20 s after it began to spin, and three. It stays while they fit into what the market does not sell.
func TestRaisesAreRevoked(t *testing.T) {
	for name, c := range map[string]struct {
		spins  int // seconds
		demand cpu.Milli
		want   cpu.Milli
	}{
		"a service comes":                {20, 400, 1200},
		"the raise is recent":            {3, 400, 1200},
		"the others fit":                 {20, 50, 1700},
		"they fit beside a recent raise": {3, 50, 1700},
	} {
		service := &fakePod{name: "service", request: 100, declared: 500, demand: 10}
		hog := &fakePod{name: "hog", request: 600, declared: 1200, demand: 10}
		w := keeping(service, hog)
		for range 30 {
			w.lookAndRun()
		}
		hog.demand = 8000
		for range c.spins {
			w.lookAndRun()
		}
		if hog.limit < 1500 {
			t.Fatalf("%s: the hog was raised to %v", name, hog.limit)
		}
		service.demand = c.demand
		for range 3 {
			w.pass(w.cfg.LookInterval)
			w.look()
		}
		if got := hog.limit.RoundDown(100); got != c.want {
			t.Errorf("%s: three looks later the hog has %v, want %v", name, hog.limit, c.want)
		}
	}
}

// TestOldRaisesAreRevoked: a pod that was raised long ago, and begins to spin beside a busy service, has its declared limit
// after two looks.
func TestOldRaisesAreRevoked(t *testing.T) {
	service := &fakePod{name: "service", request: 100, declared: 500, demand: 10}
	hog := &fakePod{name: "hog", request: 600, declared: 1200, demand: 8000}
	w := keeping(service, hog)
	for range 30 {
		w.lookAndRun()
	}
	hog.demand, service.demand = 5, 400
	for range 60 {
		w.lookAndRun()
	}
	hog.limit, hog.published.Limits = 1600, map[string]cpu.Milli{"c": 1600} // so that it is throttled on the full node, too
	w.lookAndRun()
	before := hog.limit
	hog.demand = 8000
	for range 2 {
		w.pass(w.cfg.LookInterval)
		w.look()
	}
	if before < 1500 || hog.limit != hog.declared {
		t.Errorf("the hog had %v and has %v", before, hog.limit)
	}
}

// TestRevokedPodsWait: a pod whose raise was revoked is raised again once it has waited, and CPU is idle.
func TestRevokedPodsWait(t *testing.T) {
	service := &fakePod{name: "service", request: 100, declared: 500, demand: 10}
	hog := &fakePod{name: "hog", request: 600, declared: 1200, demand: 8000}
	w := keeping(service, hog)
	var below []int // seconds for which the limit is not above the declared one, each time
	for range 4 {
		for range 300 { // until the hog has more
			if w.lookAndRun(); hog.limit > hog.declared {
				break
			}
		}
		w.lookAndRun()
		service.demand = 400
		w.lookAndRun()
		service.demand = 10
		n := 0
		for ; hog.limit <= hog.declared && n < 300; n++ {
			w.lookAndRun()
		}
		below = append(below, n)
	}
	for i, n := range below {
		if least := 10 << i; n < least-1 || n > least+5 {
			t.Errorf("the %d. raise came after %d s, want %d", i+1, n, least)
		}
	}
}

// hogBesideAComer has more than its declared limit when a service comes. It returns after a look at the full node, the
// one before a look would revoke the raise.
func hogBesideAComer() (w *world, hog, service *fakePod) {
	service = &fakePod{name: "service", request: 100, declared: 500, demand: 10}
	hog = &fakePod{name: "hog", request: 600, declared: 1200, demand: 8000}
	w = keeping(service, hog)
	for range 30 {
		w.lookAndRun()
	}
	service.demand = 400
	w.pass(w.cfg.LookInterval)
	w.look()
	return w, hog, service
}

// TestLostRevocations: the round publishes that a raise was revoked if the decision of the look is lost.
func TestLostRevocations(t *testing.T) {
	w, hog, _ := hogBesideAComer()
	w.loses = func(d Decision) bool { return d.UID == hog.name }
	w.pass(w.cfg.LookInterval)
	if out := w.look(); len(out.Decisions) != 1 || hog.limit < 1500 {
		t.Fatalf("the look decides %+v, and the hog has %v", out.Decisions, hog.limit)
	}
	w.loses = nil
	hog.published.At = w.now // another decrease would wait
	if w.tick(); hog.limit != hog.declared {
		t.Errorf("a round later the hog has %v", hog.limit)
	}
}

// TestRestartsEndNoWait: a container that restarts while its pod waits for the next raise is not raised as a new one,
// neither when it is first read nor by a round or a look.
func TestRestartsEndNoWait(t *testing.T) {
	w, hog, service := hogBesideAComer()
	w.lookAndRun()
	service.demand = 10
	w.lookAndRun()
	hog.id, hog.stat = "hog-2", kernel.Stat{}
	w.pass(w.cfg.LookInterval)
	in := w.input()
	in.Sample.Pods = in.Sample.Pods[1:2]
	if _, out := Join(w.cfg, w.state, in.Pods[1:2], in.Sample); !w.state.TakesIn() || hog.stat.Throttled == 0 || len(out.Decisions) > 0 {
		t.Errorf("throttled in %d periods it gets %+v", hog.stat.Throttled, out.Decisions)
	}
	for second := range 6 {
		if w.lookAndRun(); hog.limit != hog.declared {
			t.Fatalf("after %d s the hog has %v", second+1, hog.limit)
		}
	}
}

// TestPricesOfFullNodes: a node that has been full for Onset has a price, and no look revokes a raise.
func TestPricesOfFullNodes(t *testing.T) {
	for name, full := range map[string]func(*world){
		"by looks":  func(w *world) { w.cfg.Onset = w.cfg.LookInterval },
		"by rounds": func(w *world) { w.state.gauge.fullFor = w.cfg.Onset },
	} {
		w, hog, _ := hogBesideAComer()
		full(w)
		w.pass(w.cfg.LookInterval)
		if w.look(); hog.limit < 1500 {
			t.Errorf("%s: the hog has %v", name, hog.limit)
		}
	}
}

// TestContainersAreRevoked: each container goes back to its declared limit, or to its floor where that is higher.
func TestContainersAreRevoked(t *testing.T) {
	container := func(name string, declared, limit, floor cpu.Milli) demand.Container {
		return demand.Container{Name: name, Declared: declared, Limit: limit}.Within(floor, 4000)
	}
	p := PodInput{
		Pod: demand.Pod{UID: "p", Budget: 100, Containers: []demand.Container{
			container("a", 500, 1500, 0), container("b", 100, 100, 0), container("c", 300, 900, 700), {Name: "unlimited"},
		}},
		Published: Published{At: epoch, Limits: map[string]cpu.Milli{"a": 1500, "b": 100, "c": 900}},
	}
	cfg := DefaultConfig()
	s := State{
		raises: map[string]disagreement.Raise{}, solver: new(market.Solver), fullAt: epoch, fullFor: cfg.LookInterval,
	}
	b := bidder{
		managed: true, saturating: true, limit: 2500, declared: 900, published: 2500, minLimit: 850,
		bid: market.Bid{Budget: 100, Demand: 5000, Floor: 310, Ceiling: 4000},
	}
	pods, book := []PodInput{p}, []bidder{b}
	s.noteRaises(cfg, pods, book)
	s.look = lookState{pods: pods, book: book, rates: make([]sense.PodRates, 1), decided: map[string]bool{}}
	s.look.rates[0].Containers = make([]sense.Rate, 4)
	d, revoked := s.revoke(cfg, []observed{{usage: 2400}})
	want := []ContainerLimit{{"a", 500}, {"b", 100}, {"c", 700}}
	if !revoked || d.Limit != 1300 || !slices.Equal(d.Containers, want) || d.Floor != 850 || d.RevokedFor != 10*time.Second {
		t.Errorf("%v, %+v: want %v", revoked, d, want)
	}
}

// TestBegunPodsAreRevoked: a look cannot see throttled what a full node leaves less than its limit. It revokes the raise of
// such a pod if that has just begun, as it uses more than twice its mean demand, and uses up its limit.
func TestBegunPodsAreRevoked(t *testing.T) {
	p := PodInput{Pod: demand.Pod{UID: "p", Containers: []demand.Container{
		demand.Container{Name: "a", Declared: 1200, Limit: 1900}.Within(600, 4000),
	}}}
	for name, c := range map[string]struct {
		before, mean, usage cpu.Milli
		want                bool
	}{
		"it has begun": {5, 100, 1600, true}, "it was busy": {800, 900, 1600, false}, "it uses less": {5, 100, 1300, false},
		"it began in the last round": {1600, 500, 1600, true},
	} {
		b := bidder{
			managed: true, limit: 1900, published: 1900, declared: 1200, minLimit: 1200, usage: c.before, revocableTo: 1200,
			bid: market.Bid{Budget: 600, Demand: c.mean, Floor: 600, Ceiling: 4000},
		}
		s := State{fullAt: epoch, fullFor: DefaultConfig().LookInterval, raises: map[string]disagreement.Raise{}, solver: new(market.Solver)}
		s.look = lookState{pods: []PodInput{p}, book: []bidder{b}, rates: make([]sense.PodRates, 1), decided: map[string]bool{}}
		s.look.rates[0].Containers = make([]sense.Rate, 1)
		if d, got := s.revoke(DefaultConfig(), []observed{{usage: c.usage}}); got != c.want || got && d.Limit != 1200 {
			t.Errorf("%s: revoked %v, to %v", name, got, d.Limit)
		}
	}
}

// TestFloorsShieldNone: a pod whose floor is above its declared limit is not the one whose raise is revoked.
func TestFloorsShieldNone(t *testing.T) {
	p := PodInput{Pod: demand.Pod{UID: "p", Containers: []demand.Container{
		demand.Container{Name: "a", Declared: 300, Limit: 900}.Within(900, 4000),
	}}}
	s := State{raises: map[string]disagreement.Raise{}}
	book := []bidder{{managed: true, saturating: true, limit: 900, declared: 300, published: 900, minLimit: 900}}
	if s.noteRaises(DefaultConfig(), []PodInput{p}, book); book[0].revocableTo != 0 {
		t.Errorf("its raise may be revoked to %v", book[0].revocableTo)
	}
}

// TestPrioritiesShield: a raise of 600m is not revoked while a pod of lower priority uses as much above its floor of 100m as
// is used of that raise, and more than half of its limit, in the last second or, where a look reads it, since then.
func TestPrioritiesShield(t *testing.T) {
	for name, c := range map[string]struct {
		priority         int32
		limit, used, now cpu.Milli
		usage            cpu.Milli // of the raised pod
		want             bool
	}{
		"lower": {100, 900, 700, 700, 900, false}, "it uses little": {100, 900, 690, 690, 900, true},
		"its limit is far": {100, 1400, 700, 700, 900, true}, "it has begun": {100, 900, 0, 700, 900, false},
		"it has stopped": {100, 900, 700, 0, 900, true}, "it is not read": {100, 900, 700, -1, 900, false},
		"the same": {400, 900, 700, 700, 900, true}, "higher": {800, 900, 700, 700, 900, true},
		"none, which is 100": {0, 900, 700, 700, 900, false}, "it pays what is used": {100, 900, 690, 690, 800, false},
	} {
		cfg := DefaultConfig()
		s := State{raises: map[string]disagreement.Raise{}, solver: new(market.Solver), fullAt: epoch, fullFor: cfg.LookInterval}
		pods := []PodInput{{Pod: demand.Pod{UID: "p", Containers: []demand.Container{
			demand.Container{Name: "a", Declared: 300, Limit: 900}.Within(100, 4000),
		}}}, {Pod: demand.Pod{UID: "other"}}}
		pods[0].PriorityPercent, pods[1].PriorityPercent = 400, c.priority
		book := []bidder{{
			managed: true, saturating: true, limit: 900, declared: 300, published: 900, minLimit: 100,
			bid: market.Bid{Budget: 100, Demand: 5000, Floor: 100, Ceiling: 4000},
		}, {managed: true, pod: 1, limit: c.limit, declared: 900, published: c.limit, usage: c.used, bid: market.Bid{Floor: 100}}}
		s.noteRaises(cfg, pods, book)
		s.look = lookState{pods: pods, book: book, rates: make([]sense.PodRates, 2), decided: map[string]bool{}}
		s.look.rates[0].Containers = make([]sense.Rate, 1)
		if c.now >= 0 {
			s.look.usage = map[int]cpu.Milli{1: c.now}
		}
		if d, got := s.revoke(cfg, []observed{{usage: c.usage}}); got != c.want || got && d.Limit != 300 {
			t.Errorf("%s: revoked: %v, to %v", name, got, d.Limit)
		}
	}
}

// TestFullNodesRaiseNone: neither a look nor a round raises a service that is throttled at its declared limit while the node
// has just become full, unless pods of lower priority pay. A look does once CPU is idle.
func TestFullNodesRaiseNone(t *testing.T) {
	for name, c := range map[string]struct {
		hog    int32 // its priority
		round  bool
		raised bool
	}{
		"a look, the hog has the same priority":  {100, false, false},
		"a look, it has a lower one":             {50, false, true},
		"a round, the hog has the same priority": {100, true, false},
		"a round, it has a lower one":            {50, true, true},
	} {
		service := &fakePod{name: "service", request: 250, declared: 300, demand: 10}
		hog := &fakePod{name: "hog", request: 600, declared: 1750, demand: 10, ceiling: 1750, priority: c.hog}
		w := keeping(service, hog)
		for range 30 {
			w.lookAndRun()
		}
		hog.demand = 8000
		w.lookAndRun()
		service.demand = 300
		w.pass(w.cfg.LookInterval)
		w.look()
		service.bursts = 0.5
		w.pass(w.cfg.LookInterval)
		if c.round {
			w.state.look = lookState{busy: w.state.look.busy} // a recording leaves the rest out
			if out := w.round(); out.Node.Price > 0 {
				t.Fatalf("%s: the price is %v", name, out.Node.Price)
			}
		} else {
			w.look()
		}
		if got := service.limit > service.declared; got != c.raised || w.state.fullAt.IsZero() {
			t.Errorf("%s: the service has %v; the node is full: %v", name, service.limit, !w.state.fullAt.IsZero())
		}
		if c.raised || c.round {
			continue
		}
		hog.demand = 10
		w.pass(w.cfg.LookInterval)
		if w.look(); service.limit <= service.declared {
			t.Errorf("%s: beside idle CPU the service has %v", name, service.limit)
		}
	}
	s := State{fullAt: epoch}
	for after, want := range map[time.Duration]bool{200 * time.Millisecond: true, 2 * time.Second: false} {
		if s.last.Node.At = epoch.Add(after); s.mayRevoke(DefaultConfig()) != want {
			t.Errorf("%v after the last look a round takes the node to be full: %v", after, !want)
		}
	}
}

// TestSmallSpinnersShieldNone: a small pod of low priority that spins keeps no raise from being revoked.
func TestSmallSpinnersShieldNone(t *testing.T) {
	service := &fakePod{name: "service", request: 100, declared: 500, demand: 10}
	hog := &fakePod{name: "hog", request: 600, declared: 1200, demand: 8000}
	small := &fakePod{name: "small", request: 10, declared: 20, demand: 1000, priority: 50}
	w := keeping(service, hog, small)
	for range 30 {
		w.lookAndRun()
	}
	before := hog.limit
	service.demand = 400
	for range 3 {
		w.pass(w.cfg.LookInterval)
		w.look()
	}
	if before < 1500 || hog.limit != hog.declared {
		t.Errorf("the hog had %v and has %v", before, hog.limit)
	}
}

// TestBudgetsOrderRevocations: of two pods the one is revoked that uses more above its declared limit for its budget.
func TestBudgetsOrderRevocations(t *testing.T) {
	service := &fakePod{name: "service", request: 100, declared: 500, demand: 10}
	large := &fakePod{name: "large", request: 100, budget: 800, declared: 400, demand: 8000}
	small := &fakePod{name: "small", request: 100, declared: 400, demand: 8000}
	w := keeping(service, large, small)
	for range 30 {
		w.lookAndRun()
	}
	large.limit, small.limit = 1000, 780
	large.published.Limits, small.published.Limits = map[string]cpu.Milli{"c": 1000}, map[string]cpu.Milli{"c": 780}
	w.lookAndRun()
	large.limit, small.limit = 1000, 780
	service.demand = 400
	for range 2 {
		w.pass(w.cfg.LookInterval)
		w.look()
	}
	if large.limit < 900 || small.limit != small.declared {
		t.Errorf("the limits are %v and %v", large.limit, small.limit)
	}
}

// TestFlippingDemandRevokesSeldom: beside demand that flips each second raises are revoked less and less often.
func TestFlippingDemandRevokesSeldom(t *testing.T) {
	w, _, service := hogBesideAComer()
	revoked := 0
	for second := range 600 {
		if service.demand = 10; second%2 == 0 {
			service.demand = 400
		}
		looks, _ := w.lookAndRun()
		for _, out := range looks {
			for _, d := range out.Decisions {
				if d.RevokedFor > 0 && d.Limit < d.Usage {
					revoked++
				}
			}
		}
	}
	if revoked < 2 || revoked > 7 { // waits of 10, 20, 40, 80, 160 and 300 s
		t.Errorf("revoked %d times in ten minutes", revoked)
	}
}

// TestServicesKeepRaises: a service that was raised a while ago, and does not use up its limit, keeps it on a node that
// turns full.
func TestServicesKeepRaises(t *testing.T) {
	service := &fakePod{name: "service", request: 100, declared: 500, demand: 10}
	other := &fakePod{name: "other", request: 100, declared: 1500, demand: 300}
	w := keeping(service, other, &fakePod{name: "read by looks", request: 100, declared: 300, demand: 60})
	for range 30 {
		w.lookAndRun()
	}
	service.demand = 900
	for range 20 {
		w.lookAndRun()
	}
	before := service.limit
	other.demand = 2000
	for range 4 {
		w.pass(w.cfg.LookInterval)
		w.look()
	}
	if before < 1000 || service.limit != before || w.state.fullAt.IsZero() {
		t.Errorf("the limit was %v and is %v; the node is full: %v", before, service.limit, !w.state.fullAt.IsZero())
	}
}

// TestSpinnersUseTheNode: pods that begin to spin at once use the node: their raises are not all revoked.
func TestSpinnersUseTheNode(t *testing.T) {
	for n := 1; n <= 4; n++ {
		var pods []*fakePod
		for i := range n {
			pods = append(pods, &fakePod{name: string(rune('a' + i)), request: 100, declared: 300, demand: 10})
		}
		w := keeping(pods...)
		for range 30 {
			w.lookAndRun()
		}
		for _, p := range pods {
			p.demand = 8000
		}
		const seconds = 600
		before := w.all
		for range seconds {
			w.lookAndRun()
		}
		if used := (w.all - before).Seconds() / seconds; used < 0.85*2 {
			t.Errorf("%d pods use %.2f of 2 cores", n, used)
		}
	}
}
