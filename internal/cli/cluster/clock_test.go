package cluster

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestServerNow: the time is that of the server's last answer whatever this machine's clock says; differences that the
// header cannot tell do not count, nor does an answer without a time.
func TestServerNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := time.Now()
		for name, c := range map[string]struct {
			header string
			want   time.Duration
		}{
			"ten minutes late":  {here.Add(10 * time.Minute).UTC().Format(http.TimeFormat), 10 * time.Minute},
			"ten minutes early": {here.Add(-10 * time.Minute).UTC().Format(http.TimeFormat), -10 * time.Minute},
			"within a second":   {here.Add(-time.Second).UTC().Format(http.TimeFormat), 0},
			"no header":         {"", 0},
			"no time":           {"now", 0},
		} {
			var clock Clock
			answer := clock.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{Header: http.Header{"Date": {c.header}}, Body: http.NoBody}, nil
			}))
			response, err := answer.RoundTrip(nil)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			a := &Access{Now: time.Now, Ahead: clock.Ahead}
			if got := a.ServerNow().Sub(here); got != c.want {
				t.Errorf("%s: the server is ahead by %v, want %v", name, got, c.want)
			}
		}
		if got := (&Access{Now: time.Now}).ServerNow(); !got.Equal(here) {
			t.Errorf("without a clock of the server it is %v, want %v", got, here)
		}
	})
}
