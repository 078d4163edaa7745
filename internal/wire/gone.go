package wire

import (
	"net"

	"golang.org/x/sys/unix"
)

// Gone says that the other side has closed its end: a client that gave up. What it sent can still be read. False when
// that cannot be known.
func Gone(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}

	gone := false
	_ = raw.Control(func(fd uintptr) { // an error: it is closed on our side
		ask := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(ask, 0)
		gone = err == nil && n == 1 && ask[0].Revents&unix.POLLHUP != 0
	})

	return gone
}
