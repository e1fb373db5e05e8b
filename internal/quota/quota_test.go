package quota

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// draw makes a room and claims of a size and tightness that vary.
func draw(rng *rand.Rand) (Room, []Claim) {
	claims := make([]Claim, 1+rng.IntN(12))
	var r Room
	for i := range claims {
		c := Claim{Own: cpu.Milli(10 * (1 + rng.IntN(200))), Demand: cpu.Milli(rng.IntN(3000)), Budget: market.Budget(rng.IntN(5000))}
		c.Most = c.Own + cpu.Milli(10*(rng.IntN(1600)-50)) // now and then less than its own
		if rng.IntN(3) == 0 {
			c.Last = c.Own + cpu.Milli(10*rng.IntN(800))
		}
		claims[i] = c
		r.Used += c.Own
	}
	r.Others = cpu.Milli(rng.IntN(3000))
	r.Used += r.Others
	r.Hard = cpu.Milli(float64(r.Used) * (0.5 + 3*rng.Float64()))
	return r, claims
}

func each(t *testing.T, check func(c Config, r Room, claims []Claim, shares []cpu.Milli)) {
	t.Helper()
	c, short := DefaultConfig(), 0
	for seed := range uint64(5000) {
		r, claims := draw(rand.New(rand.NewPCG(seed, 1)))
		shares, s := c.Share(r, claims)
		if !s {
			continue
		}
		short++
		check(c, r, claims, shares)
		if t.Failed() {
			t.Fatalf("seed %d: room %+v, claims %+v, shares %v", seed, r, claims, shares)
		}
	}
	if short < 1000 {
		t.Fatalf("only %d of the draws were short", short)
	}
}

func sum(shares []cpu.Milli) (s cpu.Milli) {
	for _, m := range shares {
		s += m
	}
	return s
}

func owns(claims []Claim) (s cpu.Milli) {
	for _, c := range claims {
		s += c.Own
	}
	return s
}

func TestWithinTheRoom(t *testing.T) {
	each(t, func(c Config, r Room, claims []Claim, shares []cpu.Milli) {
		if room := c.mark(r.Hard) - r.Others; sum(shares) > max(room, owns(claims)) {
			t.Errorf("the shares are %v in a room of %v, of which the pods' own is %v", sum(shares), room, owns(claims))
		}
	})
}

func TestNeverBelowItsOwn(t *testing.T) {
	each(t, func(_ Config, _ Room, claims []Claim, shares []cpu.Milli) {
		for i, s := range shares {
			if s < claims[i].Own || s > claims[i].top() {
				t.Errorf("share %d is %v", i, s)
			}
		}
	})
}

func TestNothingIsLeftWhileWanted(t *testing.T) {
	exact(t, func(c Config, r Room, claims []Claim, shares []cpu.Milli) {
		left := c.mark(r.Hard) - r.Others - sum(shares)
		for i, s := range shares {
			if s < claims[i].Most && left >= cpu.Milli(len(shares)+1)*cpu.Quantum {
				t.Errorf("%v is left, and claim %d gets %v", left, i, s)
			}
		}
	})
}

// exact has no share stay as it was, and calls check with the shares of each draw.
func exact(t *testing.T, check func(c Config, r Room, claims []Claim, shares []cpu.Milli)) {
	t.Helper()
	enough, scarce := 0, 0
	each(t, func(c Config, r Room, claims []Claim, _ []cpu.Milli) {
		var needs cpu.Milli
		for i := range claims {
			claims[i].Last = 0
			needs += claims[i].need()
		}
		if needs <= c.mark(r.Hard)-r.Others {
			enough++
		} else {
			scarce++
		}
		shares, _ := c.Share(r, claims)
		check(c, r, claims, shares)
	})
	if min(enough, scarce) < 300 {
		t.Fatalf("what is needed was there in %d of the draws, and not in %d: both are to be tested", enough, scarce)
	}
}

func TestNeedComesFirst(t *testing.T) {
	claims := []Claim{
		{Own: 500, Most: 16000, Demand: 596, Budget: 100}, {Own: 500, Most: 16000, Demand: 9000, Budget: 100}, {Own: 500, Most: 16000, Budget: 100},
	}
	shares, short := DefaultConfig().Share(Room{Hard: 5000, Used: 1500}, claims)
	// 4500 without what stays free: the first needs twice 596 in whole quanta, the third its own.
	if want := []cpu.Milli{1200, 2800, 500}; !short || !slices.Equal(shares, want) {
		t.Errorf("shares %v (short %v), want %v", shares, short, want)
	}
	claims[1].Demand = 1000
	shares, short = DefaultConfig().Share(Room{Hard: 5000, Used: 1500}, claims)
	// Together they need 3700. The second has more than its budget buys by then, so what is over goes to the others.
	if want := []cpu.Milli{1250, 2000, 1250}; !short || !slices.Equal(shares, want) {
		t.Errorf("shares %v (short %v), want %v", shares, short, want)
	}
	exact(t, func(_ Config, _ Room, claims []Claim, shares []cpu.Milli) {
		for i, a := range claims {
			for j, b := range claims {
				if shares[i] > a.need() && shares[j] < b.need() {
					t.Errorf("%d gets more than it needs, and %d less", i, j)
				}
			}
		}
	})
}

func TestBudgetsDecide(t *testing.T) {
	claims := []Claim{{Own: 500, Most: 16000, Demand: 8000, Budget: 300}, {Own: 500, Most: 16000, Demand: 4000, Budget: 1200}, {Own: 500, Most: 16000, Budget: 900}}
	shares, short := DefaultConfig().Share(Room{Hard: 5000, Used: 1500}, claims)
	// 4500 without what stays free, of which the third needs its own 500: four parts of five for the second.
	if want := []cpu.Milli{800, 3200, 500}; !short || !slices.Equal(shares, want) {
		t.Errorf("shares %v (short %v), want %v", shares, short, want)
	}
	pairs := 0
	exact(t, func(_ Config, _ Room, claims []Claim, shares []cpu.Milli) {
		// What a share may be, where its budget alone decides: below what the pod needs, or above.
		below := func(i int) bool {
			return shares[i] > claims[i].Own && shares[i]+2*cpu.Quantum < claims[i].need()
		}
		above := func(i int) bool {
			return shares[i] > claims[i].need() && shares[i]+2*cpu.Quantum < claims[i].top()
		}
		for i, a := range claims {
			for j, b := range claims[:i] {
				if a.Budget == 0 || b.Budget == 0 || !(below(i) && below(j)) && !(above(i) && above(j)) {
					continue
				}
				pairs++
				// A share is less than a quantum and a thousandth below what the budget buys.
				rounding := float64(cpu.Quantum+1) * float64(max(a.Budget, b.Budget))
				if d := float64(shares[i])*float64(b.Budget) - float64(shares[j])*float64(a.Budget); math.Abs(d) > rounding {
					t.Errorf("for budgets of %d and %d claims %d and %d get %v and %v", a.Budget, b.Budget, i, j, shares[i], shares[j])
				}
			}
		}
	})
	if pairs < 1000 {
		t.Errorf("budgets alone decided between %d pairs only", pairs)
	}
}

func TestNoSplitStays(t *testing.T) {
	c, rng := DefaultConfig(), rand.New(rand.NewPCG(1, 2))
	for range 200 {
		claims := make([]Claim, 2+rng.IntN(5))
		for i := range claims {
			claims[i] = Claim{Own: 100, Most: 2000, Budget: 100, Last: cpu.Milli(100 + 10*rng.IntN(60))}
		}
		room := Room{Hard: cpu.Milli(400 * len(claims))}
		for range 10 {
			room.Used = 0
			for i := range claims {
				claims[i].Demand = 2 * claims[i].Last // as a pod at its limit shows
				room.Used += claims[i].Last
			}
			shares, short := c.Share(room, claims)
			if !short {
				t.Fatal("the quota is not short")
			}
			for i := range claims {
				claims[i].Last = shares[i]
			}
		}
		least, most := cpu.Milli(math.MaxInt64), cpu.Milli(0)
		for _, claim := range claims {
			least, most = min(least, claim.Last), max(most, claim.Last)
		}
		if float64(most)*(1-c.Band) > float64(least)*(1+c.Band) { // each within the band of the same
			t.Fatalf("pods that want the same get between %v and %v", least, most)
		}
	}
}

func TestSteadySharesStay(t *testing.T) {
	c := DefaultConfig()
	claims := []Claim{{Own: 500, Most: 16000, Demand: 4000, Budget: 300, Last: 2200}, {Own: 500, Most: 16000, Demand: 4000, Budget: 320, Last: 2200}}
	room := Room{Hard: 5000, Used: 2000}
	if shares, _ := c.Share(room, claims); shares[0] != 2200 || shares[1] != 2200 {
		t.Errorf("shares %v: want those of before, as they would change by less than a tenth", shares)
	}
	room.Used = 4600
	if shares, _ := c.Share(room, claims); shares[0] != 2170 || shares[1] != 2320 {
		t.Errorf("shares %v: want them exact where less than a tenth is free", shares)
	}
	room.Used, room.Others = 2000, 200
	if shares, _ := c.Share(room, claims); sum(shares) > 4300 {
		t.Errorf("shares %v: what stayed as it was is more than the room", shares)
	}
}

// TestGrant: what the pod may always have is granted from the whole quota, the rest leaves the free part alone.
func TestGrant(t *testing.T) {
	c := DefaultConfig()
	for name, g := range map[string]struct {
		used, reserved, below, above, wantBelow, wantAbove cpu.Milli
	}{
		"room for all":        {2000, 0, 500, 1000, 500, 1000},
		"the rest is cut":     {8000, 0, 500, 1000, 500, 500},
		"up to the end":       {9500, 0, 500, 1000, 500, 0},
		"not beyond it":       {9800, 0, 500, 1000, 200, 0},
		"reserved":            {8000, 700, 0, 1000, 0, 300},
		"more than there is":  {12000, 0, 500, 1000, 0, 0},
		"reserved everything": {8000, 5000, 100, 1000, 0, 0},
	} {
		if b, a := c.Grant(Room{Hard: 10000, Used: g.used}, g.reserved, g.below, g.above); b != g.wantBelow || a != g.wantAbove {
			t.Errorf("%s: %v and %v, want %v and %v", name, b, a, g.wantBelow, g.wantAbove)
		}
	}
}

func TestValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	if (Config{Headroom: 1}).Validate() == nil || (Config{Band: -1}).Validate() == nil {
		t.Error("a config that is out of range is valid")
	}
}
