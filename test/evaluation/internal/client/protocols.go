package client

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// sortList sorts a list of numbers in Redis and reads the first ten, in the protocol of
// https://redis.io/docs/latest/develop/reference/protocol-spec (RESP).
func sortList(rw *bufio.ReadWriter, _ int) error {
	if _, err := fmt.Fprintf(rw, "SORT %s LIMIT 0 10\r\n", RedisKey); err != nil {
		return err
	}
	if err := rw.Flush(); err != nil {
		return err
	}
	count, err := redisLength(rw, '*')
	if err != nil {
		return err
	}
	if count != 10 {
		return fmt.Errorf("redis: SORT answered %d values: want 10", count)
	}
	for range count {
		n, err := redisLength(rw, '$')
		if err != nil {
			return err
		}
		if _, err := rw.Discard(n + len("\r\n")); err != nil {
			return err
		}
	}
	return nil
}

// redisLength reads a line with the length of what follows.
func redisLength(rw *bufio.ReadWriter, kind byte) (int, error) {
	line, err := rw.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("redis: answer %q: want %q", strings.TrimSpace(line), kind)
	}
	n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("redis: answer %q: want a length", strings.TrimSpace(line))
	}
	return n, nil
}

// startPostgres begins a session without a password, in the protocol of
// https://www.postgresql.org/docs/15/protocol-flow.html.
func startPostgres(rw *bufio.ReadWriter) error {
	body := binary.BigEndian.AppendUint32(nil, 3<<16) // version 3.0
	body = append(body, "user\x00postgres\x00database\x00"+PostgresDatabase+"\x00\x00"...)
	if err := writeMessage(rw, 0, body); err != nil {
		return err
	}
	return readAnswer(rw)
}

// queryPostgres changes an account of pgbench and sums others up: one that writes, and one that reads.
func queryPostgres(rw *bufio.ReadWriter, number int) error {
	const accounts, summed = 100_000, 8_000
	from := number % (accounts - summed)
	query := fmt.Sprintf("UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = %d; "+
		"SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN %d AND %d;\x00", from+1, from+1, from+summed)
	if err := writeMessage(rw, 'Q', []byte(query)); err != nil {
		return err
	}
	return readAnswer(rw)
}

// writeMessage writes a message; kind 0 is the first one, which has none.
func writeMessage(rw *bufio.ReadWriter, kind byte, body []byte) error {
	var head []byte
	if kind != 0 {
		head = append(head, kind)
	}
	head = binary.BigEndian.AppendUint32(head, uint32(len(body)+4))
	_, err := rw.Write(append(head, body...))
	return errors.Join(err, rw.Flush())
}

// readAnswer reads messages until the server is ready for the next query.
func readAnswer(rw *bufio.ReadWriter) error {
	for {
		var head [5]byte
		if _, err := io.ReadFull(rw, head[:]); err != nil {
			return err
		}
		length := int(binary.BigEndian.Uint32(head[1:])) - 4
		if length < 0 || length > 1<<20 {
			return fmt.Errorf("postgres: a message of %d bytes", length)
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(rw, body); err != nil {
			return err
		}
		switch head[0] {
		case 'Z':
			return nil
		case 'E':
			return fmt.Errorf("postgres: %s", strings.ReplaceAll(string(body), "\x00", " "))
		case 'R':
			if length < 4 || binary.BigEndian.Uint32(body) != 0 {
				return errors.New("postgres: the server wants a password; it must trust its clients")
			}
		}
	}
}
