// Package agent is the daemon of one node: it looks at the node's cgroups once a second, plays a round of
// the node's market, and writes what was decided into the PodAllocations of its pods.
//
//	API server -> feed -> view -+
//	                            +-> player (sample, round) -> queue -> publisher -> API server
//	cgroups --------------------+
//
// The player is one goroutine that never touches the network: it reads the newest view, which the feed
// replaces as a whole, and leaves its decisions with the queue. If the API server is slow or gone, rounds
// go on and only the newest decisions wait.
//
// What it promises, each a test of the same name:
//   - TicksNeverQueue: rounds are played on a grid of the interval; a late one is skipped, never caught up.
//   - PanicIsARoundLost: a panic in a round is counted, the next round is played on time from a fresh state.
//   - StuckRoundStopsTheHeart: the Lease is renewed only while rounds are played to their end.
//   - NothingIsPublishedTwice: a decision that the API server took is not sent again, however slow the watch is.
//   - LatestWins: of several decisions for a pod only the newest is written; raises go first.
//   - StaleIsDropped: a decision older than three samples is never written.
//   - RestartPublishesNothing: an agent that starts anew writes nothing that has not changed.
package agent
