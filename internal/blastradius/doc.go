// Package blastradius decides how far changes of limits may reach before they have proved harmless: which replicas
// of a workload are resized first and when the others follow, when harm has spread over so many workloads that
// the installation stops, and in which windows of time nothing is changed. It is pure.
//
// What it promises, each a test of the same name:
//   - AtMostTheShare: before a workload is released, no more of its replicas are resized than its share.
//   - StopsOnHarm: a workload whose resized replicas do worse than the others stops, and stays so for the hold-off.
//   - ReleasesWithoutHarm: once the resized replicas have been through the grace, the others follow.
//   - OrderDoesNotMatter: the verdict depends on the replicas, not on the order in which they are listed.
//   - SpreadCountsWorkloads: harm spreads by different workloads, within the window and since the last resume.
//   - NodesExplainHarm: harm that a node does to all its pods is told from harm of one workload.
//   - WindowsLikeACalendar: a time is in a window exactly where a calendar of minutes says so, and the next
//     change is the one that a walk over the minutes finds.
package blastradius
