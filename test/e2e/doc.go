// Package e2e asserts the promises of MBCAS on a real API server and a real node, installed from its
// manifests as pods under their own service accounts. `make e2e` runs it, with the images that
// `make load` loads.
//
// Limits are read from the kernel's own files, resizes from the API server's audit log. The guard
// of TestMain watches every pod during the whole suite.
package e2e
