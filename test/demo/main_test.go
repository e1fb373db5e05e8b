//go:build linux

package main

import (
	"errors"
	"flag"
	"io"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	s, err := parse(nil, io.Discard)
	if err != nil || len(s.parts) != len(parts) || s.steps < 20 || s.keep || !s.needsMBCAS() {
		t.Errorf("without flags: %+v, %v; want everything, and at least 20 steps", s, err)
	}
	s, err = parse([]string{"--only", "static,no_limit", "--quick", "--keep"}, io.Discard)
	if err != nil || len(s.parts) != 2 || s.needsMBCAS() || !s.quick || !s.keep {
		t.Errorf("two parts: %+v, %v", s, err)
	}
	for _, args := range [][]string{{"--only", "dance"}, {"--only", ""}, {"more"}, {"--seed", "x"}} {
		if _, err := parse(args, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}
	if _, err := parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}

// The full show fits in 25 minutes, with a minute for the cluster.
func TestLength(t *testing.T) {
	s, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	d := newDemo(s, io.Discard)
	all := d.length(parts[0]) + d.after(parts[0])
	if all > 24*time.Minute {
		t.Errorf("the show takes %v", all)
	}
	if steady := d.steadyScript()[1].For; steady < 5*time.Minute {
		t.Errorf("steady load lasts %v, want 5 minutes", steady)
	}
}
