package page

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mbcas/mbcas/internal/page/figures"
	"github.com/mbcas/mbcas/internal/story"
)

// Bounds on what one server does at a time.
const (
	maxRequests = 16
	maxTabs     = 4
	tabEnds     = 30 * time.Second // after its last request
	maxTabID    = 64               // bytes
)

// Headers of the page's requests.
const (
	tokenHeader = "X-Mbcas-Token" //nolint:gosec // the name of a header
	tabHeader   = "X-Mbcas-Tab"
)

// policy is the Content-Security-Policy: nothing but the page's own files and figures.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// web has the page's own files, and dist those that `make page` fetches.
//
//go:embed web all:dist
var embedded embed.FS

// Built says whether `make page` has fetched what the page needs. Without it a page is served that says so.
func Built() bool {
	_, err := fs.Stat(embedded, "dist/lit-html.js")
	return err == nil
}

// server answers the page.
type server struct {
	host, token string
	desk        *figures.Desk
	slots       chan struct{}
	now         func() time.Time

	mu   sync.Mutex
	tabs map[string]time.Time // by their last request
}

func newServer(host string, src figures.Source) *server {
	secret := make([]byte, 16)
	_, _ = rand.Read(secret) // never fails
	return &server{
		host: host, token: hex.EncodeToString(secret), desk: figures.NewDesk(src), slots: make(chan struct{}, maxRequests),
		now: time.Now, tabs: map[string]time.Time{},
	}
}

// Serve listens on a port of this machine's loopback until the context ends. It calls ready with the address of the
// page, whose fragment is the token and the view to begin with; see View.
func Serve(ctx context.Context, src figures.Source, view string, ready func(url string)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen on the loopback: %w", err)
	}
	s := newServer(listener.Addr().String(), src)
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	ready("http://" + s.host + "/#token=" + s.token + view)
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page on %s: %w", s.host, err)
	}
	return nil
}

// View is the view of a node; of the cluster without one.
func View(node string) string {
	if node == "" {
		return "/"
	}
	return "/node/" + url.PathEscape(node)
}

// ServeHTTP refuses what the page itself does not ask, and answers the rest.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if status, why := s.refuses(r); status != 0 {
		if status == http.StatusMethodNotAllowed {
			h.Set("Allow", http.MethodGet)
		}
		fail(w, status, why)
		return
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		h.Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, "too many requests at a time; try again in a second")
		return
	}
	question, known := questionOf(r)
	switch {
	case !known:
		s.serveFile(w, r)
		return
	case question == leave:
		s.leaves(r.Header.Get(tabHeader))
		reply(w, http.StatusOK, struct{}{})
		return
	}
	got, err := s.desk.Answer(r.Context(), question, r.URL.Query())
	if err != nil {
		fail(w, statusOf(err), err.Error())
		return
	}
	reply(w, http.StatusOK, got)
}

// leave is what a tab says that is closed or reloaded.
const leave = "leave"

// questionOf is what a request asks that is not for a file.
func questionOf(r *http.Request) (question string, known bool) {
	question, known = strings.CutPrefix(r.URL.Path, "/api/")
	return question, known && (question == leave || slices.Contains(figures.Questions(), question))
}

// refuses says why a request is not answered; 0: it is.
func (s *server) refuses(r *http.Request) (status int, why string) {
	origin, site := r.Header.Values("Origin"), r.Header.Get("Sec-Fetch-Site")
	question, known := questionOf(r)
	switch {
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, "this server answers GET only: it writes nothing"
	case r.Host != s.host:
		return http.StatusForbidden, "the Host of the request is not the address of this server"
	case len(origin) > 0 && !slices.Equal(origin, []string{"http://" + s.host}),
		site != "" && site != "same-origin" && site != "none":
		return http.StatusForbidden, "the request comes from another site"
	case !known:
		return 0, ""
	case subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(s.token)) != 1:
		return http.StatusUnauthorized, "the request has no valid token; open the address that the terminal shows"
	case question != leave && !s.admits(r.Header.Get(tabHeader)):
		return http.StatusTooManyRequests, fmt.Sprintf("the page is open in %d tabs already; close one, and reload this one", maxTabs)
	}
	return 0, ""
}

// admits says whether a tab is one of the few that are served.
func (s *server) admits(tab string) bool {
	if len(tab) > maxTabID {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for id, last := range s.tabs {
		if now.Sub(last) > tabEnds {
			delete(s.tabs, id)
		}
	}
	if _, known := s.tabs[tab]; !known && len(s.tabs) >= maxTabs {
		return false
	}
	s.tabs[tab] = now
	return true
}

// leaves ends a tab.
func (s *server) leaves(tab string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tabs, tab)
}

// contentTypes are those of the files. The system's table of types is not asked.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".txt": "text/plain; charset=utf-8", ".svg": "image/svg+xml",
}

// serveFile serves a file of the page.
func (s *server) serveFile(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path
	switch {
	case name != "/" && name != "":
	case Built():
		name = "/web/index.html"
	default:
		name = "/web/stub.html"
	}
	kind := contentTypes[path.Ext(name)]
	data, err := fs.ReadFile(embedded, name[1:])
	if err != nil || kind == "" {
		fail(w, http.StatusNotFound, "there is no such file")
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(data) // the browser may have gone
}

// statusOf is the status for an error of the figures.
func statusOf(err error) int {
	var bad figures.BadRequest
	switch {
	case errors.As(err, &bad):
		return http.StatusBadRequest
	case errors.Is(err, figures.ErrUnknown), errors.Is(err, story.ErrNotRecorded):
		return http.StatusNotFound
	}
	return http.StatusBadGateway
}

func fail(w http.ResponseWriter, status int, why string) {
	reply(w, status, map[string]string{"error": why})
}

// reply writes JSON. Characters of HTML are escaped in it, too.
func reply(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":"the figures cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the browser may have gone
}
