package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mbcas/mbcas/internal/page/figures"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

const host = "127.0.0.1:40123"

func serverOf(t *testing.T, rec *record.Recording) *server {
	t.Helper()
	src, err := figures.File(rec)
	must.Succeed(t, err)
	return newServer(host, src)
}

// request is one that the page sends.
func request(s *server, path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = host
	r.Header.Set(tokenHeader, s.token)
	r.Header.Set(tabHeader, "a tab")
	return r
}

func send(s *server, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// get decodes the answer to a request of the page.
func get[T any](t *testing.T, s *server, path string) (v T) {
	t.Helper()
	w := send(s, request(s, path))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

// TestOnlyThePageIsAnswered: figures go to requests with the token, this address and this origin only, and files to this
// address and origin only; refusals have the headers that keep a browser from using them.
func TestOnlyThePageIsAnswered(t *testing.T) {
	s := serverOf(t, recordings.Saturated(t, "node-1", "cart", 5))
	other := newServer(host, nil)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	tests := map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"the page":                   {func(*http.Request) {}, http.StatusOK},
		"with its origin":            {header("Origin", "http://"+host), http.StatusOK},
		"from its own files":         {header("Sec-Fetch-Site", "same-origin"), http.StatusOK},
		"a name that was rebound":    {func(r *http.Request) { r.Host = "evil.example:40123" }, http.StatusForbidden},
		"localhost":                  {func(r *http.Request) { r.Host = "localhost:40123" }, http.StatusForbidden},
		"another port":               {func(r *http.Request) { r.Host = "127.0.0.1:80" }, http.StatusForbidden},
		"no host":                    {func(r *http.Request) { r.Host = "" }, http.StatusForbidden},
		"another origin":             {header("Origin", "http://evil.example"), http.StatusForbidden},
		"another port's origin":      {header("Origin", "http://127.0.0.1:1"), http.StatusForbidden},
		"an origin that is a secret": {header("Origin", "null"), http.StatusForbidden},
		"two origins": {func(r *http.Request) {
			r.Header["Origin"] = []string{"http://" + host, "http://evil.example"}
		}, http.StatusForbidden},
		"another site":           {header("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		"another port's site":    {header("Sec-Fetch-Site", "same-site"), http.StatusForbidden},
		"no token":               {func(r *http.Request) { r.Header.Del(tokenHeader) }, http.StatusUnauthorized},
		"another server's token": {header(tokenHeader, other.token), http.StatusUnauthorized},
		"a part of the token":    {header(tokenHeader, s.token[:31]), http.StatusUnauthorized},
		"the token as a parameter": {func(r *http.Request) {
			r.Header.Del(tokenHeader)
			r.URL.RawQuery += "&token=" + s.token
		}, http.StatusUnauthorized},
		"a tab with a long name": {header(tabHeader, strings.Repeat("x", maxTabID+1)), http.StatusTooManyRequests},
	}
	for name, tc := range tests {
		for _, question := range figures.Questions() {
			path := "/api/" + question
			r := request(s, path+"?node=node-1&pod=shop/cart&at="+fmt.Sprint(recordings.Noon.UnixMilli()))
			tc.change(r)
			w := send(s, r)
			if w.Code != tc.want {
				t.Errorf("%s, %s: %d %s, want %d", name, path, w.Code, w.Body, tc.want)
			}
			if tc.want != http.StatusOK && strings.Contains(w.Body.String(), "supply") {
				t.Errorf("%s, %s: figures in a refusal: %s", name, path, w.Body)
			}
			h := w.Header()
			if !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self';") || strings.Contains(h.Get("Content-Security-Policy"), "unsafe") ||
				h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "" || h.Get("Cache-Control") != "no-store" {
				t.Errorf("%s, %s: headers %v", name, path, h)
			}
		}
		r := request(s, "/")
		tc.change(r)
		want := tc.want
		if want == http.StatusUnauthorized || want == http.StatusTooManyRequests {
			want = http.StatusOK // a file holds no secret
		}
		if w := send(s, r); w.Code != want || strings.Contains(w.Body.String(), s.token) {
			t.Errorf("%s, the file: %d %.200s", name, w.Code, w.Body)
		}
	}
	if len(s.token) != 32 || s.token == other.token {
		t.Errorf("tokens %q and %q", s.token, other.token)
	}
}

// TestOnlyReads: every method but GET is refused, for figures, files and what there is not.
func TestOnlyReads(t *testing.T) {
	s := serverOf(t, recordings.Saturated(t, "node-1", "cart", 5))
	for _, method := range []string{"HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "get"} {
		for _, path := range []string{"/", "/api/cluster", "/missing"} {
			r := request(s, path)
			r.Method = method
			if w := send(s, r); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET" {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
}

// TestFiles: the page's files are served with their types, and nothing else of the file system.
func TestFiles(t *testing.T) {
	s := serverOf(t, recordings.Saturated(t, "node-1", "cart", 5))
	for path, want := range map[string]string{"/web/main.js": "text/javascript", "/web/page.css": "text/css", "/": "text/html"} {
		if w := send(s, request(s, path)); w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), want) {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
	r := request(s, "/")
	if r.URL.Path = ""; send(s, r).Code != http.StatusOK { // as in "GET http://127.0.0.1:40123 HTTP/1.1"
		t.Error("an address without a path is not the page")
	}
	for _, path := range []string{"/page.go", "/web/../page.go", "/dist/.gitignore", "/web", "/web/", "/api/secrets", "//etc/passwd", "/dist/../../../go.mod"} {
		r := request(s, "/")
		r.URL = &url.URL{Path: path}
		if w := send(s, r); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d %.100s", path, w.Code, w.Body)
		}
	}
	w := send(s, request(s, "/"))
	if stub := strings.Contains(w.Body.String(), "built without the page: make page"); stub == Built() {
		t.Errorf("built %v, and the page is %.300s", Built(), w.Body)
	}
}

// slow is a source whose cluster takes until it is released.
type slow struct {
	figures.Source
	release chan struct{}
}

func (s *slow) Cluster(ctx context.Context) (figures.Cluster, error) {
	select {
	case <-s.release:
		return figures.Cluster{}, nil
	case <-ctx.Done():
		return figures.Cluster{}, ctx.Err()
	}
}

// TestRequestsAreBounded: of many requests at a time some are answered and the others refused at once; after that
// requests are answered again.
func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &slow{release: make(chan struct{})}
		s := newServer(host, src)
		const many = 1_000
		codes := make(chan int, many)
		for range many {
			go func() { codes <- send(s, request(s, "/api/cluster")).Code }()
		}
		synctest.Wait()
		if got := len(codes); got != many-maxRequests {
			t.Errorf("%d of %d requests were refused, want all but %d", got, many, maxRequests)
		}
		close(src.release)
		count := map[int]int{}
		for range many {
			count[<-codes]++
		}
		if count[http.StatusOK] != maxRequests || count[http.StatusServiceUnavailable] != many-maxRequests {
			t.Errorf("answers %v", count)
		}
		if w := send(s, request(s, "/api/cluster")); w.Code != http.StatusOK {
			t.Errorf("afterwards: %d", w.Code)
		}
	})
}

// TestTabsAreBounded: a tab more than the bound is refused, until another has been closed for a while.
func TestTabsAreBounded(t *testing.T) {
	s := serverOf(t, recordings.Saturated(t, "node-1", "cart", 5))
	now := recordings.Noon
	s.now = func() time.Time { return now }
	ask := func(tab string) int {
		r := request(s, "/api/cluster")
		r.Header.Set(tabHeader, tab)
		return send(s, r).Code
	}
	for i := range maxTabs {
		if code := ask(fmt.Sprint(i)); code != http.StatusOK {
			t.Errorf("tab %d: %d", i, code)
		}
	}
	if code := ask("more"); code != http.StatusTooManyRequests {
		t.Errorf("a tab more: %d", code)
	}
	now = now.Add(tabEnds + time.Second)
	if code := ask("0"); code != http.StatusOK {
		t.Errorf("a tab that goes on: %d", code)
	}
	if code := ask("more"); code != http.StatusOK || len(s.tabs) != 2 {
		t.Errorf("after the others have ended: %d, %d tabs", code, len(s.tabs))
	}
}

// TestHostileNames: names with markup are in the answer as data, and not as markup.
func TestHostileNames(t *testing.T) {
	const node, pod = `<img src=x onerror=alert(1)>`, `"</script><script>alert(1)</script>`
	s := serverOf(t, recordings.Saturated(t, node, pod, 15))
	query := "node=" + url.QueryEscape(node) + "&pod=" + url.QueryEscape("shop/"+pod)
	for _, question := range figures.Questions() {
		path := "/api/" + question
		w := send(s, request(s, path+"?"+query))
		if w.Code != http.StatusOK && path != "/api/explain" || strings.ContainsAny(w.Body.String(), "<>") || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v %.300s", path, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
	}
	b := get[struct{ Rows []struct{ Pod string } }](t, s, "/api/book?"+query+"&at="+fmt.Sprint(recordings.Noon.Add(time.Minute).UnixMilli()))
	if b.Rows[0].Pod != "shop/"+pod && b.Rows[1].Pod != "shop/"+pod {
		t.Errorf("rows %+v", b.Rows)
	}
	w := send(s, request(s, "/api/node?node="+url.QueryEscape("<b>")))
	if w.Code != http.StatusNotFound || strings.Contains(w.Body.String(), "<") {
		t.Errorf("a node that there is not: %d %s", w.Code, w.Body)
	}
}

// TestEndsWithItsContext: the server listens on the loopback, and ends with its context, also with a request in flight.
func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	address, served := make(chan string, 1), make(chan error, 1)
	go func() {
		served <- Serve(ctx, &slow{release: make(chan struct{})}, View("a/b"), func(url string) { address <- url })
	}()
	at := <-address
	base, fragment, _ := strings.Cut(at, "/#token=")
	if !strings.HasPrefix(base, "http://127.0.0.1:") || len(fragment) < 32 || fragment[32:] != "/node/a%2Fb" {
		t.Fatalf("it serves %s", at)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/cluster", nil)
	must.Succeed(t, err)
	r.Header.Set(tokenHeader, fragment[:32])
	failed := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		failed <- err
	}()
	cancel()
	if err := <-served; err != nil {
		t.Errorf("it ended with %v", err)
	}
	<-failed // answered or cut off, and not left waiting
	if resp, err := http.Get(base); err == nil {
		resp.Body.Close()
		t.Error("it still answers")
	}
}

// TestUnanswerable: what cannot be answered is refused with a sentence and a status.
func TestUnanswerable(t *testing.T) {
	s := serverOf(t, recordings.Saturated(t, "node-1", "cart", 5))
	for path, want := range map[string]string{
		"/api/node":                                         "400 the request names no node",
		"/api/node?node=node-2":                             `404 not found: node "node-2"; the file is of node node-1`,
		"/api/node?node=node-1&after=x":                     `400 after="x": want milliseconds since 1970`,
		"/api/book?node=node-1&at=noon":                     `400 at="noon": want milliseconds`,
		"/api/pod?node=node-1&pod=shop/none":                `404 not found: pod "shop/none" is not in the recording of node node-1`,
		"/api/explain?node=node-1&pod=shop/cart":            "404 ",
		"/api/what-if?node=node-1&reserve=plenty":           `400 reserve="plenty": want a number`,
		"/api/what-if?node=node-1&reserve=1":                "400 ",
		"/api/what-if?node=node-1&reserve=NaN":              "400 ",
		"/api/node?node=node-1&after=999999999999999999999": "400 ",
	} {
		w := send(s, request(s, path))
		var got struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Error == "" || !strings.HasPrefix(fmt.Sprint(w.Code, " ", got.Error), want) {
			t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, want)
		}
	}
	if _, err := figures.File(&record.Recording{}); err == nil {
		t.Error("a recording without a minute is taken")
	}
}
