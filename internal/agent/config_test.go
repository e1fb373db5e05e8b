package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/round"
)

func TestConfig(t *testing.T) {
	good := DefaultConfig()
	good.Node = "n1"
	cases := map[string]struct {
		change func(*Config)
		want   []string // in the error; none: valid
	}{
		"default":           {func(*Config) {}, nil},
		"shortest interval": {func(c *Config) { c.Interval = 100 * time.Millisecond }, nil},
		"longest interval":  {func(c *Config) { c.Interval = 10 * time.Second }, nil},
		"too short": {
			func(c *Config) { c.Interval = 99 * time.Millisecond },
			[]string{"interval is 99ms: want 100ms to 10s"},
		},
		"too long": {func(c *Config) { c.Interval = 11 * time.Second }, []string{"interval is 11s"}},
		"everything at once": {
			func(c *Config) { *c = Config{Round: round.Config{Reserve: 2}} },
			[]string{"no node", "no namespace", "interval", "Reserve is 2"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := good
			c.change(&cfg)
			err := cfg.Validate()
			if (err == nil) != (c.want == nil) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %v does not say %q", err, part)
				}
			}
		})
	}
}

func TestProfiles(t *testing.T) {
	for _, p := range []Profile{Default, Conservative} {
		c, err := DefaultConfig().With(p)
		c.Node = "n1"
		if err != nil || c.Validate() != nil {
			t.Errorf("%s: %v, %v", p, err, c.Validate())
		}
	}
	if _, err := DefaultConfig().With("bold"); err == nil || !strings.Contains(err.Error(), "bold") {
		t.Errorf("an unknown profile: %v", err)
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
