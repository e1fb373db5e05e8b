// Package controller turns PodAllocations into in-place changes of CPU limits, one node at a time,
// and records what it did and why. A reconcile gathers one node from caches, decides without a
// client or a clock, acts, and reports.
//
// What it promises, each a test of the same name:
//   - RecordsBeforeResizing: no pod is resized before its declared limits are written down.
//   - NeverForgetsDeclared: a PodAllocation, the CRD or the controller may vanish at any point, and
//     a resized limit is never taken for a declared one.
//   - ComesBackQuietly: killed before or after any write, it resizes nothing on return that the
//     decision does not call for.
//   - HoldsOffAfterExternalChange: limits that another client changed become the declared ones, and the
//     pod is left alone for a while.
//   - LeavesNothingBehind: a pod that leaves the market goes back to its declared limits first.
//   - ActsNowhereBlind: without pods/resize, the right to it, or a living agent, nothing is
//     resized, and status says so.
//   - StaleMovesNothing: a pod whose agent does not stand by an old decision is not resized, even
//     while the agent renews its Lease.
//   - PublishesConstraints: of each managed pod, declared limits and constraints are published
//     to the agent of its node.
//   - OneWriteForAll: a constraint that comes and goes for all pods of a node costs one write.
//   - OneForAll: an API error, or a panic, about one pod costs the others of its node nothing.
//   - HangsAlone: no look at a node waits for a resize, and a resize that hangs costs its namespace only.
//   - AnIncreaseSupersedes: an increase takes the place of the pod's own decrease in flight.
//   - DecisionsComeBeforeStatuses: newer decisions are acted on before statuses are written.
//   - Quiet: when nothing changes, nothing is written.
package controller

import (
	"errors"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/internal/coordinator"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/demandsignal"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/quota"
)

// Config is how the controller behaves.
type Config struct {
	// Config is how pods are treated.
	lifecycle.Config
	// Mode is what happens in namespaces without the label mbcas.io/mode.
	Mode kube.Mode
	// MaxRaise is the multiple of its declared limit that the limit of a container reaches at most, where neither pod nor
	// namespace sets it. Smaller spares programs that size themselves by it; larger throttles bursts less.
	MaxRaise int
	// Namespace is where MBCAS itself runs and keeps its records.
	Namespace string
	// Coordinator is how budgets are moved between nodes.
	Coordinator coordinator.Config
	// CoordinationInterval is the time from one pass of the coordinator to the next; 0 switches it off. Shorter follows
	// sooner; longer writes less. Agents tell prices as they renew Leases: much shorter than that does not help.
	CoordinationInterval time.Duration
	// Quota is how what ResourceQuotas leave is divided.
	Quota quota.Config
	// Signal is how the metrics of DemandSignals are read and used.
	Signal demandsignal.Config
	// Resizes bounds the resizes of the installation.
	Resizes flowcontrol.Config
	// Timeout is how long one look at a node may take, with all its writes but resizes. Shorter gives up on a slow API
	// server; longer acts on what was read long ago, and lets a request that hangs hold its node up.
	Timeout time.Duration
	// Nodes is how many nodes are reconciled at the same time, Pods how many pods of one node are written. A reconcile
	// waits for its writes: with fewer a slow API server delays other nodes; with more it gets more requests at once.
	Nodes, Pods int
}

// DefaultConfig is what we would run ourselves, except that it starts by recommending.
func DefaultConfig() Config {
	return Config{
		Config: lifecycle.DefaultConfig(), Mode: kube.ModeRecommend, MaxRaise: demand.DefaultMaxRaise, Namespace: kube.SystemNamespace,
		Coordinator: coordinator.DefaultConfig(), CoordinationInterval: 30 * time.Second,
		Quota: quota.DefaultConfig(), Signal: demandsignal.DefaultConfig(),
		Resizes: flowcontrol.DefaultConfig(), Timeout: time.Minute, Nodes: 32, Pods: 8,
	}
}

// Validate says everything that is wrong.
func (c Config) Validate() error {
	errs := []error{
		c.Config.Validate(), c.Quota.Validate(), c.Signal.Validate(), c.Coordinator.Validate(), c.Resizes.Validate(),
	}
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("controller "+format, args...))
		}
	}
	_, known := kube.ParseMode(string(c.Mode))
	want(known, "Mode is %q: want off, recommend, enforce or restore", c.Mode)
	want(c.MaxRaise >= 1 && c.MaxRaise <= kube.HighestMaxRaise, "MaxRaise is %d: want 1 to %d", c.MaxRaise, kube.HighestMaxRaise)
	want(c.Namespace != "", "Namespace is empty: want the namespace that MBCAS runs in")
	want(c.Timeout > 0, "Timeout is %v: want more than 0", c.Timeout)
	want(c.CoordinationInterval >= 0, "CoordinationInterval is %v: want 0 or more", c.CoordinationInterval)
	want(c.Nodes >= 1 && c.Pods >= 1, "Nodes and Pods are %d and %d: want at least 1", c.Nodes, c.Pods)
	return errors.Join(errs...)
}
