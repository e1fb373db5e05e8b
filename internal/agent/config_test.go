package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/round"
)

func TestConfigReportsEverything(t *testing.T) {
	good := DefaultConfig()
	good.Node = "n1"
	for interval, valid := range map[time.Duration]bool{
		minInterval - 1: false, minInterval: true, maxInterval: true, maxInterval + 1: false,
	} {
		c := good
		if c.Interval = interval; (c.Validate() == nil) != valid {
			t.Errorf("interval %v: %v", interval, c.Validate())
		}
	}
	err := Config{Round: round.Config{Reserve: 2}}.Validate()
	for _, part := range []string{"no node", "no namespace", "interval", "Reserve is 2"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not say %q", err, part)
		}
	}
}

// TestLongestGap: at any interval two missed rounds do not drop what was learnt.
func TestLongestGap(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 1050 * time.Millisecond, time.Second: 3500 * time.Millisecond, 10 * time.Second: 35 * time.Second,
	} {
		c := DefaultConfig()
		c.Interval = interval
		if got := c.round().LongestGap; got != want {
			t.Errorf("at %v: %v, want %v", interval, got, want)
		}
	}
}
