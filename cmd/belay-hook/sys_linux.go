package main

import (
	"runtime"
	"syscall"
	"unsafe"
)

// Numbers that are younger than package syscall's tables.
const (
	sysCloseRange     = 436 // the same on every architecture
	closeRangeCloexec = 4
	memfdCloexec      = 1
)

func selectFds(n int, r, w *syscall.FdSet, tv *syscall.Timeval) error {
	_, err := syscall.Select(n, r, w, nil, tv)
	return err
}

// workFolder names the current folder with the help of a buffer. syscall.Getwd has its buffer on the stack, which then
// grows.
func workFolder(buf []byte) string {
	n, err := syscall.Getcwd(buf)
	if err != nil || n < 2 || buf[0] != '/' { // "(unreachable)..." is no path
		return ""
	}
	return string(buf[:n-1]) // without the NUL
}

// peerIsOurs asks the kernel who listens on the other side.
func peerIsOurs(fd int) bool {
	cred, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	return err == nil && int(cred.Uid) == syscall.Getuid()
}

// memfd gives a file in memory that holds b, at its start; false where the kernel has none.
func memfd(b []byte) (int, bool) {
	var nr uintptr
	switch runtime.GOARCH {
	case "amd64":
		nr = 319
	case "arm64":
		nr = 279
	default:
		return -1, false
	}

	name := []byte("belay-event\x00")
	fd, _, errno := syscall.Syscall(nr, uintptr(unsafe.Pointer(&name[0])), memfdCloexec, 0)
	if errno != 0 {
		return -1, false
	}

	for off := 0; off < len(b); {
		n, err := syscall.Pwrite(int(fd), b[off:], int64(off)) // leaves the position at 0, where the reader starts
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			_ = syscall.Close(int(fd)) // it holds no whole event: the pipe is tried
			return -1, false
		}

		off += n
	}

	return int(fd), true
}

// closeOnExecAll keeps what the agent left open out of our children; false where the kernel is too old.
func closeOnExecAll() bool {
	_, _, errno := syscall.RawSyscall(sysCloseRange, 3, 1<<32-1, closeRangeCloexec)
	return errno == 0
}
