// Package round is one round of a node's market: sense, demand, market, decision, in that order.
// It is pure; the agent and the simulator run the same code.
//
// What it promises, each a test of the same name:
//   - IdleNodeThrottlesNoPod: while CPU is not scarce, the limit of every managed pod that needs more is nearly four
//     times what it uses, or all that the others leave if that is worthwhile, and no limit falls unless a raise is revoked.
//   - OnlyCappedPodsAreLowered: a pod that is neither capped nor at its floor or ceiling is never lowered.
//   - JustAboveItsShareIsNotCapped: an uncapped pod is capped only when its demand clearly exceeds its budget line.
//   - NoPodIsLoweredWhileDemandsFit: a price from before lowers no pod, and ends decreases in steps. That costs next
//     to no publications (DemandsAroundTheSupplyWriteLittle).
//   - UncappedPodsAreRaised: an uncapped pod that needs more and does not use up its limit gets its ceiling under a
//     price.
//   - RaisesLeaveOthersTheirDemand: while it is not scarce, the containers of a pod that are raised, and the demand of
//     its others, take no more than other pods leave, or its share if that is more.
//   - SaturatingPodsGetIdleCPU: under a price a pod that uses up its limit rises above its declared limit by idle CPU
//     alone, until the node has been full for Onset.
//   - PastThrottlingRaisesNothing: a pod that was throttled until it became idle is not raised for that.
//   - FloorsLeaveRoom: where floors exceed the supply, a pod that demands more than its floor gets the floor, and no
//     other pod is capped.
//   - PriceFallsLate: the price rises at once. It falls when a lower price has sufficed for FallDelay, or when CPU lies
//     idle beside a throttled pod.
//   - BurstsMoveNoLimit: it waits longer to fall while its last falls came too early.
//   - IdlePodsBindNothing: a price that caps idle pods alone, or pods whose raise was revoked, counts as none.
//   - NoPriceAboveTheShare: while all demands just fit, no price stays at which a pod has less than its share.
//   - PriceLeavesTheShare, SharePriceIsHighest, CapBandMayUseTheReserve: what docs/theory.md says of the price over
//     time.
//   - RestartKeepsThePrice: a restart of the agent, a pause, or counters of the node that go back change no limit.
//   - ScarcityIsSeenAtOnce: two rounds after a throttled pod takes all CPU there is a price.
//   - IntervalChangesNothing: the time until idle CPU is given back does not depend on the interval between rounds.
//   - UnreadableIsNotZero: usage of the system or of the pods that cannot be read does not count as 0.
//   - ReleasesWithContention: the price falls in the tick after contention ends, however slow the estimates are.
//   - SteadyLoadPublishesNothing: when inputs stop changing, decisions stop changing.
//   - NoisePublishesNothing: small or brief changes of demand and price that change no limit are not published.
//   - StaleNeverDecides: a pod without valid rates gets no decision.
//   - NewPodsAreOnlyRaised: a pod with too few samples is not lowered, and until the node has enough samples, only
//     throttled pods are raised, and where the price from before is not known nothing is decided.
//   - NewPodsAreRaisedAtOnce, NewPodsAreRaisedBesideAnOldPrice, NewPodsNeedNotWaitForARound: while no price caps a pod,
//     a new one that was throttled since it started is raised when it is first read, and that may be between rounds.
//   - OldCountersRaiseNoNewPod: counters of a container that may have run for long raise no pod.
//   - NewPodsKeepTheirSplit: the containers of a new pod are raised as their limits relate.
//   - RestartRaisesAtOnce: after a restart of the agent, a throttled pod is raised from the first look on if the price
//     from before leaves it uncapped and CPU is idle.
//   - UnenforcedIsUnmanaged: a pod whose limit the kernel does not enforce gets no decision, and counts as unmanaged.
//   - PressureCountsWhenFull: pressure of containers that is read less often while CPUs are idle, from
//     Config.PressureFrom down, changes no decision.
//   - ConstraintsBind: decisions are within the floors and ceilings of constraints, and a pod that must not be
//     decreased is not lowered.
//   - ServicesKeepDeclaredLimits, SaturatingPodsLeaveAShare, PrioritiesComeFirst, OldClaimsLowerNoLimit,
//     RestartKeepsSaturatingPods, NoPodIsWorseThanDeclared: with Disagreement, pods keep what its package computes.
//   - IdlePodsKeepTheirLimit: a pod that was lowered below its declared limit has that again once it needs more, or no price
//     is in force.
//   - WhatAPodKeepsMayVary: and those that demand no more than that are not lowered.
//   - ConstraintFloorsTakeNoShare: a pod whose limit exceeds its share because of a constraint takes nothing that other
//     budgets buy.
//   - RaisedOnNeed: a pod is raised only when it is throttled or uses more than half of its limit, to four times what
//     it uses or twice what throttles it; one that shares a short quota publishes changes of its demand soon.
//   - StalledIsNotRaised: a pod that waits for memory or IO demands what it uses, and is not raised for being throttled
//     while CPU is scarce.
//   - KernelMinimumIsKept: no container gets less than the lowest quota that the kernel accepts, and the decision's
//     floor says so.
//   - BoundsHoldForOddLimits: limits are within their bounds, and multiples of the quantum unless they stay as they
//     are, whatever was declared.
//   - SignalDemandIsKeptFree: demand that a DemandSignal adds is kept free, up to the pod's share, and other pods pay
//     for it; no signal makes a pod count with less than its demand.
//   - SignalsCapNoPod: a pod's own limit does not depend on its DemandSignal.
//   - LooksRaiseOrRevoke: a look lowers one limit at most, to the declared one, and decides about no pod that it does
//     not read.
//   - RaisesAreRevoked, OldRaisesAreRevoked, BegunPodsAreRevoked, RevokedPodsWait, FullNodesRaiseNone,
//     SpinnersUseTheNode, ServicesKeepRaises: what pods have above declared limits is revoked, one pod at a time, when
//     others need it; the wait for the next raise doubles while that happens again. Meanwhile pods are raised at the
//     cost of pods of lower priority alone.
//   - LooksRaiseAsTheNextRound: an uncapped pod that is throttled gets without a price from a look what the next round
//     would give it. The decision says how much the pod is throttled (LooksSayThrottled).
//   - StoppedPodFreesItsCPU, VanishedPodFreesItsCPU: when a capped pod stops, the next looks raise throttled ones. It
//     keeps its limit.
//   - LullsAreNotReleases: pauses of uncapped pods lower no price in a look.
//   - DecreaseIsNoObstacle: a look raises a pod that the round before it lowers.
//   - NothingToRaiseNothingRead: looks read nothing where no limit could be raised, and at most 32 containers: those
//     of idle pods as far as new ones leave them room (LooksReadIdlePods).
//   - LooksChangeNoEstimate: looks change the estimates of pods that have stopped, and no others.
//   - BusyPodsStop: only a pod that three looks, or a tick, saw saturate can be seen to stop.
//   - WrongReleaseIsUndone: when the pod goes on, the next round is at the price of before.
//   - WrongReleasesAreBounded: a pod that stops briefly in turn gets itself and another one at most 16 increases an
//     hour out of looks, and no more CPU than their share.
//   - UnmanagedPodsCount: unmanaged pods count with their usage, and get no decision.
package round
