// Package e2e holds MBCAS to its promises on a real API server and a real node, installed from its
// manifests as pods under their own service accounts. `make e2e` runs it.
//
// What is asserted is read from where it happens: limits from the kernel's own files, resizes from the API
// server's audit log. The tests tell one story on one node, in the order of path_test.go.
package e2e
