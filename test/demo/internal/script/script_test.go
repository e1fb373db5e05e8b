package script

import (
	"slices"
	"testing"
	"time"
)

func TestArrivalsDependOnSeedAlone(t *testing.T) {
	s := New(false)
	if !slices.Equal(s.Arrivals(1, Checkout), New(false).Arrivals(1, Checkout)) {
		t.Error("seed 1 gives two sequences")
	}
	if slices.Equal(s.Arrivals(1, Checkout), s.Arrivals(2, Checkout)) {
		t.Error("two seeds give the same sequence")
	}
	if slices.Equal(Steady(0, time.Minute).Arrivals(1, Checkout), Steady(0, time.Minute).Arrivals(1, Search)) {
		t.Error("two services share their arrivals")
	}
	for _, service := range Services {
		if len(s.Arrivals(1, service)) == 0 {
			t.Errorf("%s gets no requests", service)
		}
	}
}

func TestPhases(t *testing.T) {
	for _, quick := range []bool{false, true} {
		s := New(quick)
		for _, name := range []string{Base, StepUp, StepDown, WithHog, WithTold, Recover} {
			if _, err := s.Phase(name); err != nil {
				t.Errorf("quick %v: %v", quick, err)
			}
		}
		for _, hog := range []string{Hog, HogTold} {
			if len(s.Spans(hog)) != 1 {
				t.Errorf("quick %v: %s spins in %v", quick, hog, s.Spans(hog))
			}
		}
		end := s.Timed()[len(s)-1]
		if end.To != s.Length() || s.At(s.Length()+time.Hour).Name != end.Name || s.At(0).Name != Base {
			t.Errorf("quick %v: phases do not cover the script", quick)
		}
	}
}

func TestSpansAreJoined(t *testing.T) {
	want := [][2]time.Duration{{0, 3 * time.Minute}}
	if got := Steady(time.Minute, 2*time.Minute).Spans(Hog); !slices.Equal(got, want) {
		t.Errorf("hog spins in %v, want %v", got, want)
	}
}
