package podresize_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// between puts the middle between the fixture's client and the API server. The middle sees every request of the client
// and may pass it on.
func (s *fixture) between(middle func(w http.ResponseWriter, r *http.Request, pass http.Handler)) {
	s.t.Helper()
	transport, err := rest.TransportFor(s.Config)
	must.Succeed(s.t, err)
	target, err := url.Parse(s.Config.Host)
	must.Succeed(s.t, err)
	pass := httputil.NewSingleHostReverseProxy(target)
	pass.Transport = transport
	pass.ErrorLog = log.New(io.Discard, "", 0)
	s.resize = answered(s.t, func(w http.ResponseWriter, r *http.Request) { middle(w, r, pass) })
}

// answered resizes at an API server that answers so, without a connection; nil: no API server listens.
func answered(t *testing.T, answer http.HandlerFunc) *podresize.Client {
	t.Helper()
	config := &rest.Config{Host: "http://127.0.0.1:1"} // tcpmux: no process listens there
	if answer != nil {
		config.Transport = answers(answer)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	must.Succeed(t, err)
	return podresize.New(c, owner)
}

type answers http.HandlerFunc

func (a answers) RoundTrip(r *http.Request) (response *http.Response, err error) {
	defer func() {
		if recover() == http.ErrAbortHandler {
			response, err = nil, io.ErrUnexpectedEOF
		}
	}()
	w := httptest.NewRecorder()
	a(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// raise is a move of the pod web.
var raise = actuator.Move{UID: "4f2e", Changes: []actuator.Change{{Container: "app", From: 500, To: 1500}}}

// raised answers with the pod after it.
func raised(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(web("1500m"))
}

// busy asks to come again after a time.
func busy(after string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", after)
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	}
}

// TestNotServed: the API server's own words about a subresource that it does not know. The pod is there all the while.
func TestNotServed(t *testing.T) {
	s := newFixture(t)
	s.between(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		r.URL.Path = strings.TrimSuffix(r.URL.Path, "resize") + "resizing"
		pass.ServeHTTP(w, r)
	})
	s.refuses(s.move("app", 300), podresize.NotServed, "could not find the requested resource")
}

// TestServerTrouble: answers that do not come from the request's own fault, and none.
func TestServerTrouble(t *testing.T) {
	answer := func(code int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	const later = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,
		"message":"later","details":{"retryAfterSeconds":7}}`
	for reason, tt := range map[string]struct {
		answer     http.HandlerFunc
		want       podresize.Outcome
		retryAfter time.Duration
	}{
		"too many requests": {answer(429, "application/json", later), podresize.Unavailable, 7 * time.Second},
		"again and again":   {busy("0"), podresize.Unavailable, 0}, // client-go repeats it at once
		"a long wait":       {busy("3600"), podresize.Unknown, 0},
		"no answer":         {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, podresize.Unknown, 0},
		"internal error":    {answer(500, "text/plain", "boom"), podresize.Unavailable, 0},
		"unavailable":       {answer(503, "text/html", "<h1>no</h1>"), podresize.Unavailable, 0},
		"bad gateway":       {answer(502, "text/html", "<h1>no</h1>"), podresize.Unknown, 0},
		"gateway timeout":   {answer(504, "text/html", "<h1>no</h1>"), podresize.Unknown, 0},
		"no sense":          {answer(200, "application/json", `{"kind":"Pod","metadata":`), podresize.Unknown, 0},
		"no pod":            {answer(200, "application/json", `{}`), podresize.Unknown, 0},
		"hung up":           {hangUp, podresize.Unknown, 0},
	} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				got := answered(t, tt.answer).Apply(t.Context(), web("500m"), raise)
				expect(t, "Apply", got, tt.want, "")
				if took := time.Since(begin); got.RetryAfter != tt.retryAfter || took > podresize.Timeout {
					t.Errorf("retry after %v, want %v; it took %v", got.RetryAfter, tt.retryAfter, took)
				}
			})
		})
	}
	// A connection that was never made cannot have changed anything.
	got := answered(t, nil).Apply(t.Context(), web("500m"), raise)
	expect(t, "Apply without a server", got, podresize.Unavailable, "connection refused")
}

// TestRepeatedByClient: client-go repeats a request that was answered with Retry-After; the move is made once.
func TestRepeatedByClient(t *testing.T) {
	requests := 0
	resize := answered(t, func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests == 1 {
			busy("0")(w, r)
			return
		}
		raised(w, r)
	})
	expect(t, "Apply", resize.Apply(t.Context(), web("500m"), raise), podresize.Accepted, "")
	if requests != 2 {
		t.Errorf("%d requests, want 2", requests)
	}
}

// TestLostAnswer is why Unknown is no refusal: the change is made and only the answer is lost. Deciding again on
// the same copy is harmless, because that copy is stale.
func TestLostAnswer(t *testing.T) {
	s := newFixture(t)
	s.between(func(_ http.ResponseWriter, r *http.Request, pass http.Handler) {
		pass.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})
	expect(s.t, "Apply", s.resize.Apply(t.Context(), s.pod, s.move("app", 300)), podresize.Unknown, "")
	if got := s.stored().Spec.Containers[0].Resources.Limits.Cpu().String(); got != "300m" {
		t.Errorf("the limit is %s: the request did not reach the server, so nothing is tested", got)
	}
	s.resize = podresize.New(s.Client, owner)
	expect(s.t, "Apply again", s.resize.Apply(t.Context(), s.pod, s.move("app", 400)), podresize.Conflict, "")
}

// TestSentRequestsComplete: a shutdown does not undo a request that was sent, so its answer is awaited; no request starts
// after it. A dry run changes nothing, so its answer is not awaited.
func TestSentRequestsComplete(t *testing.T) {
	requests := 0
	ctx, cancel := context.WithCancel(t.Context())
	resize := answered(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		cancel()
		raised(w, r)
	})
	expect(t, "Apply", resize.Apply(ctx, web("500m"), raise), podresize.Accepted, "")
	got := resize.Apply(ctx, web("500m"), raise)
	expect(t, "Apply behind the end", got, podresize.Unavailable, "not sent: context canceled")
	if requests != 1 {
		t.Errorf("%d requests were sent, want the first only", requests)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	expect(t, "DryRun", resize.DryRun(ctx, web("500m"), raise), podresize.Unknown, "")
}

// TestServed asks a real server, and what stands for others: without the subresource, without its verb, and broken.
func TestServed(t *testing.T) {
	d, err := discovery.NewDiscoveryClientForConfig(apiserver.Start(t).Config)
	must.Succeed(t, err)
	for name, tt := range map[string]struct {
		server podresize.Discovery
		yes    bool
		why    string
	}{
		"this server":    {d, true, "serves pods/resize"},
		"no subresource": {resources{{Name: "pods"}}, false, "1.33"},
		"no verb patch":  {resources{{Name: "pods"}, {Name: "pods/resize", Verbs: []string{"get"}}}, false, "patch"},
	} {
		if got, err := podresize.Served(t.Context(), tt.server); err != nil || got.Yes != tt.yes || !strings.Contains(got.Why, tt.why) {
			t.Errorf("%s: %+v, %v; want %v with %q", name, got, err, tt.yes, tt.why)
		}
	}
	if got, err := podresize.Served(t.Context(), resources(nil)); err == nil || got.Yes {
		t.Errorf("a broken server: %+v, %v; want an error", got, err)
	}
}

// resources are what a server says that it has; nil: it answers with an error.
type resources []metav1.APIResource

func (r resources) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	if r == nil {
		return nil, errors.New("the server is broken")
	}
	return &metav1.APIResourceList{APIResources: r}, nil
}

// TestAllowed: as an administrator, as a user without rights, and as a user with a role in one namespace.
func TestAllowed(t *testing.T) {
	s := newFixture(t)
	s.allow("resizer", "pods/resize")
	for reason, tt := range map[string]struct {
		as        client.Client
		namespace string
		want      bool
		says      string
	}{
		"administrator, everywhere":   {s.Client, "", true, "in all namespaces"},
		"stranger":                    {s.As(t, "visitor"), s.namespace, false, `resources ["pods/resize"]`},
		"role, in its namespace":      {s.As(t, "resizer"), s.namespace, true, s.namespace},
		"role, in another namespace":  {s.As(t, "resizer"), "default", false, "namespace default"},
		"role, asked for all at once": {s.As(t, "resizer"), "", false, "in all namespaces"},
	} {
		t.Run(reason, func(t *testing.T) {
			got, err := podresize.Allowed(t.Context(), tt.as, tt.namespace)
			if err != nil || got.Yes != tt.want || !strings.Contains(got.Why, tt.says) {
				t.Errorf("%+v, %v; want %v with %q", got, err, tt.want, tt.says)
			}
		})
	}
	unheard := answered(t, nil).API.(client.Client)
	if got, err := podresize.Allowed(t.Context(), unheard, ""); err == nil || got.Yes {
		t.Errorf("without a server: %+v, %v; want an error", got, err)
	}
}
