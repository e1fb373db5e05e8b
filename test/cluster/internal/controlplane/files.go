package controlplane

import (
	_ "embed"
	"fmt"
	"os"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
)

// auditPolicy says what the API server records of each request.
//
//go:embed audit-policy.yaml
var auditPolicy []byte

// identities have a kubeconfig each; the name is also the certificate's.
var identities = []string{"admin", "controller-manager", "scheduler"}

// WriteFiles writes what the control plane reads besides certificates.
func WriteFiles(c config.Config) error {
	if err := os.WriteFile(c.Path("audit-policy.yaml"), auditPolicy, 0o644); err != nil {
		return err
	}
	for _, id := range identities {
		if err := os.WriteFile(c.Kubeconfig(id), Kubeconfig(c, id), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Kubeconfig refers to the certificates by path, so it holds no secret itself.
func Kubeconfig(c config.Config, id string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: mbcas
  cluster:
    server: %s
    certificate-authority: %s
contexts:
- name: mbcas
  context:
    cluster: mbcas
    user: %s
current-context: mbcas
users:
- name: %[3]s
  user:
    client-certificate: %s
    client-key: %s
`, c.APIURL(), c.PKI("ca.crt"), id, c.PKI(id+".crt"), c.PKI(id+".key"))
}
