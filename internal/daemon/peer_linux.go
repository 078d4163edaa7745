package daemon

import (
	"net"
	"os"
	"syscall"
)

// peerIsUs says whether the other end runs as this user.
func peerIsUs(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	ours := false
	err = raw.Control(func(fd uintptr) {
		cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		ours = err == nil && int(cred.Uid) == os.Getuid()
	})
	return err == nil && ours
}
