package securemetrics

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	// remembered is how long what was allowed needs no further question: a right that is taken away lasts that much
	// longer.
	remembered = time.Minute
	// maxRemembered is the number of tokens and verbs that are remembered at most.
	maxRemembered = 64
	// perSecond and burst bound the questions, each of which is two requests to the API server at most.
	perSecond, burst = 5, 10
	// knownFor is how long questions about what was allowed have a bound of their own, againPerSecond and againBurst: a
	// flood of other tokens does not keep a reader out. All that are remembered need about one question per second.
	knownFor                   = time.Hour
	againPerSecond, againBurst = 1, 10
	// patience is the time that the API server has to answer.
	patience = 10 * time.Second
	// maxToken is the length in bytes of the longest token that is worth a question.
	maxToken = 16 << 10
)

// verdict is what the API server says of a request.
type verdict int

const (
	unknownUser verdict = iota
	forbidden
	allowed
)

// asker asks the API server about a token and the verb of its request.
type asker func(ctx context.Context, token, verb, path string) (verdict, error)

// gate lets requests through to a handler that the API server allows. It is safe for concurrent use.
type gate struct {
	ask   asker
	next  http.Handler
	log   logr.Logger
	now   func() time.Time
	limit *rate.Limiter // of questions about what was not allowed before
	again *rate.Limiter // of others
	// allowed has the keys of requests that were allowed and need no question, and known those that were at the last one.
	// They hold no token.
	allowed, known *cache.LRUExpireCache
}

// filter is the gate of a server with the connection of its manager.
func filter(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	r, err := newReviewer(config, client)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return newGate(r.ask, next, log, time.Now), nil
	}, nil
}

func newGate(ask asker, next http.Handler, log logr.Logger, now func() time.Time) *gate {
	return &gate{
		ask: ask, next: next, log: log, now: now,
		limit: rate.NewLimiter(perSecond, burst), again: rate.NewLimiter(againPerSecond, againBurst),
		allowed: cache.NewLRUExpireCacheWithClock(maxRemembered, clock(now)),
		known:   cache.NewLRUExpireCacheWithClock(maxRemembered, clock(now)),
	}
}

type clock func() time.Time

func (c clock) Now() time.Time { return c() }

// ServeHTTP serves an allowed request. Others get an answer that says what is missing.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := bearer(r.Header.Get("Authorization"))
	if token == "" || len(token) > maxToken {
		unauthorized(w, "send the token of an account in the header Authorization: Bearer TOKEN")
		return
	}
	verb := strings.ToLower(r.Method)
	key := sha256.Sum256([]byte(verb + " " + r.URL.Path + " " + token))
	if _, ok := g.allowed.Get(key); ok {
		g.next.ServeHTTP(w, r)
		return
	}
	limit := g.limit
	if _, ok := g.known.Get(key); ok {
		limit = g.again
	}
	if !limit.AllowN(g.now(), 1) {
		http.Error(w, "too many tokens to ask the API server about; try again later", http.StatusTooManyRequests)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	switch v, err := g.ask(ctx, token, verb, r.URL.Path); {
	case err != nil:
		g.log.Error(err, "not served: the API server does not say which client may read metrics")
		http.Error(w, "the API server does not say whether you may read this; see the log of this program",
			http.StatusInternalServerError)
	case v == allowed:
		g.allowed.Add(key, struct{}{}, remembered)
		g.known.Add(key, struct{}{}, knownFor)
		g.next.ServeHTTP(w, r)
	case v == forbidden:
		g.known.Remove(key)
		http.Error(w, "your account needs a ClusterRole with the verb "+verb+" for the nonResourceURL "+r.URL.Path,
			http.StatusForbidden)
	default:
		g.known.Remove(key)
		unauthorized(w, "the API server does not know this token")
	}
}

func unauthorized(w http.ResponseWriter, why string) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, why, http.StatusUnauthorized)
}

// bearer is the token of a header, or "".
func bearer(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
