package flowcontrol

import (
	"errors"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mbcas/mbcas/internal/lifecycle"
)

// Backoffs hold off what failed with an error of the API server, each thing by itself. The wait
// doubles with each failure in a row.
type Backoffs struct {
	jitter func(time.Duration) time.Duration

	mu     sync.Mutex
	failed map[string]failure // by the name of the thing
	pruned time.Time
}

// failure is the last of n in a row.
type failure struct {
	n     int
	until time.Time
	said  string
}

// The first wait, and the longest: after an error that the server or the network may get over, and after a
// refusal, or a change by another controller, which only another object or setting ends. Longer waits
// cost less; shorter ones end sooner after the cause.
const (
	failedFirst = 5 * time.Second
	failedMost  = 30 * time.Second
	refusedMost = 10 * time.Minute
)

func NewBackoffs(jitter func(time.Duration) time.Duration) *Backoffs {
	return &Backoffs{jitter: jitter, failed: map[string]failure{}}
}

// Waits is until when none of the things is to be tried; zero: they may be.
func (b *Backoffs) Waits(now time.Time, things ...string) (until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prune(now)
	for _, thing := range things {
		if f := b.failed[thing]; now.Before(f.until) && f.until.After(until) {
			until = f.until
		}
	}
	return until
}

// prune forgets what is gone: it does not fail again.
func (b *Backoffs) prune(now time.Time) {
	if now.Sub(b.pruned) >= refusedMost {
		maps.DeleteFunc(b.failed, func(_ string, f failure) bool { return now.Sub(f.until) >= refusedMost })
		b.pruned = now
	}
}

// Failed counts a failure, and returns until when the thing waits. news says that it failed
// otherwise than the last time.
func (b *Backoffs) Failed(thing string, err error, now time.Time) (until time.Time, news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prune(now)
	most := failedMost
	var lasting interface{ Lasting() bool } // an error that says whether only another object or setting ends it
	if refusal(err) || errors.As(err, &lasting) && lasting.Lasting() {
		most = refusedMost
	}
	f := b.failed[thing]
	news = f.said != err.Error()
	wait := min(b.jitter(lifecycle.Doubled(failedFirst, most, f.n)), most)
	b.failed[thing] = failure{n: f.n + 1, until: now.Add(wait), said: err.Error()}
	return now.Add(wait), news
}

// Succeeded ends the row of failures of a thing.
func (b *Backoffs) Succeeded(thing string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failed, thing)
}

// refusal says whether the API server refused a request, which it would again.
func refusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case 401, 408, 409, 429:
		return false
	default:
		return code >= 400 && code < 500
	}
}
