// Package mbcas is the root of MBCAS, the Market-Based CPU Allocation System for Kubernetes.
//
// MBCAS moves CPU between the running pods of a node by watching what the kernel says about
// them. Once a second an agent on each node clears a small market for that node's CPU; a
// controller carries the result out as in-place changes of CPU limits.
//
// The data flows one way, and the folders are named after its stages:
//
//	internal/kernel       cgroup and pressure counters, in the kernel's words: a Sample
//	      |
//	internal/sense        two samples of a container: a Rate
//	      |
//	internal/demand       rates and policy: a bid (floor, ceiling, budget, demand)
//	      |
//	market                bids and supply: a price, and what each budget buys
//	      |
//	internal/round        the four steps above as one pure function: (State, Input) -> (State, Output)
//	      |
//	internal/agent        plays a round each second, publishes decisions
//	      |
//	api/v1alpha1          PodAllocation: the decision in spec, what was done with it in status
//	      |
//	internal/controller   creates PodAllocations, records declared limits, reconciles
//	      |
//	actuator              what is and what should be: the next safe Move, or the Reason for none
//	      |
//	actuator/podresize    one Move through the API: pods/resize, a typed Outcome
//
// cpu holds the unit that all of them count in. internal/kube translates between Kubernetes
// objects and these words, and nothing else does. internal/cli is the kubectl plugin. Programs
// in cmd hold flags and wiring only.
//
// Imports point up this list, never down; arch_test.go names every allowed one. What stands
// above internal/agent, except for api, knows no clock, no I/O (but for internal/kernel, whose
// job it is) and no Kubernetes.
package mbcas
