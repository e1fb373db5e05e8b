package securemetrics

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOptions: plain metrics are plain; a folder without a usable certificate is an error that names the file and the
// flag, and one of no use is refused.
func TestOptions(t *testing.T) {
	if o, err := (Config{}).Options(":1"); err != nil || o.SecureServing || o.FilterProvider != nil || o.BindAddress != ":1" {
		t.Errorf("plain: %+v, %v", o, err)
	}
	o, err := Config{Secure: true}.Options(":1")
	if err != nil || !o.SecureServing || o.FilterProvider == nil || o.CertDir != "" || o.BindAddress != ":1" {
		t.Errorf("secure: %+v, %v", o, err)
	}
	if err := (Config{CertDir: "/certs"}).Validate(); err == nil || !strings.Contains(err.Error(), "--metrics-secure") {
		t.Errorf("a folder without HTTPS: %v", err)
	}
	dir := t.TempDir()
	for _, file := range []string{"tls.crt", "tls.key", "PEM"} { // what is missing next
		c := Config{Secure: true, CertDir: dir}
		_, err := c.Options(":1")
		if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "--metrics-cert-dir") {
			t.Errorf("without %s: %v", file, err)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("valid settings: %v", err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte("no PEM"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
