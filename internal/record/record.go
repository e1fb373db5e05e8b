// Package record keeps what the rounds of an agent were given, so that they can be run again: the flight
// recorder of a node. It keeps inputs and not results, because the results follow from them.
//
// A recording is made of minutes. Each begins with the settings and the state of the market, so it can be
// replayed without those before it, and old ones can be dropped.
//
// Promises:
//   - What is read is what was recorded, in the same order: TestWriteAndRead.
//   - A recorder holds no more than its limits, however busy the node: TestBounds.
//   - A renamed recording has the same events under the given names alone: TestRename.
//   - Minutes around an incident outlast others: TestPins.
//   - A file that is cut or corrupt gives an error with the offset, and the minutes before it are kept:
//     TestDamage, FuzzOpen.
package record

import (
	"cmp"
	"hash/fnv"
	"time"

	"github.com/mbcas/mbcas/internal/delta"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/round"
)

// Name names a pod, in the order of the input's pods.
type Name struct{ Namespace, Name string }

func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Compare is that of cmp.Compare, by namespace first.
func (n Name) Compare(m Name) int {
	return cmp.Or(cmp.Compare(n.Namespace, m.Namespace), cmp.Compare(n.Name, m.Name))
}

// Event is what happened at one time. One of Round, Look, Join and Gap is set.
type Event struct {
	Round *round.Input
	Look  *Look
	Join  *Join
	Gap   *Gap
	// Names are those of the pods of a Round or a Join.
	Names []Name
	// Digest is that of the output, see DigestOf.
	Digest uint64
}

// At is when the event was.
func (e Event) At() time.Time {
	switch {
	case e.Round != nil:
		return e.Round.Now
	case e.Look != nil:
		return e.Look.At
	case e.Join != nil:
		return e.Join.At
	}
	return e.Gap.At
}

// Look is the input of round.Look.
type Look struct {
	At     time.Time
	Sample kernel.Sample
}

// Join is the input of round.Join.
type Join struct {
	At     time.Time
	Pods   []round.PodInput
	Sample kernel.Sample
}

// Gap is a time in which no round was run, and why.
type Gap struct {
	At  time.Time
	Why string
}

// Keyframe is what a minute begins with.
type Keyframe struct {
	Config round.Config
	State  round.State
}

// Kinds of events in a minute.
const (
	kindRound = 1
	kindLook  = 2
	kindJoin  = 3
	kindGap   = 4
)

// The codecs. Their schemas are part of a file: values of another schema cannot be read.
var (
	keyframes = delta.Must[Keyframe]()
	inputs    = delta.Must[round.Input]()
	looks     = delta.Must[Look]()
	joins     = delta.Must[Join]()
	gaps      = delta.Must[Gap]()
	names     = delta.Must[[]Name]()
)

// schema is a digest of all schemas.
func schema() uint64 {
	h := fnv.New64a()
	for _, s := range []string{keyframes.Schema(), inputs.Schema(), looks.Schema(), joins.Schema(), gaps.Schema(), names.Schema()} {
		h.Write([]byte(s + "\n")) // never fails
	}
	return h.Sum64()
}

// DigestOf is a digest of the whole numbers of a round's output: limits, demands, what binds them, what is
// published, and the node's supply and demand. Prices are left out: their last bit depends on the architecture.
func DigestOf(out *round.Output) uint64 {
	h := digest(14695981039346656037) // FNV-1a by words of 64 bits
	h.int(int64(out.Node.Supply))
	h.int(int64(out.Node.Demand))
	h.int(int64(out.Node.Bidders))
	for i := range out.Decisions {
		d := &out.Decisions[i]
		h.int(int64(d.Pod))
		h.int(int64(d.Limit))
		h.int(int64(d.Demand))
		h.int(int64(d.Bound))
		if d.Publish {
			h.int(1)
		}
		for _, c := range d.Containers {
			h.int(int64(c.Limit))
		}
	}
	for _, i := range out.Watch {
		h.int(int64(i))
	}
	return uint64(h)
}

type digest uint64

func (h *digest) int(v int64) {
	*h = (*h ^ digest(v)) * 1099511628211
	*h ^= *h >> 32 // a product carries upwards alone
}
