// Package kube translates what MBCAS reads of Kubernetes objects: quantities, containers, labels
// and owners. It also holds the names that the parts of MBCAS share. Everything here is a pure
// function of objects.
package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Labels and annotations that users write.
const (
	// ModeLabel on a Namespace says what MBCAS does there: off, recommend, enforce or restore.
	ModeLabel = "mbcas.io/mode"
	// ManagedKey as label or annotation of a Pod with the value "false" takes it out of the market.
	ManagedKey = "mbcas.io/managed"
	// MaxCPUKey as annotation of a Pod lowers the ceiling of its total CPU limit; a Kubernetes
	// quantity.
	MaxCPUKey = "mbcas.io/max-cpu"
	// StartupBoostKey as label or annotation of a Pod, or of a Namespace for all its pods, is the factor by
	// which the CPU limit of a pod that starts exceeds the declared one at least; off: it does not.
	StartupBoostKey = "mbcas.io/startup-boost"
	// MaxRaiseKey as label or annotation of a Pod, or of a Namespace for all its pods, is the multiple of its declared
	// limit that the CPU limit of a container reaches at most.
	MaxRaiseKey = "mbcas.io/max-raise"
	// HighestMaxRaise is its highest value.
	HighestMaxRaise = 1000
	// BelowDeclaredKey as label or annotation of a Namespace with the value BelowDeclaredNever keeps the
	// CPU limits of its pods at their declared limits or above.
	BelowDeclaredKey   = "mbcas.io/below-declared"
	BelowDeclaredNever = "never"
)

// AllowDecreaseKey as annotation of a HorizontalPodAutoscaler or a PodDisruptionBudget with the
// value "true" allows decreases of its pods, which the object otherwise prevents. The floor that an
// HPA sets still holds.
const AllowDecreaseKey = "mbcas.io/allow-decrease"

// MarketKey as annotation of an agent's Lease is what the agent says of the market of its node.
const MarketKey = "mbcas.io/market"

// Names under which the API server records writes.
const (
	// FieldManager is the controller's, for pods above all: WrittenByMBCAS looks for it.
	FieldManager = "mbcas-controller"
	// PluginFieldManager is the plugin's. A change that a person makes with it is an external
	// change.
	PluginFieldManager = "kubectl-mbcas"
)

// SystemNamespace is where MBCAS itself runs by default.
const SystemNamespace = "mbcas-system"

// AgentDebugPort is the port on the loopback of an agent's pod on which it serves what names pods.
const AgentDebugPort = 9091

// Objects in the namespace that MBCAS runs in, which its parts and users share.
const (
	// SwitchName is the ConfigMap that pauses all resizes: PausedKey set to anything but "false"
	// pauses. Once no resize is in flight, the controller repeats the value under AcknowledgedKey.
	SwitchName      = "mbcas"
	PausedKey       = "paused"
	AcknowledgedKey = "acknowledged"
	// BlockedKey is the reason why the controller can resize no pod of the cluster, and
	// BlockedMessageKey the reason in a sentence.
	BlockedKey        = "blocked"
	BlockedMessageKey = "blockedMessage"
	// WarningKey is the reason why the controller does less than it should, though it resizes pods,
	// and WarningMessageKey the reason in a sentence.
	WarningKey        = "warning"
	WarningMessageKey = "warningMessage"

	// LedgerLabel marks the ConfigMaps of the second record of declared limits, one per node;
	// LedgerPrefix and the node's name make theirs.
	LedgerLabel  = "mbcas.io/ledger"
	LedgerPrefix = "mbcas-declared-"

	// LeaderLease is the Lease by which controllers elect their leader.
	LeaderLease = "mbcas-controller"

	// ReplicaLabel marks the Leases by which the replicas of the controller divide the nodes, and
	// AcknowledgedPauseKey as annotation of one is the pause that its replica has acknowledged.
	ReplicaLabel         = "mbcas.io/controller-replica"
	AcknowledgedPauseKey = "mbcas.io/acknowledged-pause"

	agentLease = "mbcas-agent-"
)

// CacheLag is how long a cache may take to show what the API server has. Shorter takes a late object for
// a deleted one; longer builds on what is gone.
const CacheLag = 10 * time.Second

// maxName is how long the name of an object may be.
const maxName = 253

// NameOfNode is the name of an object that belongs to a node: a prefix and the name of the node. Where
// that is too long, a hash of the node's name stands for its end.
func NameOfNode(prefix, node string) string {
	if len(prefix)+len(node) <= maxName {
		return prefix + node
	}
	sum := sha256.Sum256([]byte(node))
	hash := hex.EncodeToString(sum[:10])
	start := node[:maxName-len(prefix)-1-len(hash)]
	return prefix + strings.TrimRight(start, "-.") + "-" + hash
}

// NodeOfName is the node that an object with such a name belongs to; false for another object. A
// shortened name does not tell: there the Node that owns the object does.
func NodeOfName(prefix string, o metav1.Object) (node string, ok bool) {
	name, ok := strings.CutPrefix(o.GetName(), prefix)
	if !ok || name == "" {
		return "", false
	}
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "Node" && NameOfNode(prefix, owner.Name) == o.GetName() {
			return owner.Name, true
		}
	}
	return name, true
}

// ReplicaLease is the name of the Lease that a replica of the controller renews. The identity, which no
// other process has, begins with the name of its pod.
func ReplicaLease(identity string) string {
	return NameOfNode(LeaderLease+"-", strings.ToLower(strings.TrimPrefix(identity, LeaderLease+"-")))
}

// AgentLease is the name of the Lease that the agent of a node renews. Where a prefix would make it too
// long, it is that of the node: the policy mbcas-leases can work out no hash.
func AgentLease(node string) string {
	if len(node) > maxName-len(agentLease) {
		return node
	}
	return agentLease + node
}

// AgentSilentAfter is the age of the Lease from which users are told that an agent is silent. The agent
// renews it every 20 to 30 s.
const AgentSilentAfter = 45 * time.Second

// AgentLeaseNode is the node of an agent's Lease; false for any other Lease.
func AgentLeaseNode(lease metav1.Object) (node string, ok bool) {
	name := lease.GetName()
	if node, ok = strings.CutPrefix(name, agentLease); ok {
		return node, node != ""
	}
	return name, AgentLease(name) == name
}

// Mode is what MBCAS does in a namespace.
type Mode string

const (
	ModeOff       Mode = "off"       // nothing: no object, no resize
	ModeRecommend Mode = "recommend" // decides and records, never resizes
	ModeEnforce   Mode = "enforce"   // decides, records and resizes
	ModeRestore   Mode = "restore"   // returns every pod to its declared limits and keeps it there
)

// ParseMode reads a mode as users write it.
func ParseMode(s string) (Mode, bool) {
	switch m := Mode(s); m {
	case ModeOff, ModeRecommend, ModeEnforce, ModeRestore:
		return m, true
	}
	return "", false
}

// ModeOf is the mode of a namespace: its label, or the installation's default where it has none. A
// label that cannot be read counts as recommend, which changes nothing; ok is then false.
func ModeOf(labels map[string]string, byDefault Mode) (m Mode, ok bool) {
	s, labelled := labels[ModeLabel]
	if !labelled {
		return byDefault, true
	}
	if m, ok := ParseMode(s); ok {
		return m, true
	}
	return ModeRecommend, false
}

// ForbidsBelowDeclared says whether a namespace forbids limits below the declared ones, by
// BelowDeclaredKey. A value other than BelowDeclaredNever forbids them, too: it may be misspelt.
func ForbidsBelowDeclared(namespace metav1.Object) (value string, forbids bool) {
	return textOf(namespace, BelowDeclaredKey)
}

// AlwaysUnmanaged says whether pods of a namespace are never managed; system is the namespace of
// MBCAS.
func AlwaysUnmanaged(namespace, system string) bool {
	switch namespace {
	case "kube-system", "kube-node-lease", "kube-public", system:
		return true
	}
	return false
}

// Newer says whether one version of an object is later than another.
func Newer(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}
