package sim

import (
	"math/rand/v2"
	"time"
)

// Delay is a time that is drawn evenly between two bounds.
type Delay struct{ Min, Max time.Duration }

// Draw draws one.
func (d Delay) Draw(rng *rand.Rand) time.Duration {
	if d.Max <= d.Min {
		return d.Min
	}
	return d.Min + time.Duration(rng.Int64N(int64(d.Max-d.Min)))
}

// ResizeDone is the time from a resize to the pod status that reports it carried out, as measured with a kubelet
// of 1.36, which writes the status when it has written the quota.
var ResizeDone = Delay{100 * time.Millisecond, 500 * time.Millisecond}

// Draws is a stream of random numbers for the delays of a policy on a node with that seed.
func Draws(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x64656c6179)) }
