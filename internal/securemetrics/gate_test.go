package securemetrics

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// fake is an API server that knows two tokens, and a clock.
type fake struct {
	*gate
	at    time.Time
	asked []string
	fails bool
	// revoked: the reader has its right no more
	revoked bool
}

func newFake() *fake {
	f := &fake{at: time.Unix(1e9, 0)}
	series := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("series 1\n")) })
	f.gate = newGate(f.answer, series, logr.Discard(), func() time.Time { return f.at })
	return f
}

func (f *fake) answer(ctx context.Context, token, verb, path string) (verdict, error) {
	f.asked = append(f.asked, verb+" "+path+" "+token)
	_, bounded := ctx.Deadline()
	switch {
	case f.fails || !bounded:
		return allowed, errors.New("no answer") // the error counts
	case token == "reader" && verb == "get" && path == "/metrics" && !f.revoked:
		return allowed, nil
	case token == "reader" || token == "other":
		return forbidden, nil
	}
	return unknownUser, nil
}

// get makes a request, and returns the status and the body of the answer.
func (f *fake) get(method, path string, authorization ...string) (int, string) {
	r := httptest.NewRequest(method, path, nil)
	for _, a := range authorization {
		r.Header.Add("Authorization", a)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	if (w.Code == http.StatusUnauthorized) != (w.Header().Get("WWW-Authenticate") == "Bearer") {
		return w.Code, "the header WWW-Authenticate is wrong"
	}
	return w.Code, w.Body.String()
}

// TestAnswers: only the token of an account with the right is served, and a question without an answer serves nothing.
func TestAnswers(t *testing.T) {
	long := "Bearer " + strings.Repeat("x", maxToken+1)
	for name, c := range map[string]struct {
		method, path  string
		authorization []string
		fails         bool
		want, asked   int
	}{
		"no header":        {"GET", "/metrics", nil, false, 401, 0},
		"empty":            {"GET", "/metrics", []string{""}, false, 401, 0},
		"no token":         {"GET", "/metrics", []string{"Bearer"}, false, 401, 0},
		"blank token":      {"GET", "/metrics", []string{"Bearer  "}, false, 401, 0},
		"basic":            {"GET", "/metrics", []string{"Basic reader"}, false, 401, 0},
		"no scheme":        {"GET", "/metrics", []string{"reader"}, false, 401, 0},
		"too long":         {"GET", "/metrics", []string{long}, false, 401, 0},
		"unknown":          {"GET", "/metrics", []string{"Bearer nonsense"}, false, 401, 1},
		"two in one":       {"GET", "/metrics", []string{"Bearer nonsense, Bearer reader"}, false, 401, 1},
		"a second header":  {"GET", "/metrics", []string{"Bearer nonsense", "Bearer reader"}, false, 401, 1},
		"without a right":  {"GET", "/metrics", []string{"Bearer other"}, false, 403, 1},
		"another verb":     {"POST", "/metrics", []string{"Bearer reader"}, false, 403, 1},
		"another path":     {"GET", "/metrics/x", []string{"Bearer reader"}, false, 403, 1},
		"reader":           {"GET", "/metrics", []string{"Bearer reader"}, false, 200, 1},
		"small letters":    {"GET", "/metrics", []string{"bearer  reader "}, false, 200, 1},
		"no answer":        {"GET", "/metrics", []string{"Bearer reader"}, true, 500, 1},
		"no answer either": {"GET", "/metrics", []string{"Bearer nonsense"}, true, 500, 1},
	} {
		f := newFake()
		f.fails = c.fails
		code, body := f.get(c.method, c.path, c.authorization...)
		if code != c.want || len(f.asked) != c.asked || (body == "series 1\n") != (c.want == 200) {
			t.Errorf("%s: %d %q after %d questions, want %d after %d", name, code, body, len(f.asked), c.want, c.asked)
		}
	}
}

// TestRemembers: what was allowed is allowed for a minute, to the same token, verb and path only. A refusal and a
// question without an answer are not remembered.
func TestRemembers(t *testing.T) {
	f := newFake()
	ask := func(after time.Duration, method, path, token string, want, asked int) {
		t.Helper()
		f.at, f.asked = f.at.Add(after), nil
		if code, _ := f.get(method, path, "Bearer "+token); code != want || len(f.asked) != asked {
			t.Errorf("%s %s of %s: %d after %v, want %d after %d questions", method, path, token, code, f.asked, want, asked)
		}
	}
	f.fails = true
	ask(0, "GET", "/metrics", "reader", 500, 1)
	f.fails = false
	ask(0, "GET", "/metrics", "reader", 200, 1)
	ask(remembered/2, "GET", "/metrics", "reader", 200, 0)
	ask(0, "POST", "/metrics", "reader", 403, 1)
	ask(0, "GET", "/other", "reader", 403, 1)
	ask(0, "GET", "/metrics", "other", 403, 1)
	ask(0, "GET", "/metrics", "other", 403, 1)
	ask(0, "GET", "/metrics", "reader2", 401, 1)
	f.fails = true // the API server is gone, and the minute is not over
	ask(remembered/2-time.Second, "GET", "/metrics", "reader", 200, 0)
	ask(2*time.Second, "GET", "/metrics", "reader", 500, 1)
}

// TestFlood: one token after the other makes no more questions than the bound, and a reader is still served, also once what
// is remembered of it is over. A reader whose right was taken away has no bound of its own any more.
func TestFlood(t *testing.T) {
	f := newFake()
	if code, _ := f.get("GET", "/metrics", "Bearer reader"); code != 200 {
		t.Fatalf("the reader gets %d", code)
	}
	const seconds = 300
	refused, served := 0, 0
	for i := range seconds * 100 {
		f.at = f.at.Add(10 * time.Millisecond)
		code, _ := f.get("GET", "/metrics", "Bearer "+strings.Repeat("x", i%100+1))
		if code == http.StatusTooManyRequests {
			refused++
		}
		if i%100 == 0 {
			if code, _ := f.get("GET", "/metrics", "Bearer reader"); code == 200 {
				served++
			}
		}
	}
	again := seconds / int(remembered.Seconds())
	if most := 1 + burst + seconds*perSecond + again; len(f.asked) > most || len(f.asked) < most-burst-again {
		t.Errorf("%d questions in %d s, want about %d", len(f.asked), seconds, most)
	}
	readers := 0
	for _, q := range f.asked {
		if strings.HasSuffix(q, " reader") {
			readers++
		}
	}
	if others := len(f.asked) - readers; refused+others != seconds*100 || served != seconds || readers > again+1 {
		t.Errorf("%d requests put off, %d of the reader served of %d, after %d questions", refused, served, seconds, readers)
	}
	f.at = f.at.Add(remembered)
	f.revoked = true
	if code, _ := f.get("GET", "/metrics", "Bearer reader"); code != 403 {
		t.Errorf("a right that was taken away: %d", code)
	}
	for f.limit.AllowN(f.at, 1) { // the flood goes on
		continue
	}
	if code, _ := f.get("GET", "/metrics", "Bearer reader"); code != http.StatusTooManyRequests {
		t.Errorf("the account without a right any more: %d, want to wait as others do", code)
	}
}
