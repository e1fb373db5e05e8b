// Package baseline is what MBCAS is compared with: other people's CPU controllers, written anew from their published
// algorithms, and simpler rules that suggest themselves. Each is one file, and each has constants with a source. A rival
// gets the actuation that it has in the field: what writes cgroups itself waits a millisecond, what goes through the API
// waits as long as a real resize takes.
//
// What it promises, each a test of the same name:
//   - LeavesOthersAlone: no policy changes a pod that is not managed.
//   - KeepsLimitsLegal: no policy sets a limit below 10m, and none that goes through the API sets one that a Burstable pod
//     may not have.
//   - SameSeedSameResult: a policy played twice with the same seed does the same.
//   - NewIsFresh: two policies of the same name share nothing.
package baseline
