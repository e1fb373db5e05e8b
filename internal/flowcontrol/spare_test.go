package flowcontrol

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSpareLeavesABusyServerAlone: of four that write what can wait, each as often as it may, 100 writes per second
// get through, and where each takes long, as many as one after the other.
func TestSpareLeavesABusyServerAlone(t *testing.T) {
	for took, want := range map[time.Duration]int64{
		time.Millisecond: 6000, 20 * time.Millisecond: 3000, 500 * time.Millisecond: 120,
	} {
		t.Run(took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewSpare(4)
				s.AllowN(time.Now(), sparePerSecond) // the first second's
				var writers sync.WaitGroup
				var written atomic.Int64
				end := time.Now().Add(time.Minute)
				for range 4 {
					writers.Go(func() {
						for time.Now().Before(end) {
							if !s.Try(time.Now, func() { time.Sleep(took) }) { // of the clock of the bubble
								time.Sleep(time.Millisecond)
								continue
							}
							written.Add(1)
						}
					})
				}
				if writers.Wait(); written.Load() < want*9/10 || written.Load() > want*11/10 {
					t.Errorf("%d writes of %v in a minute, want about %d", written.Load(), took, want)
				}
			})
		})
	}
}

// TestSpareEnters: so many may write at the same time.
func TestSpareEnters(t *testing.T) {
	s := NewSpare(2)
	leave, may := s.Enter()
	_, second := s.Enter()
	rest, third := s.Enter()
	rest()
	leave()
	if _, fourth := s.Enter(); !may || !second || third || !fourth {
		t.Errorf("may write: %v, %v, %v, and once one has ended %v", may, second, third, fourth)
	}
}
