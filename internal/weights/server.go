//go:build linux

package weights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/weights/wire"
)

// Server answers the agent over a Unix socket.
type Server struct {
	// Peer is the user that may connect: the agent's.
	Peer uint32
	// AgentTimeout is wire.AgentTimeout; a test has a shorter one.
	AgentTimeout time.Duration
	Log          *slog.Logger

	mu     sync.Mutex // of keeper
	keeper *Keeper
	client chan struct{} // has room for the one client
}

// NewServer serves a keeper to processes of one user.
func NewServer(k *Keeper, peer uint32, log *slog.Logger) *Server {
	return &Server{Peer: peer, AgentTimeout: wire.AgentTimeout, Log: log, keeper: k, client: make(chan struct{}, 1)}
}

// Listen makes the socket. Its mode lets every user connect, since the program may not give the file to another user;
// the server checks which user it is.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket of an earlier run: %w", err)
	}
	// The socket is made with its mode. A change of the mode by name could hit another file in its place.
	mask := unix.Umask(0o111)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("socket: %w; mount a writable volume of the pod there", err)
	}
	return l, nil
}

// Run serves until ctx ends. Then it restores every pod.
func (s *Server) Run(ctx context.Context, l *net.UnixListener) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { s.watchAgent(ctx) })
	context.AfterFunc(ctx, func() { _ = l.Close() }) // ends Accept
	var err error
	for ctx.Err() == nil {
		var c *net.UnixConn
		if c, err = l.AcceptUnix(); err != nil {
			break
		}
		if why := s.admit(c); why != nil {
			s.Log.Warn("connection refused", "why", why)
			_ = c.Close() // nothing was said
			continue
		}
		running.Go(func() {
			defer func() { <-s.client }()
			s.serve(ctx, c)
		})
	}
	if ctx.Err() != nil {
		err = nil
	}
	stop()
	running.Wait()
	return errors.Join(err, s.keeper.RestoreAll())
}

// watchAgent restores every pod when the agent says nothing.
func (s *Server) watchAgent(ctx context.Context) {
	tick := time.NewTicker(s.AgentTimeout / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.mu.Lock()
			s.keeper.RestoreUnresponsive(now, s.AgentTimeout)
			s.mu.Unlock()
		}
	}
}

// admit refuses a connection of another user, and one beside the client's.
func (s *Server) admit(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("credentials of the peer: %w", err)
	}
	if peer.Uid != s.Peer {
		return fmt.Errorf("it is of user %d: want that of the agent, %d (--peer-uid)", peer.Uid, s.Peer)
	}
	select {
	case s.client <- struct{}{}:
		return nil
	default:
		return errors.New("another client is connected")
	}
}

// serve answers one client until it ends, says nothing for AgentTimeout, or says what is no request.
func (s *Server) serve(ctx context.Context, c *net.UnixConn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	in := wire.NewReader(c)
	for {
		err := c.SetDeadline(time.Now().Add(s.AgentTimeout))
		var req wire.Request
		if err == nil {
			req, err = wire.ReadRequest(in)
		}
		if err == nil {
			err = wire.Write(c, s.apply(req))
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				s.Log.Warn("connection ended", "why", err)
			}
			return
		}
	}
}

func (s *Server) apply(req wire.Request) wire.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keeper.Apply(time.Now(), req)
}
