// Package forward connects to ports on the loopback of pods as kubectl port-forward does: through the API
// server and the kubelet, with the rights of the user. It opens no port on the user's machine.
package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// Dial connects to a port of a pod. Without the verbs get and create on pods/portforward the error is that
// of the API server, which apierrors.IsForbidden recognises.
func Dial(ctx context.Context, config *rest.Config, pod types.NamespacedName, port int) (net.Conn, error) {
	dialer, refusal, err := dialerOf(config, pod)
	if err != nil {
		return nil, fmt.Errorf("port-forward to pod %s: %w", pod, err)
	}
	type result struct {
		c   *conn
		err error
	}
	dialed := make(chan result, 1)
	go func() { // the dialer takes no context
		c, err := open(dialer, port)
		if refusal.status != nil {
			err = refusal.status
		}
		dialed <- result{c, err}
	}()
	select {
	case <-ctx.Done():
		err = ctx.Err()
		go func() {
			if late := <-dialed; late.err == nil {
				_ = late.c.Close()
			}
		}()
	case r := <-dialed:
		if r.err == nil {
			r.c.of = fmt.Sprintf("pod %s, port %d", pod, port)
			return r.c, nil
		}
		err = r.err
	}
	return nil, fmt.Errorf("port-forward to pod %s: %w", pod, err)
}

// dialerOf upgrades a websocket, and SPDY where the API server or a proxy before it cannot.
func dialerOf(config *rest.Config, pod types.NamespacedName) (httpstream.Dialer, *refusal, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	url := client.CoreV1().RESTClient().Post().
		Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, nil, err
	}
	refused := &refusal{next: transport}
	post := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: refused}, http.MethodPost, url)
	get, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
	if err != nil {
		return nil, nil, err
	}
	return portforward.NewFallbackDialerForStreaming(get, post, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), refused, nil
}

// refusal remembers the error of the API server in an answer that upgrades nothing: the dialer keeps only
// its text.
type refusal struct {
	next   http.RoundTripper
	status *apierrors.StatusError
}

func (r *refusal) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return nil, fmt.Errorf("answer %s: %w", resp.Status, err)
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		r.status = &apierrors.StatusError{ErrStatus: status}
	}
	return nil, fmt.Errorf("answer %s: %s", resp.Status, bytes.TrimSpace(body))
}

// open opens the two streams of a port: its data, and what the kubelet says when it cannot connect.
func open(dialer httpstream.Dialer, port int) (*conn, error) {
	connection, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failures, err := connection.CreateStream(headers)
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	_ = failures.Close() // nothing is written to it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(headers)
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	c := &conn{Stream: data, connection: connection, failed: make(chan struct{})}
	go func() {
		text, _ := io.ReadAll(io.LimitReader(failures, 4096))
		c.failure = strings.TrimSpace(string(text))
		close(c.failed)
	}()
	return c, nil
}

// conn is a connection to a port of a pod.
type conn struct {
	httpstream.Stream
	connection httpstream.Connection
	of         string

	closing sync.Once
	failed  chan struct{} // closed when failure is known
	failure string        // what the kubelet says; "" where it could connect
}

// failureWait is how long the reason may arrive after the end of the data.
const failureWait = time.Second

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if err == nil || n > 0 {
		return n, err
	}
	select {
	case <-c.failed:
		if c.failure != "" {
			return 0, fmt.Errorf("port-forward to %s: %s", c.of, c.failure)
		}
	case <-time.After(failureWait):
	}
	return 0, err
}

func (c *conn) Close() (err error) {
	c.closing.Do(func() {
		_ = c.Reset()
		err = c.connection.Close()
	})
	return err
}

// The API server and the kubelet bound the connection; a request has a context.
func (c *conn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *conn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (c *conn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

func (c *conn) LocalAddr() net.Addr  { return addr(c.of) }
func (c *conn) RemoteAddr() net.Addr { return addr(c.of) }

// addr names the pod and the port.
type addr string

func (a addr) Network() string { return "port-forward" }
func (a addr) String() string  { return string(a) }

// mostBytes bounds an answer.
const mostBytes = 64 << 20

// Get is the body of the answer to a GET request to a port of a pod. An answer other than 200 is an error.
func Get(ctx context.Context, config *rest.Config, pod types.NamespacedName, port int, path string) ([]byte, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return Dial(ctx, config, pod, port) },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s of pod %s, port %d: %w", path, pod, port, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("pod %s, port %d, answers %s with %s: %s", pod, port, path, resp.Status, bytes.TrimSpace(body))
	case len(body) > mostBytes:
		return nil, fmt.Errorf("pod %s, port %d, answers %s with more than %d bytes", pod, port, path, mostBytes)
	}
	return body, nil
}
