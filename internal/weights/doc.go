// Package weights writes the CPU class and weight of pods: cpu.idle, and cpu.weight (cgroup v2) or cpu.shares (v1), of
// the pod's own cgroup. It is the whole of the program mbcas-weights, which runs as root beside the agent.
//
//	agent -> socket -> Server -> Keeper -> Tree -> cgroups
//	                                    -> Record -> disk
//
// The agent decides; this package trusts it with nothing but the class and the weight of Burstable and BestEffort pods.
//
// What it promises, each a test of the same name:
//   - OriginalsAreRecordedFirst: no value is written before the original ones are on disk.
//   - OriginalsComeBack: on exit, opt-out, and when the agent is unresponsive, and at the next start after a kill.
//   - ExternalValuesStay: what another program has written since a kill is not overwritten.
//   - FailedWritesAreNoContest, FailedRestoresAreNotUndone: what the kernel refuses counts as no other writer's.
//   - FailedRestoresAreRetried: with a back-off, while the other pods are served.
//   - OneSavePerRequest: the record is written once for all pods of a request.
//   - FreshCgroupsAreLeftAlone: after a reboot a record changes nothing, since the kubelet made the cgroups anew.
//   - OnlyPodsBelowKubepods: no request writes outside of Burstable and BestEffort pods, whatever it names.
//   - SymlinksAreRefused: no symbolic link is followed, in a name or in a file.
//   - RewritesAreSetAgain: what another writer changes is set again, every 3 s at most.
//   - ContestsEnd: after a few times in a row it is left as it is.
//   - OwnResizesAreNoContest: what the kubelet writes with a resize of MBCAS is set again and not counted.
//   - NewRequestsBecomeOriginal: a weight that the kubelet writes meanwhile is the one that comes back.
//   - OldKernelsGetTheLeastWeight: without cpu.idle, the idle class is the least weight.
//   - WrongPeersAreRefused, OneClientAtATime, GarbageEndsTheConnection: what the socket accepts.
package weights
