package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

var agent = types.NamespacedName{Namespace: "mbcas-system", Name: "mbcas-agent-abcde"}

// kubelet is an API server with the kubelet behind it: it forwards ports of one pod by SPDY alone, as behind a proxy
// that takes no websocket.
type kubelet struct {
	ports  map[string]string // addresses of what listens, by port
	closed chan struct{}     // has one for each connection that has ended
}

func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, "/secret/") {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","code":403,"reason":"Forbidden","message":"you may not"}`)
		return
	}
	if want := "/api/v1/namespaces/mbcas-system/pods/mbcas-agent-abcde/portforward"; r.URL.Path != want {
		http.Error(w, "no pod at "+r.URL.Path, http.StatusNotFound)
		return
	}
	if r.Method != http.MethodPost {
		http.Error(w, "SPDY alone", http.StatusBadRequest)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return
	}
	var failures httpstream.Stream
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
			failures = s
			return nil
		}
		go k.forward(s, failures, replied)
		return nil
	})
	if connection == nil {
		return
	}
	<-connection.CloseChan()
	k.closed <- struct{}{}
}

func (k *kubelet) forward(data, failures httpstream.Stream, replied <-chan struct{}) {
	<-replied
	defer failures.Close()
	defer data.Close()
	port := data.Headers().Get(corev1.PortHeader)
	to, err := net.Dial("tcp", k.ports[port])
	if err != nil {
		fmt.Fprintf(failures, "error forwarding port %s: connection refused\n", port)
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(to, data) }()
	_, _ = io.Copy(data, to)
}

// serve serves what a pod does on its loopback, and returns access to the API server.
func serve(t *testing.T, handler http.HandlerFunc) (*rest.Config, *kubelet) {
	t.Helper()
	pod := httptest.NewServer(handler)
	t.Cleanup(pod.Close)
	k := &kubelet{closed: make(chan struct{}, 10), ports: map[string]string{"9091": pod.Listener.Addr().String(), "1": "127.0.0.1:0"}}
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}, k
}

// TestGet: the answer of the pod arrives whole, whether it is short or long, and the connection is closed after it.
func TestGet(t *testing.T) {
	for name, size := range map[string]int{"empty": 0, "short": 10, "long": 3 << 20} {
		t.Run(name, func(t *testing.T) {
			want := strings.Repeat("x", size)
			config, k := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.Path != "/debug/round" || r.Host != "localhost" {
					http.Error(w, "unexpected "+r.Method+" "+r.URL.Path+" "+r.Host, http.StatusTeapot)
				}
				_, _ = io.WriteString(w, want)
			})
			got, err := Get(t.Context(), config, agent, 9091, "/debug/round")
			if err != nil || string(got) != want {
				t.Errorf("%d bytes, %v; want %d", len(got), err, size)
			}
			select {
			case <-k.closed:
			case <-time.After(time.Minute):
				t.Error("the connection was not closed")
			}
		})
	}
}

// TestGetFails: each error names the pod and the port, and says what the other side said.
func TestGetFails(t *testing.T) {
	config, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no round has completed yet", http.StatusServiceUnavailable)
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	other, secret := types.NamespacedName{Namespace: "shop", Name: "cart"}, types.NamespacedName{Namespace: "secret", Name: "cart"}
	tests := map[string]struct {
		ctx  context.Context
		pod  types.NamespacedName
		port int
		want []string
	}{
		"not ready":       {t.Context(), agent, 9091, []string{"mbcas-agent-abcde, port 9091", "503", "no round has completed yet"}},
		"nothing listens": {t.Context(), agent, 1, []string{"mbcas-agent-abcde, port 1", "error forwarding port 1: connection refused"}},
		"no pod":          {t.Context(), other, 9091, []string{"port-forward to pod shop/cart", "404", "no pod at"}},
		"forbidden":       {t.Context(), secret, 9091, []string{"port-forward to pod secret/cart", "you may not"}},
		"ended":           {ended, agent, 9091, []string{context.Canceled.Error()}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			body, err := Get(tc.ctx, config, tc.pod, tc.port, "/debug/round")
			if err == nil {
				t.Fatalf("answered %q", body)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
		})
	}
}

// TestSilentPod: a request that the pod has and does not answer ends with its context.
func TestSilentPod(t *testing.T) {
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	config, _ := serve(t, func(http.ResponseWriter, *http.Request) {
		cancel()
		<-release
	})
	defer close(release)
	if _, err := Get(ctx, config, agent, 9091, "/debug/round"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}
