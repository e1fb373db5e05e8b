// Package client speaks to the workloads of the evaluation: one request each, as an open-loop generator sends
// them, and the plans of batch jobs.
//
// Promises:
//   - An answer that is an error is one: TestErrorsAreErrors.
//   - A connection is used again after an answer, and never after a failure: TestConnections.
//   - Requests that wait for a connection end with their time: TestConnections.
package client

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/mbcas/mbcas/test/internal/traffic"
)

// Ports of the workloads, and names in them.
const (
	ControlPort      = 8081
	HTTPPort         = 8080
	PostgresPort     = 5432
	RedisPort        = 6379
	RedisKey         = "board"
	PostgresDatabase = "bench"
)

// Plan is when a batch job works, and on how many threads.
type Plan struct {
	Threads int       `json:"threads"`
	From    time.Time `json:"from"`
	Until   time.Time `json:"until"`
	// Uncounted: its work is for the load alone, and leaves what the plan before it has done.
	Uncounted bool `json:"uncounted,omitempty"`
}

// Done is what a batch job has done of its last plan that counts.
type Done struct {
	From  time.Time `json:"from"`
	Units int       `json:"units"`
	Ended bool      `json:"ended"`
	Error string    `json:"error,omitempty"`
}

// Request is one request of a kind of service to the service at an address; the number chooses among its data.
type Request func(ctx context.Context, address string, number int) error

// inFlight is how many connections of HTTP are kept for the next request. connections bounds those of the others, as
// the pool of an application does: requests beyond it wait, and their latency counts from their arrival all the same.
const (
	inFlight    = 1024
	connections = 64
)

// New is the request of a kind of service, and what closes its connections.
func New(kind string) (Request, func(), error) {
	switch kind {
	case "web":
		return overHTTP("/page?user=%d")
	case "nginx":
		return overHTTP("/page.html?user=%d")
	case "redis":
		p := newPool(RedisPort, func(*bufio.ReadWriter) error { return nil }, sortList)
		return p.send, p.close, nil
	case "postgres":
		p := newPool(PostgresPort, startPostgres, queryPostgres)
		return p.send, p.close, nil
	}
	return nil, nil, fmt.Errorf("no client for a service of kind %q", kind)
}

func overHTTP(path string) (Request, func(), error) {
	c := traffic.NewClient(inFlight)
	send := func(ctx context.Context, address string, number int) error {
		url := "http://" + net.JoinHostPort(address, strconv.Itoa(HTTPPort)) + fmt.Sprintf(path, number%1000)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		req.Header.Set("Accept-Encoding", "gzip")
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		encoding := resp.Header.Get("Content-Encoding")
		if resp.StatusCode != http.StatusOK || encoding != "gzip" {
			return fmt.Errorf("%s: %s, encoded as %q: want 200 and gzip", url, resp.Status, encoding)
		}
		return nil
	}
	return send, c.CloseIdleConnections, nil
}

// pool is connections of a protocol.
type pool struct {
	port  int
	begin func(*bufio.ReadWriter) error
	one   func(rw *bufio.ReadWriter, number int) error
	slots chan struct{}

	mu   sync.Mutex
	idle map[string][]*connection // by address
}

type connection struct {
	net.Conn
	rw *bufio.ReadWriter
}

func newPool(port int, begin func(*bufio.ReadWriter) error, one func(*bufio.ReadWriter, int) error) *pool {
	return &pool{
		port: port, begin: begin, one: one,
		slots: make(chan struct{}, connections), idle: map[string][]*connection{},
	}
}

func (p *pool) send(ctx context.Context, address string, number int) error {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.slots }()
	c, err := p.take(ctx, address)
	if err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if err := p.one(c.rw, number); err != nil {
		c.Close() // what is left of the answer must not be taken for the next one
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle[address] = append(p.idle[address], c)
	return nil
}

func (p *pool) take(ctx context.Context, address string) (*connection, error) {
	p.mu.Lock()
	if n := len(p.idle[address]); n > 0 {
		c := p.idle[address][n-1]
		p.idle[address] = p.idle[address][:n-1]
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(p.port)))
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, rw: bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))}
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	if err == nil {
		err = p.begin(c.rw)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, all := range p.idle {
		for _, c := range all {
			c.Close()
		}
	}
	clear(p.idle)
}
