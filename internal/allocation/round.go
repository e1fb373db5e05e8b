package allocation

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
)

// RoundReport is the last round of a node, as its agent serves it on /debug/round and as the plugin
// reads it.
type RoundReport struct {
	At   time.Time  `json:"at"`
	Took string     `json:"took"` // to read the counters and run the round
	Node NodeReport `json:"node"`
	// Pods are those with a decision, by namespace and name.
	Pods []PodReport `json:"pods"`
}

// NodeReport is the market of the node.
type NodeReport struct {
	Price        float64   `json:"price"`   // at which limits are set; 0: CPU is not scarce
	Cleared      float64   `json:"cleared"` // before the bands
	Supply       cpu.Milli `json:"supply"`
	Demand       cpu.Milli `json:"demand"`
	SignalDemand cpu.Milli `json:"signalDemand"` // what DemandSignals add to the demand, kept free
	Usage        cpu.Milli `json:"usage"`
	System       cpu.Milli `json:"system"` // the last known
	// SystemKnown is false while what the system uses cannot be read.
	SystemKnown bool `json:"systemKnown"`
	// Pressure is the share of time in which some task waited for a CPU; absent where the kernel
	// does not tell.
	Pressure           *float64 `json:"pressure,omitempty"`
	FloorsExceedSupply bool     `json:"floorsExceedSupply"`
	// Pods by their part in the round. A pod can count as managed and as unmanaged: its containers
	// without a limit are unmanaged.
	Managed   int `json:"managed"`
	Unmanaged int `json:"unmanaged"`
	WarmingUp int `json:"warmingUp"`
	Stale     int `json:"stale"`
	// Unenforced have a limit and no quota: nothing is published for them.
	Unenforced int `json:"unenforced"`
}

// PodReport is one pod's part of the round.
type PodReport struct {
	Namespace  string               `json:"namespace"`
	Name       string               `json:"name"`
	UID        types.UID            `json:"uid"`
	Limit      cpu.Milli            `json:"limit"`   // in the pod's spec: what is in force or on its way
	Desired    cpu.Milli            `json:"desired"` // as decided
	Containers map[string]cpu.Milli `json:"containers"`
	Usage      cpu.Milli            `json:"usage"`
	Demand     cpu.Milli            `json:"demand"`
	Throttled  float64              `json:"throttled"` // share of CFS periods
	Pressure   *float64             `json:"pressure,omitempty"`
	// MemoryPressure and IOPressure are the shares of time in which all its tasks stalled on memory
	// or IO (PSI full); absent where they are not read.
	MemoryPressure *float64         `json:"memoryPressure,omitempty"`
	IOPressure     *float64         `json:"ioPressure,omitempty"`
	Budget         int64            `json:"budget"`
	Floor          cpu.Milli        `json:"floor"`
	Ceiling        cpu.Milli        `json:"ceiling"`
	BoundBy        v1alpha1.BoundBy `json:"boundBy"`
}
