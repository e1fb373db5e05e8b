package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
)

// Get reads one object of the API as the cluster's administrator.
func Get(ctx context.Context, c config.Config, path string, into any) error {
	client, err := httpClient(c, "admin", "ca")
	if err != nil {
		return err
	}
	body, err := get(ctx, client, c.APIURL()+path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Probe gets a health URL of a component as the cluster's administrator.
func Probe(ctx context.Context, c config.Config, url string) error {
	client, err := httpClient(c, "admin", "ca")
	if err != nil {
		return err
	}
	_, err = get(ctx, client, url)
	return err
}

func probeEtcd(ctx context.Context, c config.Config) error {
	client, err := httpClient(c, "etcd-client", "etcd-ca")
	if err != nil {
		return err
	}
	_, err = get(ctx, client, fmt.Sprintf("https://127.0.0.1:%d/health", c.EtcdPort()))
	return err
}

func httpClient(c config.Config, identity, authority string) (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(c.PKI(identity+".crt"), c.PKI(identity+".key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(c.PKI(authority + ".crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, // each call has its own connection; nothing to close later
			TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
		},
	}, nil
}

// Delete removes one object of the API as the cluster's administrator. It is no
// error if there is none.
func Delete(ctx context.Context, c config.Config, path string) error {
	client, err := httpClient(c, "admin", "ca")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.APIURL()+path, nil)
	if err != nil {
		return err
	}
	_, err = do(client, req, http.StatusNotFound)
	return err
}

// PostFile sends a file as the cluster's administrator.
func PostFile(ctx context.Context, c config.Config, url, path string) error {
	client, err := httpClient(c, "admin", "ca")
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, f)
	if err != nil {
		return err
	}
	_, err = do(client, req)
	return err
}

// answerLimit is how long a component may take to answer. It is not for uploads.
const answerLimit = 5 * time.Second

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return do(client, req)
}

// do returns the body of the answer, which has the status OK or another expected one.
func do(client *http.Client, req *http.Request, expected ...int) ([]byte, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", req.URL, err)
	}
	if resp.StatusCode != http.StatusOK && !slices.Contains(expected, resp.StatusCode) {
		return nil, fmt.Errorf("%s: %s: %.200s", req.URL, resp.Status, body)
	}
	return body, nil
}
