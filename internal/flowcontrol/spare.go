package flowcontrol

import (
	"time"

	"golang.org/x/time/rate"
)

// Spare bounds writes that can wait by the time that the API server takes for them, so that they leave a busy
// one to others. It is full at first.
type Spare struct {
	*rate.Limiter // of milliseconds
	slots         chan struct{}
}

// Writes that can wait have sparePerSecond milliseconds of each second: one of them is under way at a time, on average.
// More tell sooner; fewer leave more to resizes. Each counts with leastSpare or more, so that there are at most
// 100 per second: as many as there are resizes.
const (
	sparePerSecond = 1000
	leastSpare     = 10
)

// NewSpare has so many writes under way at the same time, at most.
func NewSpare(atOnce int) *Spare {
	return &Spare{rate.NewLimiter(sparePerSecond, sparePerSecond), make(chan struct{}, atOnce)}
}

// Enter says whether the caller may write now. It calls leave when it has done so, or may not.
func (s *Spare) Enter() (leave func(), may bool) {
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, true
	default:
		return func() {}, false
	}
}

// Try writes if there is time for it, and says whether there was. The time that it took beyond that is missing
// afterwards.
func (s *Spare) Try(now func() time.Time, write func()) bool {
	began := now()
	if !s.AllowN(began, leastSpare) {
		return false
	}
	write()
	ended := now()
	took := min(int(ended.Sub(began).Milliseconds()), s.Burst()) - leastSpare
	s.ReserveN(ended, max(took, 0))
	return true
}
