// Package page serves the page of `kubectl mbcas dashboard`: the cluster, a node and a pod over time, to a browser on the
// same machine, or writes it as one file. What it shows comes from package figures.
//
// Promises:
//   - Only the page that holds the token gets figures, and only from this address: TestOnlyThePageIsAnswered.
//   - Nothing is written: a request other than GET is refused: TestOnlyReads.
//   - Requests in flight and tabs are bounded: TestRequestsAreBounded, TestTabsAreBounded.
//   - Names are data and never markup: TestHostileNames.
//   - The server ends with its context: TestEndsWithItsContext.
//   - An exported page stands alone, and its policy allows its own script, style and market only: TestInlined, and in a browser
//     test/page TestExport.
package page
