// Package idleclass decides which pods run in the kernel's idle class, and which weight each pod has. It is pure; the
// agent and the simulator run it after each round, on what the round was given and what it found.
//
// The idle class (cpu.idle = 1) gets what the other pods leave, and yields to them at once. A pod that saturates
// would use any amount of CPU, so it loses the least in the class, and the others gain the most. All other pods have
// a weight: their budget, so that under contention the kernel divides CPU as the market does.
//
// What it promises, each a test of the same name:
//   - SaturatingPodsBecomeMembers: a pod that takes more than its share while the others have too little becomes a
//     member after SureAfter, one with the largest excess first, and no more pods than the others need.
//   - QuietPodsYield: a pod that used next to nothing for QuietAfter has an eighth of its weight until the end of a
//     probation that begins when it uses CPU. It becomes a member if all of that shows that it saturates.
//   - NewPodsYield: so does a pod that has just started.
//   - ProbationEnds: a pod that demands CPU has its own weight, or is a member, after Probation and two ticks.
//   - UnusedSharesHideNoPod: no pod enters beside another one outside with a much larger excess, whatever other pods
//     leave unused: the usage of each pod counts, and what is not known pod by pod counts as that of one.
//   - BurstsAreNoSaturation: a pod that takes no more than while CPU was not scarce becomes a member late, and
//     not at all where another pod is the one that takes more.
//   - GuaranteeEndsMembership: a member whose mean CPU falls below what its request guarantees leaves the class, and
//     stays outside for a time that doubles.
//   - HeldOffPodsAreNotWeighted: meanwhile limits may cap it.
//   - OutagesEndNoHoldOff: that time goes on while class and weight are not written, and so does what is known of calm times.
//   - NoRoomForMembers: no pod enters where the others demand so much of their requests that it would soon fall short.
//   - OthersAreLeftToLimits: a pod that saturates and does not enter, such as beside a larger one that cannot, may be
//     capped by limits.
//   - StoppedMembersAreNotShort: a member that had CPU left to use is owed no more than it used.
//   - SteadyLoadChangesNothing: under steady load the class stays as it is.
//   - ClassEndsWithScarcity: where CPU is idle for ReleaseAfter, the class is empty.
//   - OnlyOptedInPods: no setting names a pod that has not opted in, or is unmanaged.
//   - PartlyLimitedPodsStayOutside: no pod becomes a member that has a container without a limit.
//   - ClassesHaveReasons: a setting says why class and weight do not hold its pod down.
//   - WeightsLeaveRequests: weights by budgets leave every pod its request, as far as requests fit the node. The small
//     weight of a quiet pod does not, for as long as its probation takes.
//   - GapsDecideNothing: time without rounds, or in which usage cannot be read, puts no pod into the class.
package idleclass
