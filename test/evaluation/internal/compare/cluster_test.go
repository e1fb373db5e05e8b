package compare

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// label is that of a namespace; "-": none.
func label(t *testing.T, s *apiserver.Server, namespace string) string {
	t.Helper()
	var ns corev1.Namespace
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: namespace}, &ns); err != nil {
		t.Fatal(err)
	}
	if v, ok := ns.Labels[kube.ModeLabel]; ok {
		return v
	}
	return "-"
}

// setLabel is a write of another program.
func setLabel(t *testing.T, s *apiserver.Server, namespace, value string) {
	t.Helper()
	ns := &corev1.Namespace{}
	ns.Name = namespace
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, kube.ModeLabel, value)
	raw := client.RawPatch("application/merge-patch+json", []byte(patch))
	if err := s.Client.Patch(t.Context(), ns, raw); err != nil {
		t.Fatal(err)
	}
}

// place puts a Running pod in a namespace.
func place(t *testing.T, s *apiserver.Server, namespace string) {
	t.Helper()
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = namespace, "web"
	pod.Spec.NodeName = "n1"
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "x"}}
	if err := s.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	if err := s.Client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// TestLabelComesBack: in a real API server, after the end, a failure and an interruption, whether there was a label
// before or not.
func TestLabelComesBack(t *testing.T) {
	s := apiserver.Start(t)
	clients, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		before  string // the label; "-": none
		foreign string // what another writer sets meanwhile; "": nothing
		stops   bool
		fails   bool
	}{
		"to the end":         {before: "-"},
		"with a label":       {before: "recommend"},
		"interrupted":        {before: "enforce", stops: true},
		"interrupted, none":  {before: "-", stops: true},
		"service ends":       {before: "off", fails: true},
		"another writer":     {before: "recommend", foreign: "off"},
		"another, from none": {before: "-", foreign: "off"},
	} {
		namespace := s.Namespace(t)
		if tt.before != "-" {
			setLabel(t, s, namespace, tt.before)
		}
		place(t, s, namespace)
		ctx, cancel := context.WithCancel(t.Context())
		target := &Cluster{Client: clients, Namespace: namespace}
		x := settings()
		x.Namespace, x.Pairs, x.Settle, x.Length, x.Rate = namespace, 2, time.Millisecond, 100*time.Millisecond, 500
		var seen []string
		runs := 0
		c := Comparison{Settings: x, Target: target, Send: func(context.Context) error { return nil }}
		c.Say = func(string, ...any) {
			seen = append(seen, label(t, s, namespace))
			switch runs++; {
			case runs == 1 && tt.foreign != "":
				setLabel(t, s, namespace, tt.foreign)
			case runs == 3 && tt.stops:
				cancel()
			case runs == 3 && tt.fails:
				c.Target.(*Cluster).Selector = "a in (" // the API server refuses it
			}
		}
		_, err := c.Run(ctx)
		cancel()
		want := tt.before
		if tt.foreign != "" {
			want = tt.foreign
		}
		if got := label(t, s, namespace); got != want {
			t.Errorf("%s: label %s at the end, want %s; %v", name, got, want, err)
		}
		ends := tt.foreign != "" || tt.stops || tt.fails
		if (err != nil) != ends || tt.foreign != "" && !strings.Contains(err.Error(), "another writer") {
			t.Errorf("%s: %v, want an error: %v", name, err, ends)
		}
		if tt.foreign == "" && (len(seen) < 2 || seen[0] == seen[1]) {
			t.Errorf("%s: the modes were %v, want both", name, seen)
		}
	}
}

// roundTrip is a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestUncertainWrites: a write whose answer is lost is undone, and one beside which another program has changed
// something else of the namespace is made again.
func TestUncertainWrites(t *testing.T) {
	s := apiserver.Start(t)
	lost, beside, namespace := false, false, ""
	config := rest.CopyConfig(s.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if beside && r.Method == http.MethodPatch {
				beside = false
				ns := &corev1.Namespace{}
				ns.Name = namespace
				other := []byte(`{"metadata":{"annotations":{"a":"b"}}}`)
				if err := s.Client.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, other)); err != nil {
					t.Error(err)
				}
			}
			answer, err := next.RoundTrip(r)
			if lost && err == nil && r.Method == http.MethodPatch {
				lost = false
				answer.Body.Close()
				return nil, errors.New("the connection is lost")
			}
			return answer, err
		})
	})
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []string{"-", "recommend"} {
		namespace = s.Namespace(t)
		if before != "-" {
			setLabel(t, s, namespace, before)
		}
		c := &Cluster{Client: clients, Namespace: namespace}
		beside = true
		if err := c.SetMode(t.Context(), Restore); err != nil || label(t, s, namespace) != Restore {
			t.Errorf("another program has written an annotation: %v, label %s", err, label(t, s, namespace))
		}
		lost = true
		if err := c.SetMode(t.Context(), Enforce); err == nil || label(t, s, namespace) != Enforce {
			t.Errorf("the answer is lost: %v, label %s", err, label(t, s, namespace))
		}
		beside = true
		if err := c.Reset(t.Context()); err != nil || label(t, s, namespace) != before {
			t.Errorf("reset: %v, label %s, want %s", err, label(t, s, namespace), before)
		}
	}
}

// metrics are what a kubelet says of two pods and their sums, with this much since its start.
func metrics(periods, throttled int) string {
	var b strings.Builder
	for family, v := range map[string]int{
		"container_cpu_cfs_periods_total": periods, "container_cpu_cfs_throttled_periods_total": throttled,
	} {
		fmt.Fprintf(&b, "# TYPE %s counter\n", family)
		for _, labels := range []string{
			`container="main",id="/a/1",namespace="shop",pod="web"`, `container="",id="/a",namespace="shop",pod="web"`,
			`container="main",id="/b/1",namespace="other",pod="web"`,
			`container="main",id="/c/1",namespace="shop",pod="db"`,
		} {
			fmt.Fprintf(&b, "%s{%s} %d 1700000000000\n", family, labels, v)
		}
	}
	return b.String()
}

// TestThrottling: of the chosen pods alone, once for each container, and not where a counter went back.
func TestThrottling(t *testing.T) {
	periods, throttled, refused := 1000, 100, false
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/namespaces/shop/pods":
			if got := r.URL.Query().Get("labelSelector"); got != "app=web" {
				t.Errorf("selector %q", got)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","items":[
				{"metadata":{"name":"web"},
				 "spec":{"nodeName":"n1","containers":[{"resources":{"limits":{"cpu":"700m"}}}]},
				 "status":{"phase":"Running"}},
				{"metadata":{"name":"done"},"spec":{"nodeName":"n2"},"status":{"phase":"Succeeded"}}]}`)
		case "/api/v1/nodes/n1/proxy/metrics/cadvisor":
			if refused {
				http.Error(w, "nodes/proxy is forbidden", http.StatusForbidden)
				return
			}
			fmt.Fprint(w, metrics(periods, throttled))
		default:
			http.NotFound(w, r)
		}
	}))
	defer api.Close()
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Client: clients, Namespace: "shop", Selector: "app=web"}
	before, err := c.Periods(t.Context())
	if err != nil || len(before) != 1 {
		t.Fatalf("%v, %v; want one container", before, err)
	}
	periods, throttled = 1200, 150
	now, err := c.Periods(t.Context())
	if share, ok := now.Since(before); err != nil || !ok || share != 0.25 {
		t.Errorf("share %v, %v, %v; want a quarter", share, ok, err)
	}
	if share, ok := before.Since(now); ok {
		t.Errorf("counters that went back have the share %v", share)
	}
	if sum, pods, err := c.Limits(t.Context()); sum != 700 || pods != 1 || err != nil {
		t.Errorf("limits %d of %d pods, %v", sum, pods, err)
	}
	refused = true
	if _, err := c.Periods(t.Context()); err == nil || !strings.Contains(err.Error(), "nodes/proxy") {
		t.Errorf("%v, want the right that is missing", err)
	}
}

// TestGetIsHTTP1: also from a service that would speak HTTP/2, on whose one connection all would reach one pod.
func TestGetIsHTTP1(t *testing.T) {
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			w.WriteHeader(http.StatusHTTPVersionNotSupported)
		}
	}))
	service.EnableHTTP2 = true
	service.StartTLS()
	defer service.Close()
	was := http.DefaultTransport
	defer func() { http.DefaultTransport = was }()
	http.DefaultTransport = service.Client().Transport // it knows the certificate
	if err := Get(service.URL)(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestGet: an answer with an error is none, and neither is one that is cut off.
func TestGet(t *testing.T) {
	status, cut := http.StatusOK, false
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if cut {
			w.Header().Set("Content-Length", "100")
		}
		w.WriteHeader(status)
		fmt.Fprint(w, "hello")
	}))
	defer service.Close()
	send := Get(service.URL)
	for _, tt := range []struct {
		status int
		cut    bool
		fails  bool
	}{{200, false, false}, {500, false, true}, {404, false, true}, {200, true, true}} {
		status, cut = tt.status, tt.cut
		if err := send(t.Context()); (err != nil) != tt.fails {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := send(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the end of its time", err)
	}
}
