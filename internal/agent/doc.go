// Package agent is the daemon of one node: once a second it samples the node's cgroups, runs a
// round of the node's market, and writes the decisions into the PodAllocations of its pods.
//
//	API server -> informers -> snapshot -+
//	                                     +-> round loop -> publish queue -> publisher -> API server
//	cgroups -----------------------------+
//
// The round loop is one goroutine that never uses the network. It loads the newest snapshot, which
// the informers replace as a whole, and puts its decisions into the queue. While the API server is
// slow or unreachable, rounds continue and only the newest decisions wait. The heartbeat renews the
// node's Lease while rounds complete.
//
// What it promises, each a test of the same name:
//   - TicksNeverQueue: rounds start on a grid of the interval; a late tick is skipped, never caught
//     up.
//   - PanicSkipsARound: a panic in a round is counted, and the next round starts on time from an
//     empty state.
//   - PanicCostsItsPod: a panic about one pod sets that pod aside, and the round goes on.
//   - LooksBetweenRounds: the counters of some pods are looked at every LookInterval while a limit could be
//     raised or a raise revoked, and never so late that the next round waits.
//   - PanicCostsTheLooks: a panic in a look costs the looks until the next round, and no estimate.
//   - LooksAreWrittenFirst: what a look decides is written before the other decisions, in place of an older
//     one about the pod, and never beside one that is in flight.
//   - StuckRoundStopsTheHeartbeat: the Lease is renewed only while rounds complete.
//   - HeartbeatsSpread: agents renew their Leases 20 to 30 s apart and back off with jitter, so that
//     those of a cluster never arrive in step.
//   - OneAgentPublishes: of two agents on a node only the holder of its Lease publishes: the one of
//     the newer pod.
//   - StartConfirms: an agent that starts renews its Lease when it has decided on each pod, or after
//     20 s.
//   - StartTakesOver: an agent that starts publishes increases before that, once it has taken over the Lease
//     of one that runs no more; what that one has confirmed stays as it is.
//   - NewPodsAreReadAtOnce: a new pod is read when it arrives, at most four times a second, and not only by
//     the next round.
//   - NothingIsPublishedTwice: a decision that the API server accepted is not sent again, nor by an agent
//     that restarts.
//   - WatchesByIndex: the agent watches its node, its pods and its NodeAllocation, each by an index of the
//     API server, and no PodAllocations.
//   - StandsBy: the Lease confirms the decisions that the agent makes anew with each round, and no others.
//   - LatestWins: of several decisions for a pod only the newest is written; increases are written
//     first.
//   - StaleIsDropped: a decision older than three samples is never written.
package agent
