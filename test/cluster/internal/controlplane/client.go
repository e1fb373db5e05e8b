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
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
)

// Get reads one object of the API as the cluster's administrator.
func Get(ctx context.Context, c config.Config, path string, into any) error {
	body, err := send(ctx, c, request{as: admin, method: http.MethodGet, url: c.APIURL() + path})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Probe returns a check of a health URL of a component, as the cluster's administrator.
func Probe(c config.Config, url string) func(context.Context) error {
	return probe(c, admin, url)
}

func probe(c config.Config, as identity, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := send(ctx, c, request{as: as, method: http.MethodGet, url: url})
		return err
	}
}

// Delete removes one object of the API as the cluster's administrator. It is no
// error if there is none.
func Delete(ctx context.Context, c config.Config, path string) error {
	r := request{as: admin, method: http.MethodDelete, url: c.APIURL() + path, expect: http.StatusNotFound}
	_, err := send(ctx, c, r)
	return err
}

// PostFile sends a file as the cluster's administrator.
func PostFile(ctx context.Context, c config.Config, url, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = send(ctx, c, request{as: admin, method: http.MethodPost, url: url, body: f})
	return err
}

// identity is a client's certificate, and the authority of the servers that it talks to.
type identity struct{ certificate, authority string }

var (
	admin      = identity{"admin", "ca"}
	etcdClient = identity{"etcd-client", "etcd-ca"}
)

// answerLimit is how long a component may take to answer. It is not for uploads.
const answerLimit = 5 * time.Second

type request struct {
	as          identity
	method, url string
	body        io.Reader
	expect      int // a status that is no error, besides OK
}

// send returns the body of the answer.
func send(ctx context.Context, c config.Config, r request) ([]byte, error) {
	pair, err := tls.LoadX509KeyPair(c.PKI(r.as.certificate+".crt"), c.PKI(r.as.certificate+".key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(c.PKI(r.as.authority + ".crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // each call has its own connection; nothing to close later
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
	}}
	if r.body == nil {
		client.Timeout = answerLimit
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, r.body)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.url, err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != r.expect {
		return nil, fmt.Errorf("%s: %s: %.200s", r.url, resp.Status, body)
	}
	return body, nil
}
