// Package wiretest lets a test act as another user: to plant files and sockets, and to knock at belay's own.
package wiretest

import (
	"os"
	"runtime"
	"syscall"
	"testing"
)

// Stranger is a user that tests act as.
const Stranger = 12345

// As runs fn on a thread of another user, whose credentials the kernel shows to the other side of a socket. Only root
// can do that: others skip the test.
func As(t *testing.T, uid int, fn func() error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can act as another user")
	}

	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and nothing else runs as that user

		// The raw calls change this thread alone; those of package syscall would change all.
		for _, call := range []uintptr{syscall.SYS_SETRESGID, syscall.SYS_SETRESUID} {
			if _, _, errno := syscall.RawSyscall(call, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				done <- errno
				return
			}
		}

		done <- fn()
	}()

	if err := <-done; err != nil {
		t.Fatalf("as user %d: %v", uid, err)
	}
}
