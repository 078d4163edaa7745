package daemon

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// peerIsUs says whether the other end runs as this user.
func peerIsUs(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	ours := false
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		ours = err == nil && int(cred.Uid) == os.Getuid()
	})
	return err == nil && ours
}
