package wire

import (
	"net"

	"golang.org/x/sys/unix"
)

// PeerUID asks the kernel which user is on the other side of a connection. Both sides ask: a stranger must not be
// talked to.
func PeerUID(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}

	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if cerr != nil {
		return 0, cerr
	}
	if err != nil {
		return 0, err
	}

	return int(cred.Uid), nil
}
