package controlplane

import (
	"fmt"
	"os"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
)

// auditPolicy records what tests assert: the user of each resize, with both bodies, other writers of
// pods, evictions, changes of namespaces with their bodies, and every write to its own objects. Nothing else
// is written.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: RequestResponse
  resources:
  - group: ""
    resources: [pods/resize]
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - group: ""
    resources: [pods, pods/eviction]
- level: Request
  verbs: [update, patch]
  resources:
  - group: ""
    resources: [namespaces]
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - group: allocation.mbcas.io
- level: Metadata
  resources:
  - group: allocation.mbcas.io
- level: None
`

// identities have a kubeconfig each; the name is also the certificate's.
var identities = []string{"admin", "controller-manager", "scheduler"}

// WriteFiles writes what the control plane reads besides certificates.
func WriteFiles(c config.Config) error {
	if err := os.WriteFile(c.Path("audit-policy.yaml"), []byte(auditPolicy), 0o644); err != nil {
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
