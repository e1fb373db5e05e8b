//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mbcas/mbcas/test/evaluation/internal/client"
)

// servers serve until ctx ends, by kind. Each calls ready once.
var servers = map[string]func(ctx context.Context, data string, ready func()) error{
	"web":      web,
	"nginx":    nginx,
	"postgres": postgres,
	"redis":    redis,
}

// server is a program that serves at a port.
type server struct {
	port    int
	prepare func() error // once it accepts connections; nil: nothing
	command []string
}

// serve runs the server in the foreground and prepares it, and returns when it ends.
func (s server) serve(ctx context.Context, ready func()) error {
	name := s.command[0]
	cmd := exec.CommandContext(ctx, name, s.command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 2 * time.Second
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w; is its Debian package in the image? see make evaluation", err)
	}
	prepared := make(chan error, 1)
	go func() {
		err := accepts(ctx, s.port)
		if err == nil && s.prepare != nil {
			err = s.prepare()
		}
		if err == nil {
			ready()
		} else {
			_ = cmd.Cancel()
		}
		prepared <- err
	}()
	err := cmd.Wait()
	if ctx.Err() != nil {
		return nil
	}
	select {
	case failed := <-prepared:
		err = errors.Join(failed, err)
	default:
	}
	return fmt.Errorf("%s ended: %w", name, err)
}

// accepts waits until the port accepts connections.
func accepts(ctx context.Context, port int) error {
	for {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

const nginxConfig = `daemon off;
worker_processes 2;
pid %[1]s/nginx.pid;
error_log stderr warn;
events { worker_connections 4096; }
http {
	access_log off;
	client_body_temp_path %[1]s; proxy_temp_path %[1]s;
	fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	types { text/html html; }
	gzip on;
	gzip_comp_level 6;
	keepalive_requests 1000000;
	server { listen %[2]d backlog=4096; root %[1]s/www; }
}
`

// nginx serves a page of 100 KB, which it compresses for each request.
func nginx(ctx context.Context, data string, ready func()) error {
	config := filepath.Join(data, "nginx.conf")
	err := errors.Join(
		os.MkdirAll(filepath.Join(data, "www"), 0o755),
		os.WriteFile(filepath.Join(data, "www", "page.html"), corpus(100<<10), 0o600),
		os.WriteFile(config, fmt.Appendf(nil, nginxConfig, data, client.HTTPPort), 0o600))
	if err != nil {
		return err
	}
	command := []string{"nginx", "-e", "stderr", "-p", data, "-c", config}
	return server{client.HTTPPort, nil, command}.serve(ctx, ready)
}

// redis serves a list of 4000 numbers, which each request sorts. It saves nothing.
func redis(ctx context.Context, data string, ready func()) error {
	fill := func() error {
		rng := rand.New(rand.NewPCG(4, 4))
		var line bytes.Buffer
		line.WriteString("RPUSH " + client.RedisKey)
		for range 4000 {
			fmt.Fprintf(&line, " %d", rng.IntN(1_000_000))
		}
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(client.RedisPort)))
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "%s\r\n", line.Bytes()); err != nil {
			return err
		}
		if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(answer, ":4000") {
			return fmt.Errorf("redis: RPUSH answered %q, %w; want :4000", answer, err)
		}
		return nil
	}
	command := []string{
		"redis-server", "--port", strconv.Itoa(client.RedisPort), "--save", "", "--appendonly", "no",
		"--protected-mode", "no", "--dir", data,
	}
	return server{client.RedisPort, fill, command}.serve(ctx, ready)
}

// postgres serves the tables of pgbench at scale 1, in memory: no figure depends on a disk.
func postgres(ctx context.Context, data string, ready func()) error {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(found) != 1 {
		return fmt.Errorf("postgres: programs in %v, %w: want one version of the Debian package postgresql", found, err)
	}
	bin, db := found[0], filepath.Join(data, "db")
	err = execute(ctx, filepath.Join(bin, "initdb"), "--username=postgres", "--auth=trust", "--no-sync", "--locale=C",
		"--encoding=UTF8", "--pgdata="+db)
	if err != nil {
		return err
	}
	trust := []byte("local all postgres trust\nhost all postgres 0.0.0.0/0 trust\n")
	if err := os.WriteFile(filepath.Join(db, "pg_hba.conf"), trust, 0o600); err != nil {
		return err
	}
	fill := func() error {
		at := []string{"--host=" + data, "--username=postgres"}
		ready := append([]string{"--timeout=60", "--quiet"}, at...)
		for execute(ctx, filepath.Join(bin, "pg_isready"), ready...) != nil { // it accepts before it can answer
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
		}
		create := append(slices.Clone(at), client.PostgresDatabase)
		initialise := append(slices.Clone(at), "--initialize", "--quiet", client.PostgresDatabase)
		return errors.Join(execute(ctx, filepath.Join(bin, "createdb"), create...),
			execute(ctx, filepath.Join(bin, "pgbench"), initialise...))
	}
	command := []string{
		filepath.Join(bin, "postgres"), "-D", db, "-k", data, "-h", "0.0.0.0",
		"-c", "fsync=off", "-c", "max_connections=200",
		"-c", "shared_buffers=64MB", "-c", "autovacuum=off", "-c", "dynamic_shared_memory_type=mmap", "-c", "jit=off",
	}
	return server{client.PostgresPort, fill, command}.serve(ctx, ready)
}
