package idleclass

import (
	"math"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// memory is what is remembered of a pod. The zero value starts.
type memory struct {
	idle bool    // a member of the idle class
	calm float64 // in cores: the pod's highest usage while CPU was not scarce
	// saturatesFor is for how long it has taken more than its share, less three times what interrupted that.
	saturatesFor time.Duration
	idleCPUFor   time.Duration // for which CPUs of the node have been idle
	recent       []tick        // the last ones, Window long
	// A pod that fellShort of its guarantee, or saturates and cannot enter the class, is heldOff of the class until
	// heldOffUntil, for holdOff.
	heldOff      bool
	fellShort    bool
	heldOffUntil time.Time
	holdOff      time.Duration
	// quietFor is for how long it has used next to nothing and waited for nothing, at most QuietAfter.
	quietFor time.Duration
	// probation is what is left of its probation, all of it while it is quiet, and evidence what that has shown.
	probation time.Duration
	evidence  evidence
	// absentSince is since when the pod has not opted in, such as while nothing writes class and weight; zero: it has.
	absentSince time.Time
}

// absent is what is remembered of a pod that has not opted in: what it used while CPU was not scarce, and how long it
// stays outside of the class.
func (m memory) absent(now time.Time) memory {
	kept := memory{calm: m.calm, heldOffUntil: m.heldOffUntil, holdOff: m.holdOff, fellShort: m.fellShort}
	if kept.absentSince = m.absentSince; kept.absentSince.IsZero() {
		kept.absentSince = now
	}
	return kept
}

// evidence is what the ticks of a probation have shown so far.
type evidence uint8

const (
	noEvidence   evidence = iota // no tick yet from which anything is known
	saturates                    // each of them shows a pod that saturates
	notSaturates                 // one does not
)

// tick is what a pod used in a tick, and the part of its guarantee that it may have demanded.
type tick struct {
	elapsed     time.Duration
	usage, owed cpu.Milli
}

// pod is a pod in one round.
type pod struct {
	memory
	uid           string
	budget        market.Budget
	request       cpu.Milli
	guaranteed    cpu.Milli     // its request, as far as requests fit the node
	share         cpu.Milli     // its budget's part of the supply
	elapsed       time.Duration // since the last decision
	limited       bool          // each of its containers has a limit
	known         bool          // the usage is
	onProbation   bool          // or quiet, until this tick
	proved        bool          // this tick ends a probation, all of which shows a pod that saturates
	decided       bool          // the round has decided about it; throttleRatio and pressure are 0 otherwise
	usage, demand cpu.Milli
	throttleRatio float64
	pressure      sense.Ratio
}

const (
	// throttledFrom is the throttle ratio from which usage does not show a pod's demand.
	throttledFrom = 0.1
	// waitsFrom is the pressure for a CPU from which a pod demands more than it uses.
	waitsFrom = 0.2
	// interruptFactor is how much faster a time without saturation counts than one with it.
	interruptFactor = 3
)

// note takes in a tick.
func (p *pod) note(cfg Config, n *node) {
	p.heldOff, p.onProbation = n.now.Before(p.heldOffUntil), p.probation > 0
	if n.now.Sub(p.heldOffUntil) >= cfg.LongestHoldOff {
		p.holdOff = 0
	}
	if n.elapsed == 0 {
		p.saturatesFor, p.idleCPUFor, p.recent = min(p.saturatesFor, 0), 0, nil
		p.quietFor, p.probation = 0, 0
		return
	}
	p.noteProbation(cfg, n)
	p.calm *= math.Exp2(-n.elapsed.Seconds() / cfg.CalmHalfLife.Seconds())
	if p.idleCPUFor += n.elapsed; (n.usage + n.system).Cores() >= cfg.NotScarceFrom*n.capacity.Cores() {
		p.idleCPUFor = 0
	}
	if !p.decided {
		p.saturatesFor, p.recent = min(p.saturatesFor, 0), nil
		return
	}
	scarce := n.scarce(cfg)
	if !p.idle && !scarce && p.throttleRatio < throttledFrom {
		p.calm = max(p.calm, p.usage.Cores())
	}
	if scarce && !p.idle && !p.heldOff && p.limited && p.usage > p.share {
		p.saturatesFor = min(p.saturatesFor+n.elapsed, cfg.SlowAfter)
	} else {
		p.saturatesFor = max(min(p.saturatesFor+n.elapsed, 0), p.saturatesFor-interruptFactor*n.elapsed)
	}
	owed := p.guaranteed
	if hasEnough := !n.full() || !p.mayWait() || !p.idle && !scarce; hasEnough {
		owed = min(owed, p.usage)
	}
	p.remember(cfg, tick{n.elapsed, p.usage, owed})
}

// noteProbation notes for how long the pod is quiet, and what its probation shows. It runs from the tick after the one
// in which the pod wakes, of which the pod may have used a part. A pod that waits is not quiet: it may get next to nothing
// as its weight is small.
func (p *pod) noteProbation(cfg Config, n *node) {
	waits := p.pressure.Known && p.pressure.Value >= waitsFrom
	switch wasQuiet := p.quietFor >= cfg.QuietAfter; {
	case p.idle || p.heldOff: // class and limits hold it down
		p.quietFor, p.probation = 0, 0
	case p.known && !waits && p.usage.Cores() < cfg.QuietBelow*p.share.Cores():
		if p.quietFor = min(p.quietFor+n.elapsed, cfg.QuietAfter); p.quietFor >= cfg.QuietAfter {
			p.probation, p.evidence = cfg.Probation, noEvidence
		} else {
			p.evidence = notSaturates
		}
	case wasQuiet:
		p.quietFor = 0
	case p.probation > 0:
		p.quietFor, p.probation = 0, max(0, p.probation-n.elapsed)
		p.see(cfg, n)
		p.proved = p.probation == 0 && p.evidence == saturates
	default:
		p.quietFor = 0
	}
}

// see takes in the evidence of a tick: a pod on probation saturates that waits for a CPU, although it has more than it is
// entitled to. Where it is not known whether the pod waits, the node has to be full.
func (p *pod) see(cfg Config, n *node) {
	switch {
	case p.evidence == notSaturates || !p.decided:
	case p.limited && n.scarce(cfg) && p.mayWait() && (p.pressure.Known || n.full()) && p.usage > p.entitled():
		p.evidence = saturates
	default:
		p.evidence = notSaturates
	}
}

// mayWait says whether the pod may wait for a CPU, as far as that is known.
func (p *pod) mayWait() bool { return !p.pressure.Known || p.pressure.Value >= waitsFrom }

// holdOffFor keeps the pod out of the class for a time, and leaves it to limits.
func (p *pod) holdOffFor(cfg Config, now time.Time, d time.Duration) {
	p.holdOff = min(max(cfg.HoldOff, d), cfg.LongestHoldOff)
	p.heldOff, p.heldOffUntil, p.saturatesFor = true, now.Add(p.holdOff), 0
}

// remember adds a tick to the recent ones.
func (p *pod) remember(cfg Config, t tick) {
	recent, length := []tick{t}, t.elapsed
	for i := len(p.recent) - 1; i >= 0 && length < cfg.Window; i-- {
		recent = append(recent, p.recent[i])
		length += p.recent[i].elapsed
	}
	p.recent = make([]tick, 0, len(recent)) // the state before keeps its own
	for i := len(recent) - 1; i >= 0; i-- {
		p.recent = append(p.recent, recent[i])
	}
}

// short is by how many cores the pod's mean falls short of what its request guarantees, beyond the tolerance; 0 or
// less: it does not, or too little is known of it.
func (p *pod) short(cfg Config) float64 {
	var used, owed float64
	var length time.Duration
	for _, t := range p.recent {
		used += t.usage.Cores() * t.elapsed.Seconds()
		owed += t.owed.Cores() * t.elapsed.Seconds()
		length += t.elapsed
	}
	if length < cfg.Window {
		return 0
	}
	return ((1-cfg.Tolerance)*owed - used) / length.Seconds()
}

// entitled is its share. On probation it is no more than its request or its budget: a pod that takes more of a full node
// with a small weight would take even more with its own.
func (p *pod) entitled() cpu.Milli {
	if p.onProbation {
		return min(p.share, max(p.guaranteed, cpu.Milli(p.budget)))
	}
	return p.share
}

// mayHave is what it is entitled to, or its highest usage while CPU was not scarce if that is more.
func (p *pod) mayHave(cfg Config) float64 { return max(p.entitled().Cores(), cfg.CalmFactor*p.calm) }

// excess is by how much the pod takes more than it may have, in cores, and ratio that as a share of what it may have.
func (p *pod) excess(cfg Config) float64 { return p.usage.Cores() - p.mayHave(cfg) }
func (p *pod) ratio(cfg Config) float64  { return p.excess(cfg) / max(0.001, p.mayHave(cfg)) }

// sure says whether the pod is sure to saturate: where it has an excess for SureAfter, or for DrainAfter while others
// may work off what came together before a change of the class, and else for SlowAfter.
func (p *pod) sure(cfg Config, calm bool) bool {
	if p.proved {
		return p.excess(cfg) > 0
	}
	need := cfg.SlowAfter
	switch {
	case p.excess(cfg) <= 0:
	case calm:
		need = cfg.SureAfter
	default:
		need = cfg.DrainAfter
	}
	return p.saturatesFor >= need-p.elapsed/2 // ticks jitter
}
