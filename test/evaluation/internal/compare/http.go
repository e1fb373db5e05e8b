package compare

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Get sends requests for a URL. An answer counts when its body has been read and its status is below 400. Each
// connection is used again, and as many are opened as there are requests in progress. It is HTTP/1.1: all requests of
// HTTP/2 have one connection, and a Service sends each connection to one pod.
func Get(url string) func(context.Context) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.MaxConnsPerHost = 2*InFlight, InFlight, 0
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	if tls := transport.TLSClientConfig; tls != nil {
		tls.NextProtos = nil // a clone still offers HTTP/2
	}
	c := &http.Client{Transport: transport}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode >= http.StatusBadRequest {
			return fmt.Errorf("%s: %s", url, resp.Status)
		}
		return nil
	}
}
