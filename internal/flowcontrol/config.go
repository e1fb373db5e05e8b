package flowcontrol

import (
	"errors"
	"fmt"
)

// Config bounds the resizes of an installation.
type Config struct {
	// PerSecond and PerNode are the resizes per second of the whole cluster: PerSecond, and PerNode more
	// for each node, but not more than MaxPerSecond. Lower spares the API server; higher follows large
	// shifts of load sooner.
	PerSecond, PerNode, MaxPerSecond float64
	// Burst is how many resizes may be made at once after a pause, in a cluster without nodes. It
	// grows with the cluster like the rate.
	Burst int
	// NodePerSecond and NodeBurst bound the resizes of one node in the same way. Lower spares its
	// kubelet; higher follows sooner.
	NodePerSecond float64
	NodeBurst     int
	// Workers is how many resizes are under way at the same time, and NamespaceWorkers how many of one
	// namespace: as many as its webhooks can hold up. Fewer leave more to the others; more serve a
	// cluster of one namespace faster.
	Workers, NamespaceWorkers int
}

// DefaultConfig is what we run ourselves.
func DefaultConfig() Config {
	return Config{
		PerSecond: 10, PerNode: 0.1, MaxPerSecond: 100, Burst: 20, NodePerSecond: 2, NodeBurst: 20,
		Workers: 64, NamespaceWorkers: 8,
	}
}

// Validate returns everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("resizes: "+format, args...))
		}
	}
	want(c.PerSecond > 0, "%v per second: want more than 0", c.PerSecond)
	want(c.PerNode >= 0, "%v per second and node: want 0 or more", c.PerNode)
	want(c.MaxPerSecond >= c.PerSecond, "at most %v per second: want at least the %v of the smallest cluster",
		c.MaxPerSecond, c.PerSecond)
	want(c.Burst >= 1, "a burst of %d: want at least 1", c.Burst)
	want(c.NodePerSecond > 0, "%v per second of one node: want more than 0", c.NodePerSecond)
	want(c.NodeBurst >= 1, "a burst of %d on one node: want at least 1", c.NodeBurst)
	want(c.NamespaceWorkers >= 1, "%d workers of one namespace: want at least 1", c.NamespaceWorkers)
	want(c.Workers > c.NamespaceWorkers, "%d workers: want more than the %d of one namespace, so that one cannot use all",
		c.Workers, c.NamespaceWorkers)
	return errors.Join(errs...)
}

// requestsPerResize is how many requests one resize causes at most: the dry run, the resize, the
// status when it is sent and when the kubelet has carried it out, an Event, and a read where an answer
// is lost.
const requestsPerResize = 6

// otherRequests leaves room for what is no resize: records of new pods, reads, Leases.
const otherRequests = 50

// QPS is how many requests per second the client needs, so that it does not slow down what the
// budgets allow.
func (c Config) QPS() float64 { return requestsPerResize*c.MaxPerSecond + otherRequests }

// rate is the resizes per second of a cluster of so many nodes, and its burst.
func (c Config) rate(nodes int) (perSecond float64, burst float64) {
	perSecond = min(c.PerSecond+c.PerNode*float64(nodes), c.MaxPerSecond)
	return perSecond, float64(c.Burst) * perSecond / c.PerSecond
}
