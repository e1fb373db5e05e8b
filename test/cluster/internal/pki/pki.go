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
	"math/big"
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

// Leaves are the identities of a cluster whose API server and kubelet answer at
// the given addresses.
func Leaves(nodeName string, serviceIP, nodeIP netip.Addr) []Leaf {
	local := []string{"localhost", "127.0.0.1"}
	api := append([]string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		serviceIP.String(), nodeIP.String(),
	}, local...)
	return append([]Leaf{
		{Name: "etcd", CA: "etcd-ca", CN: "etcd", Hosts: local},
		{Name: "etcd-client", CA: "etcd-ca", CN: "kube-apiserver"},
		{Name: "apiserver", CA: "ca", CN: "kube-apiserver", Hosts: api},
		{Name: "apiserver-kubelet-client", CA: "ca", CN: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}},
		{Name: "front-proxy-client", CA: "front-proxy-ca", CN: "front-proxy-client"},
		{Name: "admin", CA: "ca", CN: "admin", Groups: []string{"system:masters"}},
		{Name: "controller-manager", CA: "ca", CN: "system:kube-controller-manager", Hosts: local},
		{Name: "scheduler", CA: "ca", CN: "system:kube-scheduler", Hosts: local},
	}, NodeLeaves(nodeName, nodeIP)...)
}

// NodeLeaves are the identities of one more node: its kubelet as a client, and as
// a server.
func NodeLeaves(nodeName string, nodeIP netip.Addr) []Leaf {
	user := "system:node:" + nodeName
	return []Leaf{
		{Name: "kubelet", CA: "ca", CN: user, Groups: []string{"system:nodes"}},
		{Name: "kubelet-server", CA: "ca", CN: user, Hosts: []string{nodeName, nodeIP.String()}},
	}
}

// Issue writes NAME.crt and NAME.key into dir for the authorities, for every
// leaf, and the service account key sa.key with sa.pub. The file "complete" is
// written last: with it there, Issue does nothing.
func Issue(dir string, leaves []Leaf) error {
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	authorities := map[string]*authority{}
	for _, name := range []string{"ca", "front-proxy-ca", "etcd-ca"} {
		a, err := newAuthority(name)
		if err != nil {
			return fmt.Errorf("authority %s: %w", name, err)
		}
		if err := writePair(dir, name, a.cert.Raw, a.key); err != nil {
			return err
		}
		authorities[name] = a
	}
	if err := issue(dir, leaves, authorities); err != nil {
		return err
	}
	if err := writeServiceAccountKey(dir); err != nil {
		return err
	}
	return os.WriteFile(complete, nil, 0o644)
}

// IssueMore writes NAME.crt and NAME.key into dir for every leaf, signed by the
// authority "ca" of the folder authorities, and a copy of its certificate.
func IssueMore(dir string, leaves []Leaf, authorities string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	a, err := readAuthority(authorities, "ca")
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(dir, "ca.crt"), "CERTIFICATE", a.cert.Raw, 0o644); err != nil {
		return err
	}
	return issue(dir, leaves, map[string]*authority{"ca": a})
}

func issue(dir string, leaves []Leaf, authorities map[string]*authority) error {
	for _, l := range leaves {
		a, ok := authorities[l.CA]
		if !ok {
			return fmt.Errorf("certificate %s: no authority %q", l.Name, l.CA)
		}
		der, key, err := a.sign(l)
		if err != nil {
			return fmt.Errorf("certificate %s: %w", l.Name, err)
		}
		if err := writePair(dir, l.Name, der, key); err != nil {
			return err
		}
	}
	return nil
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl, err := template("mbcas-cluster-"+name, nil)
	if err != nil {
		return nil, err
	}
	tmpl.IsCA = true
	tmpl.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert: cert, key: key}, err
}

func readAuthority(dir, name string) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("authority %s: its key is no ECDSA key", name)
	}
	return &authority{cert: pair.Leaf, key: key}, nil
}

func (a *authority) sign(l Leaf) ([]byte, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	tmpl, err := template(l.CN, l.Groups)
	if err != nil {
		return nil, nil, err
	}
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(l.Hosts) > 0 {
		// A server of ours is a client of others too, by the same certificate.
		tmpl.ExtKeyUsage = append(tmpl.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range l.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	return der, key, err
}

func template(cn string, groups []string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: cn, Organization: groups},
		NotBefore:             now.Add(-time.Hour), // clocks of a virtual node may lag
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
	}, nil
}

func writePair(dir, name string, der []byte, key crypto.Signer) error {
	if err := writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return writeKey(filepath.Join(dir, name+".key"), key)
}

func writeServiceAccountKey(dir string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	if err := writeKey(filepath.Join(dir, "sa.key"), key); err != nil {
		return err
	}
	pub, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	return writePEM(filepath.Join(dir, "sa.pub"), "PUBLIC KEY", pub, 0o644)
}

func writeKey(path string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return writePEM(path, "PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
