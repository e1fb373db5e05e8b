package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/mbcas/mbcas/test/cluster/internal/must"
)

func issued(t *testing.T) (string, []Leaf) {
	t.Helper()
	dir := t.TempDir()
	leaves := Leaves(netip.MustParseAddr("10.96.0.1"))
	must.Succeed(t, Create(dir, leaves))
	return dir, leaves
}

func TestLeavesVerify(t *testing.T) {
	dir, leaves := issued(t)
	for _, l := range leaves {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, l.Name+".crt"), filepath.Join(dir, l.Name+".key"))
		if err != nil {
			t.Fatalf("%s: %v", l.Name, err)
		}
		for _, ca := range []string{"ca", "front-proxy-ca", "etcd-ca"} {
			roots := pool(t, filepath.Join(dir, ca+".crt"))
			client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
			_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: client})
			if trusted := err == nil; trusted != (ca == l.CA) {
				t.Errorf("%s: trusted by %s: %v (%v), signed by %s", l.Name, ca, trusted, err, l.CA)
			}
		}
		for _, host := range l.Hosts {
			if err := pair.Leaf.VerifyHostname(host); err != nil {
				t.Errorf("%s: %v", l.Name, err)
			}
		}
	}
}

func TestKeyModes(t *testing.T) {
	dir, _ := issued(t)
	keys, err := filepath.Glob(filepath.Join(dir, "*.key"))
	if err != nil || len(keys) == 0 {
		t.Fatalf("keys: %v, %v", keys, err)
	}
	for _, key := range keys {
		info, err := os.Stat(key)
		must.Succeed(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", filepath.Base(key), info.Mode().Perm())
		}
	}
}

func TestCreateOnce(t *testing.T) {
	dir, leaves := issued(t)
	before := pool(t, filepath.Join(dir, "ca.crt"))
	must.Succeed(t, Create(dir, leaves))
	if !before.Equal(pool(t, filepath.Join(dir, "ca.crt"))) {
		t.Error("a second Create replaced the authority: no running program would be trusted")
	}
}

func TestIssue(t *testing.T) {
	authorities, _ := issued(t)
	dir := filepath.Join(t.TempDir(), "vm")
	leaves := NodeLeaves("node-2", netip.MustParseAddr("10.244.0.128"))
	for range 2 { // a later up issues them again
		must.Succeed(t, Issue(dir, leaves, authorities))
	}
	roots := pool(t, filepath.Join(dir, "ca.crt"))
	for _, l := range leaves {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, l.Name+".crt"), filepath.Join(dir, l.Name+".key"))
		must.Succeed(t, err)
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots}); err != nil && len(l.Hosts) > 0 {
			t.Errorf("%s: %v", l.Name, err)
		}
		if got := pair.Leaf.Subject.CommonName; got != "system:node:node-2" {
			t.Errorf("%s: user %q, want the node's: it may touch no other's objects", l.Name, got)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ca.key")); err == nil {
		t.Error("the authority's key went with the node's certificates")
	}
}

func pool(t *testing.T, path string) *x509.CertPool {
	t.Helper()
	raw, err := os.ReadFile(path)
	must.Succeed(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(raw)
	return roots
}
