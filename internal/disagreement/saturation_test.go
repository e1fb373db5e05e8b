package disagreement

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// TestSaturatesMostOfTheTime: what makes a pod with a declared limit of 1000m saturate, and what ends that. Each phase
// is some seconds of the same evidence.
func TestSaturatesMostOfTheTime(t *testing.T) {
	type phase struct {
		seconds int
		took    float64
		limit   cpu.Milli
	}
	all := func(seconds int) phase { return phase{seconds, 1, 1000} }
	served := func(seconds int) phase { return phase{seconds, 0, 1000} } // it need not wait
	below := func(seconds int) phase { return phase{seconds, 1, 500} }   // throttled at a limit of ours
	belowFor := func(minutes int) phase { return phase{60 * minutes, 1, 500} }
	servedBelow := func(seconds int) phase { return phase{seconds, 0, 500} } // it fits into that
	for name, c := range map[string]struct {
		phases []phase
		want   bool
	}{
		"19 s from its start":                        {[]phase{all(19)}, false},
		"20 s from its start":                        {[]phase{served(1), all(20)}, true},
		"it hardly ever took less":                   {[]phase{all(20), served(9), all(20)}, true},
		"39 s":                                       {[]phase{served(20), all(39)}, false},
		"40 s":                                       {[]phase{served(20), all(40)}, true},
		"a pause":                                    {[]phase{served(20), all(30), served(2), all(16)}, true},
		"bursts of 20 s":                             {[]phase{served(20), all(20), served(7), all(20), served(7), all(20)}, false},
		"it leaves a tenth to others":                {[]phase{{600, 0.9, 1000}}, false},
		"it leaves less":                             {[]phase{{100, 0.93, 1000}}, true},
		"it dips in each window":                     {[]phase{served(20), all(13), served(2), all(13), served(2), all(13), served(2), all(13), served(2), all(13)}, true},
		"it dips as a service does":                  {[]phase{served(20), all(3), {1, 0.9, 1000}, all(18), {6, 0.9, 1000}, all(20)}, true},
		"our own limit proves nothing":               {[]phase{below(600)}, false},
		"nor does it end it at once":                 {[]phase{served(20), all(40), below(250)}, true},
		"it ends where it need not wait":             {[]phase{served(20), all(40), below(60), servedBelow(14)}, false},
		"and not in a moment":                        {[]phase{served(20), all(40), below(60), servedBelow(5)}, true},
		"it ends at the declared limit":              {[]phase{served(20), all(40), served(14)}, false},
		"its declared limit comes back":              {[]phase{served(20), all(40), belowFor(5)}, false},
		"it is judged anew":                          {[]phase{served(20), all(40), belowFor(5), all(40), belowFor(5)}, true},
		"and then not any more":                      {[]phase{served(20), all(40), belowFor(5), all(40), belowFor(10), all(40), belowFor(100)}, true},
		"half as often each time":                    {[]phase{served(20), all(40), belowFor(5), all(40), belowFor(10)}, false},
		"one that took all from its start saturates": {[]phase{all(20), belowFor(100)}, true},
		"it begins anew":                             {[]phase{served(20), all(40), served(14), all(39)}, false},
	} {
		cfg, s := DefaultConfig(), pod{}
		for _, p := range c.phases {
			for range p.seconds {
				s = s.next(cfg, p.limit < 1000, p.took, time.Second)
			}
		}
		if s.saturates != c.want {
			t.Errorf("%s: saturates %v after %v, want %v", name, s.saturates, s.busy, c.want)
		}
	}
}

// TestGivenIsWhileItIsGiven: a pod that gets 800m for 15 of 20 seconds, and nothing for 5, keeps a share of 800m and
// not of the mean: with a lower limit it would lose more than that share.
func TestGivenIsWhileItIsGiven(t *testing.T) {
	s := pod{}
	for second := range 200 {
		given := cpu.Milli(800)
		if second%20 >= 15 {
			given = 0
		}
		s = s.smoothed(given, time.Second)
	}
	if got := s.given(); got < 780 || got > 820 {
		t.Errorf("it counts with %v, want about 800m", got)
	}
	if got := (pod{}).smoothed(0, time.Second).given(); got != 0 {
		t.Errorf("a pod that gets nothing counts with %v", got)
	}
}
