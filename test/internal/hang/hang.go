//go:build linux

// Package hang makes files whose reads do not end, as where a mount or a disk hangs.
//
// What it promises, each a test of the same name:
//   - ReadsDoNotEnd: a file opens, and a read of it does not end before the file is released.
//   - AgentGoesOn: to the agent's reader, a pod with such a file is blocked, and the others are not.
package hang

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// The parts of the kernel's protocol that are used (include/uapi/linux/fuse.h).
const (
	inHeader, outHeader = 40, 16
	forget              = 2
	getattr             = 3
	open                = 14
	read                = 15
	initialize          = 26
	interrupt           = 36
	batchForget         = 42
	directIO            = 1 // in the flags of an open file: reads are not served from the page cache
)

// bufferSize is the least that the kernel accepts for one request, and some room.
const bufferSize = 1 << 17

// File hides an existing file below one that opens, and whose reads do not end until release is called: then they
// fail, and the file from before is back. It takes root.
func File(path string) (release func() error, err error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/fuse, which takes root: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0,allow_other", fd, unix.S_IFREG|0o444)
	if err := unix.Mount("hang", path, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a file that hangs at %s: %w", path, err), unix.Close(fd))
	}
	served := make(chan error, 1)
	go func() { served <- errors.Join(serve(fd), unix.Close(fd)) }()
	return sync.OnceValue(func() error {
		// With force the kernel fails what waits, and ends serve; the mount may be busy until then.
		_ = unix.Unmount(path, unix.MNT_FORCE)
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount the file that hangs at %s: %w", path, err)
		}
		return <-served
	}), nil
}

// serve answers the kernel until it ends the connection. Reads get no answer.
func serve(fd int) error {
	request := make([]byte, bufferSize)
	for {
		n, err := unix.Read(fd, request)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOENT): // it was withdrawn
			continue
		case errors.Is(err, unix.ENODEV): // unmounted
			return nil
		case err != nil:
			return os.NewSyscallError("read of /dev/fuse", err)
		case n < inHeader:
			return fmt.Errorf("a request of %d bytes from /dev/fuse, want %d or more", n, inHeader)
		}
		answer := reply(request[:n])
		if answer == nil {
			continue
		}
		switch _, err := unix.Write(fd, answer); {
		case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV): // answered, or withdrawn
		default:
			return os.NewSyscallError("write to /dev/fuse", err)
		}
	}
}

// reply is the answer to a request; nil: it gets none.
func reply(request []byte) []byte {
	order := binary.NativeEndian
	var body []byte
	failure := unix.ENOSYS
	switch order.Uint32(request[4:]) {
	case read, forget, batchForget, interrupt:
		return nil
	case initialize:
		body, failure = make([]byte, 64), 0
		order.PutUint32(body, 7)      // major
		order.PutUint32(body[4:], 23) // minor
		order.PutUint32(body[20:], 4096)
	case getattr:
		body, failure = make([]byte, 104), 0
		order.PutUint64(body[16:], 1)                     // inode
		order.PutUint32(body[16+60:], unix.S_IFREG|0o444) // mode
		order.PutUint32(body[16+64:], 1)                  // links
	case open:
		body, failure = make([]byte, 16), 0
		order.PutUint32(body[8:], directIO)
	}
	answer := make([]byte, outHeader, outHeader+len(body))
	order.PutUint32(answer, uint32(outHeader+len(body)))
	order.PutUint32(answer[4:], uint32(-int32(failure)))
	copy(answer[8:], request[8:16]) // unique
	return append(answer, body...)
}
