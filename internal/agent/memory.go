package agent

// Every node pays for the agent's memory, so the program trades a little CPU for it: what a full node
// keeps alive is a few MiB, and collecting garbage twice as often as Go does by itself costs next to nothing.
const (
	// GCPercent is what the program sets as GOGC.
	GCPercent = 50
	// MemoryLimit is what the program sets as GOMEMLIMIT, in bytes: from here on garbage is collected
	// harder rather than the heap grown.
	MemoryLimit = 32 << 20
)
