package division

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// Three users, 12 slices, alpha 0.5: 6 are public, 2 each guaranteed; each earns 2 credits.
//
// Enough for all: demands 0, 3, 6 and credits 10, 10, 10 make 12, 12, 12. The first can lend 2, so
// 8 are there; the others want 1 + 4 = 5. They get them and pay: 11 and 8. Of the 5 the donor lends
// its 2 first (14), 3 are public.
//
// Short: demands 0, 12, 12 and credits 8, 3, 6 make 10, 5, 8. 8 are there; wanted are min(10, 5) +
// min(10, 8) = 13. The donor lends all: 12. The third is richest: it gets 3 slices until both stand
// at 5, then the remaining 5 go in turns, the second first: 3 to the second (2 credits left), 2 to
// the third (3 left). Slices: 0, 2 + 3, 2 + 5.
//
// Out of credits: demands 0, 0, 12, credits 0, 0, 0 make 2 each; the third can pay for 2 of the 10
// that it wants. The first and the second lend one each, as the poorest in turns: 3, 3, 0. When it
// wants one, the first of the two lends it.
//
// Short, with the donor in the middle: the first is richest and gets 3 slices, then of 5 it gets 3,
// as it is first in line.
//
// The richest wants little: demands 3, 12, 12 and credits 100, 4, 4 make 102, 6, 6. 6 are there: it
// gets the 1 that it wants, and the others 3 and 2.
func TestKarmaByHand(t *testing.T) {
	for name, c := range map[string]struct{ demands, before, slices, after []int64 }{
		"enough":         {[]int64{0, 3, 6}, []int64{10, 10, 10}, []int64{0, 3, 6}, []int64{14, 11, 8}},
		"short":          {[]int64{0, 12, 12}, []int64{8, 3, 6}, []int64{0, 5, 7}, []int64{12, 2, 3}},
		"one slice":      {[]int64{0, 0, 3}, []int64{0, 0, 0}, []int64{0, 0, 3}, []int64{3, 2, 1}},
		"between":        {[]int64{12, 0, 12}, []int64{6, 8, 3}, []int64{8, 0, 4}, []int64{2, 12, 3}},
		"wants little":   {[]int64{3, 12, 12}, []int64{100, 4, 4}, []int64{3, 5, 4}, []int64{101, 3, 4}},
		"out of credits": {[]int64{0, 0, 12}, []int64{0, 0, 0}, []int64{0, 0, 4}, []int64{3, 3, 0}},
	} {
		users := make([]karmaUser, 3)
		for i := range users {
			users[i] = karmaUser{demand: c.demands[i], credits: c.before[i]}
		}
		allocate(users, 12, 0.5)
		var got, after []int64
		for _, u := range users {
			got, after = append(got, u.slices), append(after, u.credits)
		}
		if !slices.Equal(got, c.slices) || !slices.Equal(after, c.after) {
			t.Errorf("%s: slices %v and credits %v, want %v and %v", name, got, after, c.slices, c.after)
		}
	}
	allocate(nil, 12, 0.5) // no users
}

// The first pods get a million credits each, and later pods the mean of the existing ones: 31/2,
// rounded down.
func TestKarmaNewcomersGetTheMean(t *testing.T) {
	k := &karma{room: 1}
	n, bidders := simtest.NewNode(1, make([]sim.PodSpec, 3)...), make([]bidder, 3)
	for i := range bidders {
		bidders[i].pod = &n.Pods[i]
	}
	for _, c := range []struct {
		here map[int]int64
		want []int64
	}{
		{nil, []int64{1_000_000, 1_000_000, 1_000_000}},
		{map[int]int64{0: 10}, []int64{10, 10, 10}},
		{map[int]int64{0: 10, 2: 21, 7: 1000}, []int64{10, 15, 21}},
	} {
		k.credits = c.here
		users := make([]karmaUser, 3)
		k.assignCredits(bidders, users)
		if got := []int64{users[0].credits, users[1].credits, users[2].credits}; !slices.Equal(got, c.want) {
			t.Errorf("credits %v, want %v", got, c.want)
		}
	}
}

// 3.6 cores are 360 slices: 180 public, 90 guaranteed to each of two. The first was idle for 60 s,
// while the second used 1.5 cores and so borrowed 60 slices each second: in 60 s 3600 credits went
// from hand to hand, and the first is 7200 richer. Then both want 3 cores: the first gets all 180
// public slices as long as that lasts, 40 s: limits 2.7 and 0.9. What is within the dead band of 10
// % stays.
func TestKarmaKeepsCredits(t *testing.T) {
	r := simtest.NewNode(4, simtest.Managed(100, 4000), simtest.Managed(100, 4000))
	k := &karma{1, map[int]int64{}}
	p := newDivision(k.divide)
	p.resizer = newResizer(singleStep())
	r.Run(p, 60*time.Second, []float64{0, 1.5}, []float64{0, 0})
	if d := k.credits[0] - k.credits[1]; d < 6700 || d > 7700 {
		t.Fatalf("the idle pod is %d credits richer, want about 7200", d)
	}
	if got, want := r.Run(p, 80*time.Second, []float64{3, 3}, []float64{0, 0}), []cpu.Milli{2700, 900}; got[0] < 2460 || got[0] > 2700 || got[1] < 900 || got[1] > 990 {
		t.Errorf("limits %v, want about %v", got, want)
	}
}
