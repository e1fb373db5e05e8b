package client

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// answers gives a protocol's one request these bytes to read.
func answers(text string) *bufio.ReadWriter {
	return bufio.NewReadWriter(bufio.NewReader(strings.NewReader(text)), bufio.NewWriter(new(strings.Builder)))
}

// message is one of PostgreSQL.
func message(kind byte, body string) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))) + body
}

func TestErrorsAreErrors(t *testing.T) {
	ten := "*10\r\n" + strings.Repeat("$3\r\n123\r\n", 10)
	start := message('R', "\x00\x00\x00\x00") + message('S', "a\x00b\x00") + message('Z', "I")
	query := func(rw *bufio.ReadWriter) error { return queryPostgres(rw, 5) }
	list := func(rw *bufio.ReadWriter) error { return sortList(rw, 0) }
	for name, tt := range map[string]struct {
		do     func(*bufio.ReadWriter) error
		answer string
		want   string // "": no error
	}{
		"redis":             {list, ten, ""},
		"redis, short":      {list, ten[:20], "EOF"},
		"redis, error":      {list, "-ERR unknown command\r\n", "ERR unknown"},
		"redis, empty":      {list, "*0\r\n", "want 10"},
		"redis, negative":   {list, "*-1\r\n", "length"},
		"postgres":          {query, message('C', "UPDATE 1\x00") + message('D', "row") + message('Z', "I"), ""},
		"postgres, error":   {query, message('E', "Mno such table\x00") + message('Z', "I"), "no such table"},
		"postgres, cut off": {query, message('C', "UPDATE 1\x00"), "EOF"},
		"postgres, length":  {query, "Z\x00\x00\x00\x00", "bytes"},
		"session":           {startPostgres, start, ""},
		"session, password": {startPostgres, message('R', "\x00\x00\x00\x05"), "password"},
	} {
		err := tt.do(answers(tt.answer))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
}

func TestConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var accepted atomic.Int32
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			go func() { // echoes
				defer conn.Close()
				for r := bufio.NewReader(conn); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					conn.Write([]byte(line))
				}
			}()
		}
	}()
	fail := errors.New("it failed")
	begin := func(*bufio.ReadWriter) error { return nil }
	p := newPool(l.Addr().(*net.TCPAddr).Port, begin, func(rw *bufio.ReadWriter, n int) error {
		rw.WriteString("x\n")
		rw.Flush()
		if _, err := rw.ReadString('\n'); err != nil || n == 0 {
			return errors.Join(err, fail)
		}
		return nil
	})
	defer p.close()
	for i, tt := range []struct {
		number, accepted int
		err              error
	}{{1, 1, nil}, {2, 1, nil}, {0, 1, fail}, {3, 2, nil}} {
		err := p.send(t.Context(), "127.0.0.1", tt.number)
		if !errors.Is(err, tt.err) || int(accepted.Load()) != tt.accepted {
			t.Errorf("request %d: %v on connection %d, want %v on %d", i, err, accepted.Load(), tt.err, tt.accepted)
		}
	}
	for range connections {
		p.slots <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := p.send(ctx, "127.0.0.1", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a free connection: %v, want the end of its time", err)
	}
}

func TestEveryServiceHasAClient(t *testing.T) {
	for _, kind := range []string{"web", "nginx", "redis", "postgres"} {
		send, stop, err := New(kind)
		if err != nil || send == nil || stop == nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, _, err := New("xz"); err == nil {
		t.Error("a batch job has no client")
	}
}
