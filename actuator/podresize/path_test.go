package podresize_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
)

// between puts the middle between the fixture's client and the API server, and returns the address of it.
// The middle sees every request of the client and may pass it on.
func (s *fixture) between(middle func(w http.ResponseWriter, r *http.Request, pass http.Handler)) string {
	s.t.Helper()
	transport, err := rest.TransportFor(s.Config)
	s.must(err)
	target, err := url.Parse(s.Config.Host)
	s.must(err)
	if target.Host == "" {
		target = &url.URL{Scheme: "https", Host: s.Config.Host}
	}
	pass := httputil.NewSingleHostReverseProxy(target)
	pass.Transport = transport
	pass.ErrorLog = log.New(io.Discard, "", 0)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { middle(w, r, pass) }))
	s.t.Cleanup(server.Close)
	s.through(server.URL)
	return server.URL
}

// through sends the fixture's resizes to another address.
func (s *fixture) through(address string) {
	s.t.Helper()
	c, err := client.New(&rest.Config{Host: address}, client.Options{Scheme: s.Client.Scheme(), Mapper: s.Client.RESTMapper()})
	s.must(err)
	s.resize = podresize.New(c, owner)
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

// TestServerTrouble: answers that do not come from the request's own fault.
func TestServerTrouble(t *testing.T) {
	answer := func(code int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
			io.WriteString(w, body)
		}
	}
	for reason, tt := range map[string]struct {
		answer     http.HandlerFunc
		want       podresize.Outcome
		retryAfter time.Duration
	}{
		"too many requests": {
			answer(429, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"message":"later","details":{"retryAfterSeconds":7}}`),
			podresize.Unavailable, 7 * time.Second,
		},
		"too many requests, again and again": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "0") // so that client-go repeats it at once
			answer(429, "text/plain", "Too many requests, please try again later.")(w, r)
		}, podresize.Unavailable, 0},
		"internal error":      {answer(500, "text/plain", "boom"), podresize.Unavailable, 0},
		"service unavailable": {answer(503, "text/html", "<h1>no</h1>"), podresize.Unavailable, 0},
		"bad gateway":         {answer(502, "text/html", "<h1>no</h1>"), podresize.Unknown, 0},
		"gateway timeout":     {answer(504, "text/html", "<h1>no</h1>"), podresize.Unknown, 0},
		"no sense":            {answer(200, "application/json", `{"kind":"Pod","apiVersion":"v1","metadata":`), podresize.Unknown, 0},
		"no pod":              {answer(200, "application/json", `{}`), podresize.Unknown, 0},
		"hung up":             {hangUp, podresize.Unknown, 0},
	} {
		t.Run(reason, func(t *testing.T) {
			s := newFixture(t)
			s.between(func(w http.ResponseWriter, r *http.Request, _ http.Handler) { tt.answer(w, r) })
			got := s.resize.Apply(t.Context(), s.pod, s.move("app", 300))
			s.expect("Apply", got, tt.want, "")
			if got.RetryAfter != tt.retryAfter {
				t.Errorf("retry after %v, want %v", got.RetryAfter, tt.retryAfter)
			}
		})
	}
}

// TestRepeatedByClient: client-go repeats a request that was answered with Retry-After; the move is made once.
func TestRepeatedByClient(t *testing.T) {
	s := newFixture(t)
	var requests atomic.Int32
	s.between(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if requests.Add(1) == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		pass.ServeHTTP(w, r)
	})
	r := s.resize.Apply(t.Context(), s.pod, s.move("app", 300))
	s.expect("Apply", r, podresize.Accepted, "")
	if r.Pod.Generation != s.pod.Generation+1 || requests.Load() != 2 {
		t.Errorf("%d requests, generation %d after %d", requests.Load(), r.Pod.Generation, s.pod.Generation)
	}
}

// TestTimeout: a server that does not answer in time, and one that asks to wait for longer than we do.
func TestTimeout(t *testing.T) {
	for reason, middle := range map[string]http.HandlerFunc{
		"no answer": func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // else the server does not notice that the client has gone
			<-r.Context().Done()
		},
		"a long wait": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		},
	} {
		t.Run(reason, func(t *testing.T) {
			s := newFixture(t)
			s.between(func(w http.ResponseWriter, r *http.Request, _ http.Handler) { middle(w, r) })
			s.resize.Timeout = time.Second
			s.expect("Apply", s.resize.Apply(t.Context(), s.pod, s.move("app", 300)), podresize.Unknown, "")
		})
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
	s.expect("Apply", s.resize.Apply(t.Context(), s.pod, s.move("app", 300)), podresize.Unknown, "")
	if got := s.stored().Spec.Containers[0].Resources.Limits.Cpu().String(); got != "300m" {
		t.Errorf("the limit is %s: the request did not reach the server, so nothing is tested", got)
	}
	s.resize = podresize.New(s.Client, owner)
	s.expect("Apply again", s.resize.Apply(t.Context(), s.pod, s.move("app", 400)), podresize.Conflict, "")
}

// TestNobodyListens: a connection that was never made cannot have changed anything.
func TestNobodyListens(t *testing.T) {
	s := newFixture(t)
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	s.through(server.URL)
	s.expect("Apply", s.resize.Apply(t.Context(), s.pod, s.move("app", 300)), podresize.Unavailable, "connection refused")
}

// TestSentRequestsComplete: a shutdown does not undo a request that was sent, so its answer is awaited; no request starts after it.
func TestSentRequestsComplete(t *testing.T) {
	s := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	var requests atomic.Int32
	s.between(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		requests.Add(1)
		cancel()
		pass.ServeHTTP(w, r)
	})
	s.expect("Apply", s.resize.Apply(ctx, s.pod, s.move("app", 300)), podresize.Accepted, "")
	s.expect("Apply behind the end", s.resize.Apply(ctx, s.stored(), s.move("app", 400)), podresize.Unavailable, "not sent: context canceled")
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests were sent, want the first only", n)
	}
}

// TestDryRunCancelled: a dry run changes nothing, so its answer is not awaited.
func TestDryRunCancelled(t *testing.T) {
	s := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.between(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	})
	s.expect("DryRun", s.resize.DryRun(ctx, s.pod, s.move("app", 300)), podresize.Unknown, "")
}

// TestServed asks a real server, the same server without the subresource, and one that is silent.
func TestServed(t *testing.T) {
	s := newFixture(t)
	ask := func(c *rest.Config) (podresize.Answer, error) {
		d, err := discovery.NewDiscoveryClientForConfig(c)
		s.must(err)
		return podresize.Served(t.Context(), d)
	}
	if got, err := ask(s.Config); err != nil || !got.Yes || got.Why == "" {
		t.Errorf("this server: %+v, %v; want yes with a sentence", got, err)
	}
	address := s.between(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		r.Header.Del("Accept-Encoding")
		r.Header.Set("Accept", "application/json")
		answer := httptest.NewRecorder()
		pass.ServeHTTP(answer, r)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, strings.ReplaceAll(answer.Body.String(), "pods/resize", "pods/resized"))
	})
	got, err := ask(&rest.Config{Host: address})
	if err != nil || got.Yes || !strings.Contains(got.Why, "1.33") {
		t.Errorf("a server without the subresource: %+v, %v; want no, with the version that has it", got, err)
	}
	address = s.between(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	if got, err := ask(&rest.Config{Host: address}); err == nil || got.Yes {
		t.Errorf("a broken server: %+v, %v; want an error", got, err)
	}
}

// TestServedVerbs: a server that has the subresource but does not let it be patched.
func TestServedVerbs(t *testing.T) {
	got, err := podresize.Served(t.Context(), resources{{Name: "pods"}, {Name: "pods/resize", Verbs: []string{"get"}}})
	if err != nil || got.Yes || !strings.Contains(got.Why, "patch") {
		t.Errorf("%+v, %v; want no, because of the verb", got, err)
	}
}

type resources []metav1.APIResource

func (r resources) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
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
	c, err := client.New(&rest.Config{Host: "http://127.0.0.1:1"}, client.Options{Scheme: s.Client.Scheme(), Mapper: s.Client.RESTMapper()})
	s.must(err)
	if got, err := podresize.Allowed(t.Context(), c, ""); err == nil || got.Yes {
		t.Errorf("without a server: %+v, %v; want an error", got, err)
	}
}
