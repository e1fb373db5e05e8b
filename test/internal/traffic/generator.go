package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Status is how a request ended.
type Status uint8

const (
	Served   Status = iota
	Failed          // an unsuccessful response, or none
	TimedOut        // no response in time
	Overload        // never sent: too many were in progress
)

// Result is one request.
type Result struct {
	At      time.Duration // intended arrival, from the start
	Late    time.Duration // from the intended arrival to the sending: the generator's own delay
	Latency time.Duration // from the intended arrival to the end of the answer; unserved ones count as Timeout
	Status  Status
}

// Generator sends requests at given times.
type Generator struct {
	// Send does one request.
	Send func(context.Context) error
	// InFlight is how many requests may be in progress. Fewer hide how overloaded a service
	// is; more cost memory and connections.
	InFlight int
	// Timeout is how long a request may take from its intended arrival.
	Timeout time.Duration
}

// Run sends a request at each arrival, counted from start, and calls done with each result, one at
// a time. It returns when all have ended, or soon after ctx has.
func (g Generator) Run(ctx context.Context, start time.Time, arrivals []time.Duration, done func(Result)) {
	slots := make(chan struct{}, g.InFlight)
	results := make(chan Result, 64)
	var requests, collector sync.WaitGroup
	collector.Go(func() {
		for r := range results {
			done(r)
		}
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
pacing:
	for _, at := range arrivals {
		due := start.Add(at)
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			break pacing
		case <-timer.C:
		}
		select {
		case slots <- struct{}{}:
		default:
			results <- Result{At: at, Late: time.Since(due), Latency: g.Timeout, Status: Overload}
			continue
		}
		requests.Go(func() {
			results <- g.one(ctx, at, due)
			<-slots
		})
	}
	requests.Wait()
	close(results)
	collector.Wait()
}

func (g Generator) one(ctx context.Context, at time.Duration, due time.Time) Result {
	r := Result{At: at, Late: time.Since(due)}
	limit, cancel := context.WithDeadline(ctx, due.Add(g.Timeout))
	defer cancel()
	err := g.Send(limit)
	r.Latency = time.Since(due)
	switch {
	case err == nil:
	case limit.Err() != nil:
		r.Status, r.Latency = TimedOut, g.Timeout
	default:
		// A refusal that comes fast is no fast answer.
		r.Status, r.Latency = Failed, g.Timeout
	}
	return r
}

// NewClient is an HTTP client that keeps its connections and sends no more than it must.
func NewClient(inFlight int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:               nil, // pods are on our own bridge
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConns:        2 * inFlight,
		MaxIdleConnsPerHost: inFlight,
		DisableCompression:  true,
	}}
}

// Get returns what url answers.
func Get(ctx context.Context, client *http.Client, url string) (string, error) {
	return do(ctx, client, http.MethodGet, url, nil)
}

// Put sends a value as JSON to url.
func Put(ctx context.Context, client *http.Client, url string, value any) error {
	body, err := json.Marshal(value)
	if err == nil {
		_, err = do(ctx, client, http.MethodPut, url, body)
	}
	return err
}

func do(ctx context.Context, client *http.Client, method, url string, body []byte) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return string(text), err
}
