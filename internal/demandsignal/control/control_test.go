package control

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const every = 15 * time.Second

func TestCheck(t *testing.T) {
	for reason, tt := range map[string]struct {
		value, target float64
		age           time.Duration
		want          Fault
	}{
		"good":                     {0.3, 0.2, 0, Usable},
		"just fresh":               {0.3, 0.2, 2 * time.Minute, Usable},
		"a little ahead":           {0.3, 0.2, -time.Minute, Usable},
		"tiny":                     {1e-300, 1, 0, Usable},
		"an empty queue":           {0, 0.2, 0, Usable},
		"below zero":               {-1, 0.2, 0, NotANumber},
		"no number":                {math.NaN(), 0.2, 0, NotANumber},
		"infinite":                 {math.Inf(1), 0.2, 0, NotANumber},
		"infinite below zero":      {math.Inf(-1), 0.2, 0, NotANumber},
		"no target":                {0.3, 0, 0, NotANumber},
		"a target below zero":      {0.3, -1, 0, NotANumber},
		"both below zero":          {-1, -1, 0, NotANumber},
		"more than floats can say": {1e300, 1e-300, 0, Usable},
		"stale":                    {0.3, 0.2, 2*time.Minute + time.Second, Stale},
		"from another year":        {0.3, 0.2, 365 * 24 * time.Hour, Stale},
		"ahead":                    {0.3, 0.2, -2*time.Minute - time.Second, FromTheFuture},
	} {
		if got := DefaultConfig().Check(Sample{tt.value, tt.target, begin.Add(-tt.age)}, begin); got != tt.want {
			t.Errorf("%s: fault %d, want %d", reason, got, tt.want)
		}
	}
}

// look is one look at a metric; below 0: nothing could be used.
func look(c Config, s State, b Bounds, ratio float64, now time.Time) State {
	if ratio < 0 {
		return c.Decay(s, b, now)
	}
	return c.Update(s, b, Sample{Value: ratio, Target: 1, At: now}, now)
}

// TestSteps: the percentage after so many readings of the same ratio, 15 s apart, from 100 or from another begin.
func TestSteps(t *testing.T) {
	for reason, tt := range map[string]struct {
		from   int32 // 0: no reading yet
		bounds Bounds
		ratio  float64
		looks  int
		want   int32
	}{
		"the first reading moves nothing":           {0, Bounds{100, 200}, 5, 1, 100},
		"the first reading keeps the least":         {0, Bounds{130, 200}, 5, 1, 130},
		"twice the target for a minute":             {0, Bounds{100, 200}, 2, 5, 105},  // 107 as it is, told at 105
		"twice the target for ten minutes":          {0, Bounds{100, 200}, 2, 41, 200}, // 2^0.1 a minute: twice the demand
		"four times the target for five minutes":    {0, Bounds{100, 200}, 4, 21, 200}, // 4^0.1
		"ten times the target is no faster":         {0, Bounds{100, 1000}, 10, 9, 132},
		"four times the target, as fast":            {0, Bounds{100, 1000}, 4, 9, 132},
		"never more than the most":                  {0, Bounds{100, 150}, 10, 100, 150},
		"within the tolerance above":                {140, Bounds{100, 200}, 1.09, 100, 140},
		"within the tolerance below":                {140, Bounds{100, 200}, 0.91, 100, 140},
		"just out of the tolerance":                 {140, Bounds{100, 200}, 1.12, 200, 200},
		"half the target":                           {200, Bounds{100, 200}, 0.5, 41, 100},
		"far below the target is no faster":         {200, Bounds{100, 200}, 0.001, 8, 152}, // 0.25^0.1 a minute
		"a quarter of the target, as fast":          {200, Bounds{100, 200}, 0.25, 8, 152},
		"nothing at all, as fast":                   {200, Bounds{100, 200}, 0, 8, 152},
		"beyond all bounds is no faster":            {0, Bounds{100, 1000}, math.Inf(1), 9, 132},
		"never less than the least":                 {200, Bounds{120, 200}, 0.5, 100, 120},
		"new bounds hold at once, from above":       {200, Bounds{100, 150}, 1, 1, 150},
		"new bounds just below":                     {153, Bounds{100, 150}, 0.85, 1, 150},
		"new bounds hold at once, from below":       {100, Bounds{130, 200}, 1, 1, 130},
		"a move that is not worth telling":          {140, Bounds{100, 200}, 1.2, 2, 140},
		"small moves add up":                        {140, Bounds{100, 200}, 1.2, 8, 145},
		"at the least, however little it has moved": {101, Bounds{100, 200}, 0.5, 1, 100},
	} {
		c := DefaultConfig()
		now := begin
		s := Resume(tt.from, now.Add(-every), now)
		for range tt.looks {
			s = look(c, s, tt.bounds, tt.ratio, now)
			now = now.Add(every)
		}
		if s.Percent != tt.want {
			t.Errorf("%s: %d %%, want %d", reason, s.Percent, tt.want)
		}
	}
}

func TestForgetsAMetricThatIsGone(t *testing.T) {
	c, b := DefaultConfig(), Bounds{100, 300}
	if s := c.Decay(State{}, b, begin); s != (State{}) {
		t.Errorf("a metric that was never read has a say: %+v", s)
	}
	s := Resume(300, begin, begin)
	for _, tt := range []struct {
		after time.Duration
		want  int32
	}{
		{0, 300}, {30 * time.Second, 300}, {time.Minute, 300}, {75 * time.Second, 200}, {90 * time.Second, 150}, {105 * time.Second, 125},
		{2 * time.Minute, 113}, {135 * time.Second, 106}, {150 * time.Second, 0}, {time.Hour, 0},
	} {
		if s = c.Decay(s, b, begin.Add(tt.after)); s.Percent != tt.want {
			t.Errorf("%v after the last reading: %d %%, want %d", tt.after, s.Percent, tt.want)
		}
	}
	if s = look(c, s, b, 2, begin.Add(time.Hour)); s.Percent < 100 || s.Percent > 115 {
		t.Errorf("it comes back with %d %%, want to begin anew", s.Percent)
	}
	if s := c.Decay(Resume(103, begin, begin), b, begin.Add(time.Minute)); s.Percent != 103 {
		t.Errorf("a minute after a reading that led to 103 %%: %d %%", s.Percent)
	}
	if s := c.Decay(Resume(300, begin, begin), Bounds{150, 300}, begin.Add(2*time.Minute)); s.Percent != 150 {
		t.Errorf("on its way down: %d %%, want the least, 150", s.Percent)
	}
	if s := c.Decay(Resume(300, begin.Add(time.Hour), begin), b, begin.Add(time.Hour)); s.Percent != 0 {
		t.Errorf("a sample that is dated ahead keeps %d %%", s.Percent)
	}
}

func bounds(t *rapid.T) Bounds {
	b := Bounds{Min: int32(rapid.IntRange(100, 1000).Draw(t, "min"))}
	b.Max = b.Min + int32(rapid.IntRange(0, int(1000-b.Min)).Draw(t, "room"))
	return b
}

func TestBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, now := DefaultConfig(), begin
		s := Resume(int32(rapid.IntRange(0, 1000).Draw(t, "from")), now.Add(time.Duration(rapid.IntRange(-600, 600).Draw(t, "read"))*time.Second), now)
		for range rapid.IntRange(1, 50).Draw(t, "looks") {
			b := bounds(t)
			ratio := -1.0
			switch rapid.IntRange(0, 4).Draw(t, "missing") {
			case 0:
			case 1:
				ratio = 0
			default:
				ratio = math.Pow(10, rapid.Float64Range(-300, 300).Draw(t, "ratio"))
			}
			s = look(c, s, b, ratio, now)
			if s.Percent != 0 && s.Percent != b.clamp(s.Percent) || ratio >= 0 && s.Percent == 0 {
				t.Fatalf("%d %% within %v after a ratio of %v", s.Percent, b, ratio)
			}
			now = now.Add(time.Duration(rapid.IntRange(-10, 300).Draw(t, "later")) * time.Second)
		}
	})
}

func TestGrowsWithTheMetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, b := DefaultConfig(), bounds(t)
		s := Resume(int32(rapid.IntRange(0, 1000).Draw(t, "from")), begin, begin)
		now := begin.Add(time.Duration(rapid.IntRange(-100, 300).Draw(t, "later")) * time.Second)
		low := rapid.Float64Range(1e-3, 1e3).Draw(t, "low")
		high := low * rapid.Float64Range(1, 1e3).Draw(t, "times")
		if l, h := look(c, s, b, low, now), look(c, s, b, high, now); l.Percent > h.Percent || l.exact > h.exact {
			t.Fatalf("ratio %v leads to %+v, %v to %+v", low, l, high, h)
		}
	})
}

func TestMovesSlowly(t *testing.T) {
	c, b := DefaultConfig(), Bounds{100, 1000}
	for _, ratio := range []float64{0, 1e-9, 0.5, 1.3, 2, 1e9} {
		s := Resume(400, begin, begin)
		for i := range 4 {
			s = look(c, s, b, ratio, begin.Add(time.Duration(i+1)*every))
		}
		if moved := math.Abs(math.Log(s.exact / 400)); moved > math.Log(1.15) {
			t.Errorf("ratio %v: from 400 %% to %.1f %% in a minute", ratio, s.exact)
		}
		late := look(c, Resume(400, begin, begin), b, ratio, begin.Add(time.Minute))
		if math.Abs(late.exact-s.exact) > 1 {
			t.Errorf("ratio %v: one look in a minute leads to %.1f %%, four to %.1f %%", ratio, late.exact, s.exact)
		}
	}
}

// loop is a metric that falls as a power of the percentage, down to where the pods have their share, and shows what was told
// some looks ago.
type loop struct {
	power, alone, share float64
	delay               int
	told                []int32
}

func (l *loop) ratio() float64 {
	percent := 100.0
	if i := len(l.told) - 1 - l.delay; i >= 0 {
		percent = float64(l.told[i])
	}
	return l.alone * math.Pow(min(percent, l.share)/100, -l.power)
}

// swing is how far the percentage moves in the last of ten hours.
func (l *loop) swing(c Config, b Bounds) (low, high int32) {
	const looks, last = 4 * 600, 4 * 60
	s := State{}
	for i := range looks {
		s = look(c, s, b, l.ratio(), begin.Add(time.Duration(i)*every))
		l.told = append(l.told, s.Percent)
	}
	l.told = l.told[looks-last:]
	return slices.Min(l.told), slices.Max(l.told)
}

func drawLoop(t *rapid.T, power float64, delay int) (*loop, Bounds) {
	return &loop{
		power: rapid.Float64Range(0.1, power).Draw(t, "power"), delay: rapid.IntRange(0, delay).Draw(t, "delay"),
		alone: math.Pow(10, rapid.Float64Range(-0.5, 1).Draw(t, "ratio without asking")), share: rapid.Float64Range(110, 1000).Draw(t, "share"),
	}, Bounds{100, int32(rapid.IntRange(110, 1000).Draw(t, "max"))}
}

// TestComesToRest: powers up to 4 and delays up to two and a half minutes, in any product.
func TestComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := DefaultConfig()
		l, b := drawLoop(t, 4, 10)
		low, high := l.swing(c, b)
		if low != high {
			t.Fatalf("after nine hours it moves between %d and %d %%: %v", low, high, l.told)
		}
		if end := l.ratio(); math.Abs(end-1) > c.Tolerance && !(end > 1 && high == b.Max || end < 1 && low == b.Min) {
			t.Fatalf("at rest at %d %% with the metric at %.2f of its target", low, end)
		}
	})
}

// TestSteepMetricsSwingLittle: where five points of the percentage lead past the whole tolerance there is no rest. Then they are few.
func TestSteepMetricsSwingLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, b := drawLoop(t, 8, 6)
		if low, high := l.swing(DefaultConfig(), b); float64(high) > 1.25*float64(low) {
			t.Fatalf("after nine hours it moves between %d and %d %%: %v", low, high, l.told)
		}
	})
}

// TestTooMuchGainSwings: the loop can tell a gain that is too large.
func TestTooMuchGainSwings(t *testing.T) {
	c := DefaultConfig()
	c.Gain *= 5
	l := &loop{power: 4, alone: 3, share: 1000, delay: 10}
	if low, high := l.swing(c, Bounds{100, 1000}); high-low < 20 {
		t.Errorf("a gain five times as large moves between %d and %d %% only", low, high)
	}
}

func TestValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"Gain": func(c *Config) { c.Gain = 0 }, "Tolerance": func(c *Config) { c.Tolerance = 1 }, "MaxRatio": func(c *Config) { c.MaxRatio = math.NaN() },
		"MaxAge": func(c *Config) { c.MaxAge = 0 }, "RetainFor": func(c *Config) { c.RetainFor = -1 }, "HalfLife": func(c *Config) { c.HalfLife = 0 },
		"MinChange": func(c *Config) { c.MinChange = -1 },
	} {
		c := DefaultConfig()
		change(&c)
		if c.Validate() == nil {
			t.Errorf("a bad %s is fine", name)
		}
	}
}
