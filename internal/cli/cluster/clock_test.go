package cluster

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestServerNow: the time is that of the server whatever this machine's clock says; differences that the header cannot
// tell do not count, nor does an answer without a time.
func TestServerNow(t *testing.T) {
	here := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		header string
		want   time.Duration
	}{
		"ten minutes late":  {here.Add(10 * time.Minute).Format(http.TimeFormat), 10 * time.Minute},
		"ten minutes early": {here.Add(-10 * time.Minute).Format(http.TimeFormat), -10 * time.Minute},
		"within a second":   {here.Add(-time.Second).Format(http.TimeFormat), 0},
		"no header":         {"", 0},
		"no time":           {"now", 0},
	} {
		var clock Clock
		clock.note(c.header, here)
		a := &Access{Now: func() time.Time { return here }, Ahead: clock.Ahead}
		if got := a.ServerNow().Sub(here); got != c.want {
			t.Errorf("%s: the server is ahead by %v, want %v", name, got, c.want)
		}
	}
	if got := (&Access{Now: func() time.Time { return here }}).ServerNow(); !got.Equal(here) {
		t.Errorf("without a clock of the server it is %v, want %v", got, here)
	}
}

// TestClockReadsAnswers: the header is read from the answers of requests.
func TestClockReadsAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
	}))
	defer server.Close()
	var clock Clock
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := clock.Wrap(http.DefaultTransport).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if got := clock.Ahead().Round(time.Minute); got != time.Hour {
		t.Errorf("ahead by %v, want an hour", got)
	}
}
