// Package kube translates between Kubernetes objects and our words, and is the only place that does.
// It holds no client: everything here is a pure function of objects.
package kube

// Labels and annotations that users write.
const (
	// ModeLabel on a Namespace says what MBCAS does there: off, recommend, enforce or restore.
	ModeLabel = "mbcas.io/mode"
	// ManagedKey as label or annotation of a Pod with the value "false" takes it out of the market.
	ManagedKey = "mbcas.io/managed"
	// MaxCPUKey as annotation of a Pod lowers the ceiling of its total CPU limit; a Kubernetes quantity.
	MaxCPUKey = "mbcas.io/max-cpu"
)

// FieldManager is the name under which the API server records our writes to pods.
const FieldManager = "mbcas-controller"

// SystemNamespace is where MBCAS itself runs by default.
const SystemNamespace = "mbcas-system"

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

// ModeOf is the mode of a namespace: its label, or the installation's default where it has none. A label
// that cannot be read counts as recommend, which changes nothing; ok is then false.
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

// AlwaysOut says whether pods of a namespace are always left alone; system is our own namespace.
func AlwaysOut(namespace, system string) bool {
	switch namespace {
	case "kube-system", "kube-node-lease", "kube-public", system:
		return true
	}
	return false
}
