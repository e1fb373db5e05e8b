// Package securemetrics serves the metrics of a program over HTTPS, to clients that Kubernetes lets read them.
//
// A client sends a bearer token. The API server says which user has it (TokenReview), and whether that user may get
// the path /metrics (SubjectAccessReview). The filter of controller-runtime asks the same; why it is not used is in
// docs/design/0027-metrics-over-https.md.
//
// Promises:
//   - Without an answer that allows it nothing is served: TestAnswers, and TestSecureMetrics of cmd/mbcas-controller
//     on a real API server.
//   - What was allowed is allowed again for a minute without a question, to the same token and verb only: TestRemembers.
//   - Tokens do not make the program ask more often than it may, and keep no reader out that was allowed before: TestFlood.
//   - A folder without a certificate is an error; no other certificate takes its place: TestOptions.
package securemetrics

import (
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"

	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Config says how metrics are served. The zero value is plain HTTP for every client.
type Config struct {
	// Secure is HTTPS, for clients with the right to read metrics.
	Secure bool
	// CertDir is the folder of the certificate, tls.crt, and its key, tls.key, which are read again when they change.
	// Empty: a self-signed certificate, made at the start.
	CertDir string
}

// Validate says whether the settings fit each other.
func (c Config) Validate() error {
	if c.CertDir != "" && !c.Secure {
		return errors.New("--metrics-cert-dir is of use with --metrics-secure only: add that, or leave it out")
	}
	return nil
}

// Options are those of the server at an address. The error names the files of a certificate that cannot be read.
func (c Config) Options(address string) (metricsserver.Options, error) {
	o := metricsserver.Options{BindAddress: address}
	if !c.Secure {
		return o, nil
	}
	o.SecureServing, o.FilterProvider = true, filter
	// HTTP/2 would let one connection bring any number of requests at once.
	o.TLSOpts = []func(*tls.Config){func(t *tls.Config) { t.NextProtos = []string{"http/1.1"} }}
	if c.CertDir == "" {
		return o, nil
	}
	o.CertDir, o.CertName, o.KeyName = c.CertDir, "tls.crt", "tls.key"
	// The server would take a certificate of its own where one of the files is missing.
	if _, err := tls.LoadX509KeyPair(filepath.Join(o.CertDir, o.CertName), filepath.Join(o.CertDir, o.KeyName)); err != nil {
		return o, fmt.Errorf("read the certificate of /metrics: %w; --metrics-cert-dir needs tls.crt and tls.key", err)
	}
	return o, nil
}
