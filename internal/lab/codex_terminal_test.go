//go:build linux

package lab

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"belay/checkpoint"
)

// codexScreen is Codex's own terminal program on a terminal that nobody sees.
type codexScreen struct {
	cmd  *exec.Cmd
	tty  *os.File // the other side of its terminal
	mu   sync.Mutex
	text []byte
	done chan struct{} // closed when the terminal is gone
}

func (h *home) codexTerminal(args ...string) *codexScreen {
	h.t.Helper()
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		h.t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120})
	}
	if err != nil {
		h.t.Fatal(err)
	}
	far, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	defer far.Close()
	s := &codexScreen{cmd: exec.Command(os.Getenv(codexVar), args...), tty: tty, done: make(chan struct{})}
	s.cmd.Dir, s.cmd.Env = h.proj, append(h.env(), "TERM=xterm-256color")
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = far, far, far
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	go s.read()
	h.t.Cleanup(func() {
		h.killAll() // whoever holds the terminal
		_ = s.cmd.Wait()
		_ = s.tty.Close()
		<-s.done
	})
	return s
}

// read keeps what is on the screen and answers what a program asks its terminal.
func (s *codexScreen) read() {
	defer close(s.done)
	for buf := make([]byte, 64<<10); ; {
		n, err := s.tty.Read(buf)
		if err != nil {
			return
		}
		for ask, answer := range map[string]string{"\x1b[6n": "\x1b[1;1R", "\x1b[c": "\x1b[?62c"} {
			if bytes.Contains(buf[:n], []byte(ask)) {
				_, _ = s.tty.WriteString(answer) // a terminal that is gone needs no answer
			}
		}
		s.mu.Lock()
		s.text = append(s.text, buf[:n]...)
		s.mu.Unlock()
	}
}

// TestCodexTerminal: the terminal program is only a view. The session's process is the server behind it: closing the
// terminal ends nothing, the server's death ends the session.
func TestCodexTerminal(t *testing.T) {
	h := newCodex(t)
	h.write(".codex/hooks.json", "{}\n") // else the program asks about the user's own hook
	if _, err := h.belay("install", "codex"); err != nil {
		t.Fatal(err)
	}
	h.codexTrust()
	h.model.Script(Turn{Text: "Now a long command.", Calls: []Call{codexExec(slow)}}, Turn{Text: "The long command is over."})
	s := h.codexTerminal("please start the work")
	for end := time.Now().Add(longWait); !exists(h.proj + "/started.flag"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.mu.Lock()
			t.Fatalf("the long command does not start; the screen ends:\n%q", s.text[max(0, len(s.text)-3000):])
		}
	}
	session := h.newest()
	s.kill(h, "\x00please start the work\x00")
	if st := h.status(session); st.State != "at work" || len(st.OpenCalls) != 1 {
		t.Errorf("after the terminal program's death: got %s, open %v, want at work with the long command", st.State, st.OpenCalls)
	}
	s.kill(h, "\x00app-server\x00--listen\x00")
	h.died(session)
	if got := h.calls(session)["touch"]; got != checkpoint.CallDoubt {
		t.Errorf("the long command: got %q, want in doubt", got)
	}
	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	toldInDoubt(t, h.run("please go on"))
}

// kill ends the native program whose command line holds a text.
func (s *codexScreen) kill(h *home, text string) {
	h.t.Helper()
	for _, pid := range h.processes() {
		cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || bytes.HasPrefix(cmd, []byte("node")) || !bytes.Contains(cmd, []byte(text)) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			h.t.Fatal(err)
		}
		h.until("it is gone", func() bool { return !slices.Contains(h.processes(), pid) })
		return
	}
	h.t.Fatalf("no process with %q", text)
}
