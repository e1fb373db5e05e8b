// Package pki makes the certificates of one cluster.
//
// Promises:
//   - Every identity is signed by the authority its verifier trusts, and by no
//     other: TestLeavesVerify.
//   - Private keys are readable by their owner alone: TestKeyModes.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// validity is that of certificates. A cluster for tests lives for days.
const validity = 365 * 24 * time.Hour

// Leaf is one certificate to issue.
type Leaf struct {
	Name   string // file name without suffix
	CA     string // name of the authority that signs it
	CN     string // user name, for clients
	Groups []string
	Hosts  []string // names and addresses, for servers
}

// Leaves are the identities of a control plane whose API server answers at the given address.
func Leaves(api netip.Addr) []Leaf {
	local := []string{"localhost", "127.0.0.1"}
	names := append([]string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		api.String(),
	}, local...)
	masters := []string{"system:masters"}
	return []Leaf{
		{Name: "etcd", CA: "etcd-ca", CN: "etcd", Hosts: local},
		{Name: "etcd-client", CA: "etcd-ca", CN: "kube-apiserver"},
		{Name: "apiserver", CA: "ca", CN: "kube-apiserver", Hosts: names},
		{Name: "apiserver-kubelet-client", CA: "ca", CN: "kube-apiserver-kubelet-client", Groups: masters},
		{Name: "front-proxy-client", CA: "front-proxy-ca", CN: "front-proxy-client"},
		{Name: "admin", CA: "ca", CN: "admin", Groups: masters},
		{Name: "controller-manager", CA: "ca", CN: "system:kube-controller-manager", Hosts: local},
		{Name: "scheduler", CA: "ca", CN: "system:kube-scheduler", Hosts: local},
	}
}

// NodeLeaves are the identities of a node: its kubelet as a client, and as a server.
func NodeLeaves(name string, ip netip.Addr) []Leaf {
	user := "system:node:" + name
	return []Leaf{
		{Name: "kubelet", CA: "ca", CN: user, Groups: []string{"system:nodes"}},
		{Name: "kubelet-server", CA: "ca", CN: user, Hosts: []string{name, ip.String()}},
	}
}

// Create writes NAME.crt and NAME.key into dir for the authorities and every leaf, and the service account
// key sa.key with sa.pub. The file "complete" is written last: with it there, Create does nothing.
func Create(dir string, leaves []Leaf) error {
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"ca", "front-proxy-ca", "etcd-ca"} {
		authority := template("mbcas-cluster-"+name, nil)
		authority.IsCA = true
		authority.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
		if err := write(dir, name, authority, nil); err != nil {
			return err
		}
	}
	if err := sign(dir, leaves, dir); err != nil {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	if err := writeKey(dir, "sa", key); err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	if err := writePEM(filepath.Join(dir, "sa.pub"), "PUBLIC KEY", public, 0o644); err != nil {
		return err
	}
	return os.WriteFile(complete, nil, 0o644)
}

// Issue writes NAME.crt and NAME.key into dir for every leaf, signed by the
// authority "ca" of the folder authorities, and a copy of its certificate into another folder than that.
func Issue(dir string, leaves []Leaf, authorities string) error {
	if dir == authorities {
		return sign(dir, leaves, authorities)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(authorities, "ca.crt"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o644); err != nil {
		return err
	}
	return sign(dir, leaves, authorities)
}

func sign(dir string, leaves []Leaf, authorities string) error {
	for _, l := range leaves {
		path := filepath.Join(authorities, l.CA)
		authority, err := tls.LoadX509KeyPair(path+".crt", path+".key")
		if err != nil {
			return fmt.Errorf("certificate %s: authority: %w", l.Name, err)
		}
		cert := template(l.CN, l.Groups)
		cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if len(l.Hosts) > 0 {
			// A server of ours is a client of others too, by the same certificate.
			cert.ExtKeyUsage = append(cert.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		}
		for _, h := range l.Hosts {
			if ip := net.ParseIP(h); ip != nil {
				cert.IPAddresses = append(cert.IPAddresses, ip)
			} else {
				cert.DNSNames = append(cert.DNSNames, h)
			}
		}
		if err := write(dir, l.Name, cert, &authority); err != nil {
			return err
		}
	}
	return nil
}

// template has no serial number: one is drawn.
func template(cn string, groups []string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: cn, Organization: groups},
		NotBefore:             now.Add(-time.Hour), // clocks of a virtual node may lag
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
	}
}

// write makes a key and its certificate, signed by the authority or, without one, by itself.
func write(dir, name string, cert *x509.Certificate, authority *tls.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("key %s: %w", name, err)
	}
	parent, signer := cert, crypto.PrivateKey(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), signer)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", name, err)
	}
	if err := writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return writeKey(dir, name, key)
}

func writeKey(dir, name string, key crypto.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("key %s: %w", name, err)
	}
	return writePEM(filepath.Join(dir, name+".key"), "PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
