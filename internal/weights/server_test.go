//go:build linux

package weights

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/testing/cgroups"
	"github.com/mbcas/mbcas/internal/weights/wire"
)

// served is a server of a node; stop ends it as SIGTERM does.
func served(t *testing.T, n *node, change func(*Server)) (path string, stop func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "w") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(n.keeper(), uint32(os.Getuid()), slog.New(slog.DiscardHandler))
	if change != nil {
		change(s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return path, stop
}

func dial(t *testing.T, path string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c, wire.NewReader(c)
}

// answered is a connection whose first request was answered: the one before may still be ending, and on a busy machine
// AgentTimeout may be over before anything is said.
func answered(t *testing.T, path string, first wire.Request) (c net.Conn, in *bufio.Reader) {
	t.Helper()
	cgroups.Eventually(t, "an answer", func() bool {
		c, in = dial(t, path)
		var reply wire.Reply
		err := wire.Write(c, first)
		if err == nil {
			err = wire.Read(in, &reply)
		}
		if err != nil {
			_ = c.Close()
			return false
		}
		if len(reply.Refused) > 0 || reply.Idle != len(first.Settings) {
			t.Fatalf("reply %+v, want %d idle", reply, len(first.Settings))
		}
		return true
	})
	return c, in
}

// ended says that the other side has ended the connection without an answer.
func ended(r *bufio.Reader) bool {
	_, err := r.ReadByte()
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// TestServer: a request is carried out and answered, and SIGTERM restores.
func TestServer(t *testing.T) {
	n := newNode(t, "v2 systemd")
	dir := n.pod(cgroups.Burstable, 1)
	before := n.files()
	path, stop := served(t, n, nil)
	c, in := dial(t, path)
	for range 2 {
		err := wire.Write(c, request(wire.Setting{UID: uid(1), Idle: true, Weight: 1}, wire.Setting{UID: uid(2), Weight: 1}))
		var reply wire.Reply
		if err == nil {
			err = wire.Read(in, &reply)
		}
		if err != nil || reply.Idle != 1 || len(reply.Refused) != 1 || reply.Refused[0] != (wire.Refused{UID: uid(2), Why: wire.NotFound}) {
			t.Fatalf("reply %+v, %v: want one idle, one not found", reply, err)
		}
	}
	n.want(dir, idleFile, 1)
	stop()
	if !maps.Equal(n.files(), before) {
		t.Error("values did not come back at the end")
	}
}

func TestWrongPeersAreRefused(t *testing.T) {
	n := newNode(t, "v2 systemd")
	path, _ := served(t, n, func(s *Server) { s.Peer = uint32(os.Getuid()) + 1 })
	if _, in := dial(t, path); !ended(in) {
		t.Error("a process of another user was served")
	}
}

func TestOneClientAtATime(t *testing.T) {
	n := newNode(t, "v2 systemd")
	path, _ := served(t, n, nil)
	c, in := dial(t, path)
	ask := func(c net.Conn, in *bufio.Reader) error {
		if err := wire.Write(c, request()); err != nil {
			return err
		}
		return wire.Read(in, new(wire.Reply))
	}
	if err := ask(c, in); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, in := dial(t, path); !ended(in) {
			t.Fatal("a second client was served")
		}
	}
	if err := ask(c, in); err != nil {
		t.Errorf("the first client was disturbed: %v", err)
	}
	_ = c.Close()
	cgroups.Eventually(t, "a new client", func() bool { c, in := dial(t, path); return ask(c, in) == nil })
}

func TestGarbageEndsTheConnection(t *testing.T) {
	n := newNode(t, "v2 systemd")
	n.pod(cgroups.Burstable, 1)
	before := n.files()
	// What is no request ends the connection at once, and what is not whole when AgentTimeout is over.
	whole, _ := served(t, n, func(s *Server) { s.AgentTimeout = time.Hour })
	cut, _ := served(t, newNode(t, "v2 systemd"), func(s *Server) { s.AgentTimeout = 100 * time.Millisecond })
	many := `{"settings":[` + strings.Repeat(`{"uid":"x","weight":1},`, wire.MaxSettings) + `{"uid":"x","weight":1}]}`
	for name, tc := range map[string]struct{ path, text string }{
		"no JSON":        {whole, "hello\n"},
		"binary":         {whole, "\x00\xff\xfe\n"},
		"unknown field":  {whole, `{"settings":[],"path":"/etc"}` + "\n"},
		"another type":   {whole, `{"settings":[{"uid":1,"weight":1}]}` + "\n"},
		"huge number":    {whole, `{"settings":[{"uid":"` + uid(1) + `","weight":99999999999999999999999}]}` + "\n"},
		"negative":       {whole, `{"settings":[{"uid":"` + uid(1) + `","weight":-1}]}` + "\n"},
		"two in a line":  {whole, `{"settings":[]}{"settings":[]}` + "\n"},
		"too many":       {whole, many + "\n"},
		"too long":       {whole, strings.Repeat(" ", wire.MaxBytes+1)},
		"without an end": {cut, `{"settings":[`},
		"nothing":        {cut, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, in := answered(t, tc.path, request())
			// The server may have ended the connection before it has all of the text.
			_, err := io.WriteString(c, tc.text)
			if err != nil && tc.path == whole && name != "too long" {
				t.Fatal(err)
			}
			if !ended(in) {
				t.Error("the connection goes on")
			}
		})
	}
	if !maps.Equal(n.files(), before) {
		t.Error("garbage changed a file")
	}
}

// TestUnresponsiveAgents: a client that keeps the connection open and says nothing loses it, and its pods are restored.
func TestUnresponsiveAgents(t *testing.T) {
	n := newNode(t, "v2 systemd")
	n.pod(cgroups.Burstable, 1)
	before := n.files()
	path, _ := served(t, n, func(s *Server) { s.AgentTimeout = 300 * time.Millisecond })
	_, in := answered(t, path, request(wire.Setting{UID: uid(1), Idle: true, Weight: 1}))
	if !ended(in) {
		t.Error("an unresponsive client stays connected")
	}
	cgroups.Eventually(t, "restored", func() bool { return maps.Equal(n.files(), before) })
}

func FuzzReadRequest(f *testing.F) {
	f.Add([]byte(`{"settings":[{"uid":"x","idle":true,"weight":1}]}` + "\n"))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		req, err := wire.ReadRequest(wire.NewReader(strings.NewReader(string(text))))
		if err == nil && (len(req.Settings) > wire.MaxSettings || !strings.Contains(string(text), "\n")) {
			t.Errorf("%d settings of %q", len(req.Settings), text)
		}
	})
}
