package round

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// whileDemandsFit is the limit of a capped pod that the price would lower to target. While all demands fit the
// supply, the price in force is one from before, and a lower limit would give CPU to no pod. So no decrease is
// published, and one on its way ends where the limit is. One that is published goes on before its first step, and if
// demands fit barely: those around the supply would end it and begin it in turn.
func (s State) whileDemandsFit(b bidder, uid string, target cpu.Milli) cpu.Milli {
	switch {
	case s.price.slack == scarce:
		return target
	case b.published > 0 && (s.price.slack == demandsFit || !s.descents[uid].onItsWay):
		return max(target, min(b.limit, b.published))
	}
	return b.limit
}

// descent is what rounds remember of a pod's limit on its way down.
type descent struct {
	limit    cpu.Milli
	fellAt   time.Time
	onItsWay bool // it fell lately, so that the next step may follow
}

// noteDescents notes whose limits are on their way down. Decisions that no controller carries out are not.
func noteDescents(cfg Config, before map[string]descent, in Input, book []bidder) map[string]descent {
	after := ofPods(before, in.Pods)
	for i := range book {
		b, uid := &book[i], in.Pods[book[i].pod].UID
		if !b.managed {
			continue
		}
		d, known := before[uid]
		if known && b.limit < d.limit {
			d.fellAt = in.Now
		}
		d.limit, d.onItsWay = b.limit, !d.fellAt.IsZero() && in.Now.Sub(d.fellAt) <= 2*cfg.PublishInterval
		after[uid] = d
	}
	return after
}
