// Package page serves the page of `kubectl mbcas dashboard`: the cluster, a node and a pod over time, to a browser on the
// same machine. What it shows comes from package figures.
//
// Promises:
//   - Only the page that holds the token gets figures, and only from this address: TestOnlyThePageIsAnswered.
//   - Nothing is written: a request other than GET is refused: TestOnlyReads.
//   - Requests in flight and tabs are bounded: TestRequestsAreBounded, TestTabsAreBounded.
//   - Names are data and never markup: TestHostileNames.
//   - The server ends with its context: TestEndsWithItsContext.
package page
