package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/process"
)

// asProgram has the test program be mbcas-controller: a process has one registry of metrics, so each controller of these
// tests is a process.
const asProgram = "MBCAS_TEST_AS_CONTROLLER"

// startSecure starts a controller with secure metrics under its own roles, and returns their address.
func startSecure(t *testing.T, kubeconfig string, more ...string) string {
	t.Helper()
	address := process.FreeAddress(t)
	t.Setenv(asProgram, "1")
	process.Start(t, os.Args[0], append([]string{
		"--metrics-secure", "--metrics-address=" + address, "--health-address=" + process.FreeAddress(t), "--kubeconfig=" + kubeconfig,
	}, more...)...)
	return address
}

// install makes what an installation has of roles and policies for the controller, once for all tests.
func install(t testing.TB, s *apiserver.Server) {
	t.Helper()
	installed.Do(func() {
		ns := &corev1.Namespace{}
		ns.Name = kube.SystemNamespace
		if err := s.Client.Create(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
		s.Install(t, "", "rbac/controller_role.yaml", "rbac/bindings.yaml",
			"policy/controller.yaml", "policy/controller_records.yaml", "policy/leases.yaml")
	})
}

var installed sync.Once

// controllerConfig is a kubeconfig with the account of the controller.
func controllerConfig(t *testing.T, s *apiserver.Server) string {
	t.Helper()
	return s.Kubeconfig(t, "system:serviceaccount:mbcas-system:mbcas-controller", "system:serviceaccounts")
}

// bindReader gives a subject the right to read metrics.
func bindReader(t *testing.T, s *apiserver.Server, to rbacv1.Subject) {
	t.Helper()
	b := &rbacv1.ClusterRoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "mbcas-metrics-reader"},
		Subjects: []rbacv1.Subject{to},
	}
	b.GenerateName = "test-"
	if err := s.Client.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// account makes a service account, and returns a token of it.
func account(t *testing.T, s *apiserver.Server, namespace, name string) string {
	t.Helper()
	sa := &corev1.ServiceAccount{}
	sa.Namespace, sa.Name = namespace, name
	if err := s.Client.Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	token, err := apiserver.Token(t.Context(), s.Client, client.ObjectKeyFromObject(sa), nil)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// scrape is a request of metrics: the status, the body and the certificate of the server. The status is 0, and the body
// the error, where there is no answer.
func scrape(t *testing.T, config *tls.Config, method, url, token string) (int, string, *x509.Certificate) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error(), nil
	}
	if resp.ProtoMajor != 1 {
		t.Errorf("%s is HTTP/%d", url, resp.ProtoMajor)
	}
	if resp.TLS == nil {
		return resp.StatusCode, string(body), nil
	}
	return resp.StatusCode, string(body), resp.TLS.PeerCertificates[0]
}

// TestSecureMetrics: on a real API server, with the roles of the component secure-metrics, metrics are served over HTTPS to a
// token whose account has the role mbcas-metrics-reader, and to no other client; not at all while the controller may not ask.
func TestSecureMetrics(t *testing.T) {
	s := apiserver.Start(t)
	install(t, s)
	s.Install(t, "", "components/secure-metrics/roles/roles.yaml")
	t.Cleanup(func() { // with -count the next test installs them anew
		for _, name := range []string{"mbcas-controller-metrics", "mbcas-metrics-reader"} {
			role := &rbacv1.ClusterRole{}
			role.Name = name
			if err := s.Client.Delete(context.Background(), role); err != nil {
				t.Error(err)
			}
		}
	})
	namespace := s.Namespace(t)
	reader, other := account(t, s, namespace, "prometheus"), account(t, s, namespace, "other")
	bindReader(t, s, rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: "prometheus"})
	team := s.Namespace(t)
	member := account(t, s, team, "member")
	bindReader(t, s, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:serviceaccounts:" + team})
	address := startSecure(t, controllerConfig(t, s))
	url, trusting := "https://"+address+"/metrics", &tls.Config{InsecureSkipVerify: true}

	const series = "mbcas_controller_build_info{"
	for _, token := range []string{reader, member} {
		apiserver.Eventually(t, "a reader gets metrics", func() (bool, any) {
			code, body, _ := scrape(t, trusting, http.MethodGet, url, token)
			return code == http.StatusOK && strings.Contains(body, series), body
		})
	}
	for name, c := range map[string]struct {
		method, url, token string
		want               int
	}{
		"no token":               {http.MethodGet, url, "", http.StatusUnauthorized},
		"no token of Kubernetes": {http.MethodGet, url, "nonsense", http.StatusUnauthorized},
		"a changed token":        {http.MethodGet, url, reader + "x", http.StatusUnauthorized},
		"no right":               {http.MethodGet, url, other, http.StatusForbidden},
		"no right to write":      {http.MethodPost, url, reader, http.StatusForbidden},
		"the right":              {http.MethodGet, url, reader, http.StatusOK},
		"the right of a group":   {http.MethodGet, url, member, http.StatusOK},
		"no other path":          {http.MethodGet, "https://" + address + "/debug/pprof/", reader, http.StatusNotFound},
	} {
		var code int
		var body string
		apiserver.Eventually(t, "the controller may ask again", func() (bool, any) {
			code, body, _ = scrape(t, trusting, c.method, c.url, c.token)
			return code != http.StatusTooManyRequests, body
		})
		if code != c.want || strings.Contains(body, "mbcas_controller_") != (c.want == http.StatusOK) {
			t.Errorf("%s: %d %.200q, want %d", name, code, body, c.want)
		}
	}
	// The answer says so, or is lost as the server closes the connection without having read the request.
	code, body, _ := scrape(t, nil, http.MethodGet, "http://"+address+"/metrics", reader)
	if code != http.StatusBadRequest && code != 0 || strings.Contains(body, "connection refused") {
		t.Errorf("plain HTTP: %d %.200q, want to be refused", code, body)
	}
	if code, body, _ := scrape(t, &tls.Config{}, http.MethodGet, url, reader); code != 0 || !strings.Contains(body, "certificate") {
		t.Errorf("the self-signed certificate is trusted: %d %.200s", code, body)
	}

	// Without its right to ask, the controller serves no client that it does not remember.
	late := account(t, s, namespace, "late")
	bindReader(t, s, rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: "late"})
	b := &rbacv1.ClusterRoleBinding{}
	b.Name = "mbcas-controller-metrics"
	if err := s.Client.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	refused := func(token string) func() (bool, any) {
		return func() (bool, any) {
			code, body, _ := scrape(t, trusting, http.MethodGet, url, token)
			return code == http.StatusInternalServerError, body
		}
	}
	apiserver.Eventually(t, "no answer for an account without the right", refused(other)) // never remembered
	apiserver.Eventually(t, "no answer for a reader", refused(late))
}

// TestMetricsCertificate: the certificate of a folder is served, and the next one when Kubernetes has changed the Secret
// that is mounted there. A folder without one is an error.
func TestMetricsCertificate(t *testing.T) {
	s := apiserver.Start(t)
	install(t, s)
	kubeconfig, dir := controllerConfig(t, s), t.TempDir()
	args := []string{"--metrics-secure", "--metrics-cert-dir=" + dir, "--kubeconfig=" + kubeconfig}
	err := run(t.Context(), args, new(slog.LevelVar), io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "tls.crt")) {
		t.Fatalf("a folder without a certificate: %v", err)
	}
	first := mountCertificate(t, dir, "1")
	url := "https://" + startSecure(t, kubeconfig, "--metrics-cert-dir="+dir) + "/metrics"
	served := func(trusted *x509.Certificate) func() (bool, any) {
		pool := x509.NewCertPool()
		pool.AddCert(trusted)
		config := &tls.Config{RootCAs: pool, ServerName: "mbcas.test"}
		return func() (bool, any) {
			code, body, got := scrape(t, config, http.MethodGet, url, "")
			return code == http.StatusUnauthorized && got.Equal(trusted), body
		}
	}
	apiserver.Eventually(t, "the certificate of the folder is served", served(first))
	second := mountCertificate(t, dir, "2")
	apiserver.Eventually(t, "the next one is served", served(second))
	if yes, got := served(first)(); yes {
		t.Errorf("the first certificate is still served: %v", got)
	}
}

// mountCertificate puts a new self-signed certificate for mbcas.test into a folder as the kubelet puts a Secret there: the
// files are links into a link, which is replaced, and what it named is removed.
func mountCertificate(t *testing.T, dir, version string) *x509.Certificate {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must(err)
	made := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "mbcas.test"}, DNSNames: []string{"mbcas.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, made, made, key.Public(), key)
	must(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	data, old := filepath.Join(dir, "..data"), ""
	if target, err := os.Readlink(data); err == nil {
		old = filepath.Join(dir, target)
	}
	must(os.Mkdir(filepath.Join(dir, "..v"+version), 0o700))
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		must(os.WriteFile(filepath.Join(dir, "..v"+version, name), pem.EncodeToMemory(block), 0o600))
		if old == "" {
			must(os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
		}
	}
	must(os.Symlink("..v"+version, data+"_tmp"))
	must(os.Rename(data+"_tmp", data))
	if old != "" {
		must(os.RemoveAll(old))
	}
	parsed, err := x509.ParseCertificate(der)
	must(err)
	return parsed
}
