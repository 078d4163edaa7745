//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
)

// programVars name the agents' programs: one that is set makes this a run with the real agent.
var programVars = []string{
	claudeVar,
	piVar,
	ohmypiVar,
	droidVar,
	"BELAY_LAB_OPENCLAW",
	"BELAY_LAB_CODEX",
	"BELAY_LAB_GEMINI",
	"BELAY_LAB_OPENCODE",
}

const binVar = "BELAY_LAB_BIN" // belay and belay-hook, built by the outer run

// TestMain runs the tests with the real agent in a network that has loopback alone, when it may make one: then nothing
// of what the agent does can leave the machine. belay is built before, because that may need modules.
func TestMain(m *testing.M) {
	absent := !slices.ContainsFunc(programVars, func(name string) bool { return os.Getenv(name) != "" })
	if absent || os.Getenv(binVar) != "" {
		os.Exit(run(m))
	}

	code, err := outer(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		code = 1
	}

	os.Exit(code)
}

func run(m *testing.M) int {
	if os.Getenv(netVar) != "" {
		if err := loopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, "lab:", err)
			return 1
		}
	}

	code := m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		return 1
	}

	return 0
}

const netVar = "BELAY_LAB_NET"

func outer(m *testing.M) (int, error) {
	bin, err := os.MkdirTemp("", "lab-bin-")
	if err != nil {
		return 1, err
	}

	defer os.RemoveAll(bin)
	build := exec.Command("go", "build", "-o", bin, "belay/cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build belay: %w\n%s", err, out)
	}
	if err := os.Setenv(binVar, bin); err != nil {
		return 1, err
	}

	exe, err := os.Executable()
	if err != nil {
		return 1, err
	}

	runtime.LockOSThread() // the kernel ends inner when this thread ends
	inner := exec.Command(exe, os.Args[1:]...)
	inner.Env = append(os.Environ(), netVar+"=1")
	inner.Stdin, inner.Stdout, inner.Stderr = os.Stdin, os.Stdout, os.Stderr
	inner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err = inner.Start()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC) {
		fmt.Println("lab: no network of its own for the agent (that needs root); it is only told to stay on loopback")
		return run(m), nil
	}
	if err != nil {
		return 1, fmt.Errorf("start the tests in a network of their own: %w", err)
	}

	err = inner.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}

	return 0, err
}

// loopbackUp brings up the one interface of a new network, and refuses a network that has another.
func loopbackUp() error {
	names, err := filepath.Glob("/proc/sys/net/ipv4/conf/*")
	if err != nil {
		return err
	}

	for _, n := range names {
		switch filepath.Base(n) {
		case "all", "default", "lo":
		default:
			return fmt.Errorf("the agent's network has %s", filepath.Base(n))
		}
	}

	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return fmt.Errorf("bring up loopback: %w", err)
	}

	defer syscall.Close(fd)
	var request struct { // struct ifreq
		name  [16]byte
		flags uint16
		_     [22]byte
	}

	copy(request.name[:], "lo")
	request.flags = syscall.IFF_UP | syscall.IFF_RUNNING
	if _, _, e := syscall.Syscall(
		syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request)),
	); e != 0 {
		return fmt.Errorf("bring up loopback: %w", e)
	}

	return nil
}
