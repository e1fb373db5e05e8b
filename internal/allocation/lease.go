package allocation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
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
	// Quotas are those of pods whose own cgroup has another CPU quota than the kubelet computes from
	// their limits, and that MBCAS may repair, of MaxQuotas of them at most. QuotasUnread: there may be more
	// new ones, as not all fit, or the agent has just started.
	Quotas       Quotas `json:"quotas,omitempty"`
	QuotasUnread bool   `json:"quotasUnread,omitempty"`
}

// MaxMarketText bounds the annotation, in bytes. The policy mbcas-leases refuses more than 512.
const MaxMarketText = 480

// Quotas are CPU quotas of pods' own cgroups, by the first characters of the pods' UIDs.
type Quotas map[string]Quota

// Quota is one of them, as the agent found it at this generation of the pod. Of another generation it says nothing.
type Quota struct {
	Generation int64     `json:"g"`
	CPU        cpu.Milli `json:"q"`
}

// MaxQuotas is how many pods Quotas holds. They are repaired one after the other where more are wrong, as after a
// daemon-reload of systemd.
const MaxQuotas = 5

// Add adds the quota of a pod, where there is room.
func (q *Quotas) Add(pod types.UID, quota Quota) {
	if *q == nil {
		*q = Quotas{}
	}
	if len(*q) < MaxQuotas {
		(*q)[partOf(pod)] = quota
	}
}

// Of is the quota of a pod at that generation; 0: nothing is wrong with it, as far as is known.
func (q Quotas) Of(pod types.UID, generation int64) cpu.Milli {
	if quota := q[partOf(pod)]; quota.Generation == generation {
		return quota.CPU
	}
	return 0
}

// QuotaOf is the quota of the pod's own cgroup where that is wrong, by a Lease that was renewed then; reported is zero
// where not all such quotas are.
func (m NodeMarket) QuotaOf(pod *corev1.Pod, renewed time.Time) (quota lifecycle.Quota, reported time.Time) {
	if q := m.Quotas.Of(pod.UID, pod.Generation); q > 0 {
		quota = lifecycle.Quota{CPU: q, Wanted: kube.PodQuota(pod)}
	}
	if !m.QuotasUnread {
		reported = renewed
	}
	return quota, reported
}

// Text is the annotation. Quotas for which it has no room are left out; without them it always fits.
func (m NodeMarket) Text() string {
	text, _ := json.Marshal(m) // it is numbers and texts
	m.Quotas = maps.Clone(m.Quotas)
	for _, pod := range slices.Sorted(maps.Keys(m.Quotas)) {
		if len(text) <= MaxMarketText {
			break
		}
		delete(m.Quotas, pod)
		m.QuotasUnread = true
		text, _ = json.Marshal(m)
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
