package controller

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/market"
)

var roomy = []constraints.CPUQuota{{Name: "cores", Hard: 100000, Used: 1000, Known: true}}

// asks is what the purse grants of a raise of a pod of namespace shop, of which so much is below what its owner declared.
func (p *purse) asks(uid string, below, above cpu.Milli, now time.Time) cpu.Milli {
	granted, _ := p.take(DefaultConfig().Quota, running(uid, 500, false), roomy, below, above, now)
	return granted
}

// TestOneShortageCountsOnce: raises that a quota refuses at the same time hold the others of the namespace back for a minute, not for
// half an hour; a shortage after that counts twice as long.
func TestOneShortageCountsOnce(t *testing.T) {
	cfg, p, now := DefaultConfig(), newPurse(), noon
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		for k := range 6 {
			p.refused("shop", cfg, now.Add(time.Duration(k)*time.Millisecond), roomy)
		}
		p.taken("shop", now.Add(10*time.Millisecond)) // was on its way
		if got := p.asks("a", 0, 1000, now.Add(want-time.Second)); got != 0 {
			t.Errorf("shortage %d: %v granted within %v", i+1, got, want)
		}
		now = now.Add(want)
		if got := p.asks("a", 0, 1000, now); got != 1000 {
			t.Errorf("shortage %d: %v granted after %v, want 1000m", i+1, got, want)
		}
	}
	p.taken("shop", now)
	p.refused("shop", cfg, now, roomy)
	if got := p.asks("a", 0, 1000, now.Add(time.Minute)); got != 1000 {
		t.Errorf("%v granted a minute after the first refusal that follows a raise, want 1000m", got)
	}
}

// TestWhatWasDeclaredIsNotHeldBack: a refusal concerns what is above the declared limits.
func TestWhatWasDeclaredIsNotHeldBack(t *testing.T) {
	p := newPurse()
	p.refused("shop", DefaultConfig(), noon, roomy)
	if got := p.asks("a", 400, 1000, noon.Add(time.Second)); got != 400 {
		t.Errorf("%v granted, want the 400m that are missing to what was declared", got)
	}
}

// TestGrantsShowInTurn: of several raises at once a quota shows one after the other, and what shows of one is not taken for another.
func TestGrantsShowInTurn(t *testing.T) {
	p, now := newPurse(), noon
	takes := func(uid string, used, above cpu.Milli) cpu.Milli {
		now = now.Add(10 * time.Millisecond)
		granted, _ := p.take(DefaultConfig().Quota, running(uid, 500, false), []constraints.CPUQuota{{Name: "cores", Hard: 3200, Used: used, Known: true}}, 0, above, now)
		return granted
	}
	for _, c := range []struct {
		uid               string
		used, above, want cpu.Milli
	}{
		{"a", 2700, 60, 60}, // up to 2880
		{"b", 2700, 60, 60},
		{"c", 2760, 120, 60}, // that of a, or of b
		{"d", 2820, 10, 0},   // that of c is still to come
		{"d", 2880, 10, 0},
		{"d", 2860, 30, 20}, // somebody gave back, after all of them
	} {
		if got := takes(c.uid, c.used, c.above); got != c.want {
			t.Errorf("%s is granted %v of %v while %v are used, want %v", c.uid, got, c.above, c.used, c.want)
		}
		if c.used == 2880 {
			now = now.Add(quotaLag)
		}
	}
}

// TestRefusalsAreForgotten: also those of a namespace that is not seen again.
func TestRefusalsAreForgotten(t *testing.T) {
	cfg, p := DefaultConfig(), newPurse()
	p.refused("shop", cfg, noon, roomy)
	p.refused("gone", cfg, noon, roomy)
	later := noon.Add(time.Minute + cfg.BackoffMax)
	p.asks("a", 0, 1000, later.Add(-time.Second))
	if len(p.namespaces) != 2 {
		t.Errorf("%d namespaces are remembered, want 2", len(p.namespaces))
	}
	p.asks("a", 0, 1000, later)
	if len(p.namespaces) != 0 {
		t.Errorf("still remembered: %v", p.namespaces)
	}
}

// TestPriorityCountsInAQuota: where a quota is short a pod bids with its request (100m) as its priority counts, half for one below 0, and
// without what a coordinator gives it on its node.
func TestPriorityCountsInAQuota(t *testing.T) {
	pod := running("u1", 500, false)
	pa := allocation.New(pod)
	pa.Status.DeclaredLimits = []v1alpha1.ContainerLimit{app(500)}
	double := int32(200)
	pa.Status.Constraints = &v1alpha1.Constraints{CoordinationPercent: &double}
	for priority, want := range map[int32]market.Budget{-1: 50, 0: 100, 4000: 200} {
		pod.Spec.Priority = &priority
		if got := claimOf(&constraints.NamespaceObjects{}, pod, pa, 4000).Budget; got != want {
			t.Errorf("priority %d: budget %d, want %d", priority, got, want)
		}
	}
}
