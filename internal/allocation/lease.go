package allocation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// NodeMarket is what an agent says of its node with each renewal of the Lease, in the annotation
// kube.MarketKey. The renewal confirms all decisions that it does not name as unconfirmed, so that a
// decision that stays as it is need not be written again.
type NodeMarket struct {
	Round uint64 `json:"round"` // rounds since the agent started
	// Epoch is the time of the newest published decision about a pod of the node. A reader that has not
	// seen that decision yet does not know which decisions are confirmed.
	Epoch  Epoch        `json:"epoch"`
	Price  market.Price `json:"price"`
	Supply cpu.Milli    `json:"supply"`
	Demand cpu.Milli    `json:"demand"`
	Usage  cpu.Milli    `json:"usage"`
	// Waiting is how many decisions wait to be published, Managed how many pods bid, and Capped how many of
	// them the price caps.
	Waiting int `json:"waiting,omitempty"`
	Managed int `json:"managed,omitempty"`
	Capped  int `json:"capped,omitempty"`
	// Full: the floors of the pods exceed the supply.
	Full bool `json:"full,omitempty"`
	// Unconfirmed are the pods whose published decision the agent does not stand by: the first
	// characters of their UIDs, or AllPods.
	Unconfirmed Unconfirmed `json:"unconfirmed,omitempty"`
}

// MaxMarketText bounds the annotation, in bytes. The policy mbcas-leases refuses more than 512.
const MaxMarketText = 320

// Text is the annotation.
func (m NodeMarket) Text() string {
	text, err := json.Marshal(m)
	if err != nil || len(text) > MaxMarketText { // the figures of a node that does not exist
		text, _ = json.Marshal(NodeMarket{Unconfirmed: AllPods})
	}
	return string(text)
}

// ParseNodeMarket reads an annotation.
func ParseNodeMarket(text string) (m NodeMarket, err error) {
	if err = json.Unmarshal([]byte(text), &m); err != nil {
		return NodeMarket{}, fmt.Errorf("the market in the Lease of an agent, %.256q: %w", text, err)
	}
	return m, nil
}

// Epoch is a time with the precision of a decision's observedAt, as microseconds in text.
type Epoch struct{ time.Time }

// MarshalJSON writes microseconds since 1970; 0 for no time.
func (e Epoch) MarshalJSON() ([]byte, error) {
	if e.IsZero() {
		return []byte("0"), nil
	}
	return json.Marshal(e.UnixMicro())
}

// UnmarshalJSON reads the form of MarshalJSON.
func (e *Epoch) UnmarshalJSON(text []byte) error {
	var micros int64
	if err := json.Unmarshal(text, &micros); err != nil {
		return fmt.Errorf("epoch: %w", err)
	}
	if *e = (Epoch{}); micros != 0 {
		e.Time = time.UnixMicro(micros)
	}
	return nil
}

// Unconfirmed is a set of pods, in few bytes: the first characters of their UIDs, without
// separators. A pod that shares them with another one counts as unconfirmed, too.
type Unconfirmed string

const (
	// AllPods are all pods of the node.
	AllPods Unconfirmed = "*"

	uidPart        = 6
	maxUnconfirmed = 14
)

// UnconfirmedOf is the set of these pods; all of the node if they are too many to name.
func UnconfirmedOf(uids []types.UID) Unconfirmed {
	if len(uids) > maxUnconfirmed {
		return AllPods
	}
	uids = slices.Sorted(slices.Values(uids)) // the same pods have one spelling
	var set strings.Builder
	for _, uid := range uids {
		set.WriteString(partOf(uid))
	}
	return Unconfirmed(set.String())
}

// Has says whether the pod is in the set.
func (u Unconfirmed) Has(uid types.UID) bool {
	if u == AllPods {
		return true
	}
	part := partOf(uid)
	for i := 0; i+uidPart <= len(u); i += uidPart {
		if string(u[i:i+uidPart]) == part {
			return true
		}
	}
	return false
}

// partOf is the part of a UID that stands in a set. UIDs of the API server are longer.
func partOf(uid types.UID) string {
	return (string(uid) + strings.Repeat("-", uidPart))[:uidPart]
}
