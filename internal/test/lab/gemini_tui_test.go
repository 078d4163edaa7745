//go:build linux

package lab

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"belay/checkpoint"
)

// terminal is a program in a terminal of its own: what it prints, and a keyboard.
type terminal struct {
	*agent
	keys *os.File
	mu   struct {
		sync.Mutex
		screen strings.Builder
	}
}

// openTerminal gives both ends of a new terminal.
func openTerminal() (keys, tty *os.File, err error) {
	keys, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}

	var n, unlock uint32
	size := [4]uint16{50, 160}
	for _, call := range []struct {
		request uintptr
		arg     unsafe.Pointer
	}{
		{syscall.TIOCSPTLCK, unsafe.Pointer(&unlock)},
		{syscall.TIOCGPTN, unsafe.Pointer(&n)},
		{syscall.TIOCSWINSZ, unsafe.Pointer(&size)},
	} {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, keys.Fd(), call.request, uintptr(call.arg)); e != 0 {
			return nil, nil, fmt.Errorf("set up a terminal: %w", e)
		}
	}

	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	return keys, tty, err
}

// terminal runs the agent as a person does.
func (h *home) terminal(args ...string) *terminal {
	h.t.Helper()
	keys, tty, err := openTerminal()
	if err != nil {
		h.t.Skip("no terminal to be had: ", err)
	}

	defer tty.Close()
	a := &terminal{agent: &agent{h: h, done: make(chan struct{}), from: len(h.model.Main())}, keys: keys}
	a.cmd = exec.Command(os.Getenv(h.prog.env), args...)
	env := slices.DeleteFunc(h.env(), func(v string) bool { return strings.HasPrefix(v, "TERM=") })
	a.cmd.Dir, a.cmd.Env = h.proj, append(env, "TERM=xterm-256color")
	a.cmd.Stdin, a.cmd.Stdout, a.cmd.Stderr = tty, tty, tty
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := a.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}

	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 32<<10)
		for {
			n, err := keys.Read(buf)
			for ask, answer := range map[string]string{"\x1b[6n": "\x1b[1;1R", "\x1b[c": "\x1b[?62c"} {
				if strings.Contains(string(buf[:n]), ask) {
					_, _ = keys.WriteString(answer) // a terminal that is gone needs no answer
				}
			}

			a.mu.Lock()
			a.mu.screen.Write(buf[:n])
			a.mu.Unlock()
			if err != nil && err != io.EOF {
				return // nobody has the other end open
			}
		}
	}()

	go func() {
		_ = a.cmd.Wait() // the exit code is in ProcessState
		close(a.done)
	}()

	h.t.Cleanup(func() {
		_ = a.cmd.Process.Kill() // it has ended already, except in a case that failed
		<-a.done
		h.killAll() // others may hold the terminal
		<-read
		_ = keys.Close() // read only from here on
		if h.t.Failed() {
			s := a.printed()
			h.t.Logf("the screen ended:\n%q", s[max(0, len(s)-3000):])
		}
	})

	return a
}

func (a *terminal) printed() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.screen.String()
}

// press types keys. The program must have drawn its prompt; a pause keeps it from taking a line's end for pasted text.
func (a *terminal) press(keys ...string) {
	a.h.t.Helper()
	for _, k := range keys {
		if _, err := a.keys.WriteString(k); err != nil {
			a.h.t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond) // a person's fingers
	}
}

// say types a line and waits until it was taken.
func (a *terminal) say(line string, taken func() bool) {
	a.h.t.Helper()
	a.press(line)
	a.enter("the program takes "+line, taken)
}

// enter presses Return and waits for what comes of it. A busy program may take it for a part of pasted text, so it is
// pressed again, but not soon: a program that is slow to empty its prompt would take the line twice.
func (a *terminal) enter(what string, taken func() bool) {
	a.h.t.Helper()
	var pressed time.Time
	a.h.until(what, func() bool {
		if time.Since(pressed) > longWait/6 {
			a.press("\r")
			pressed = time.Now()
		}
		return taken()
	})
}

// quit ends the program as a person does.
func (a *terminal) quit() {
	a.h.t.Helper()
	a.say("/quit", func() bool {
		select {
		case <-a.done:
			return true
		default:
			return false
		}
	})
}

// geminiAtPrompt runs Gemini CLI in a terminal up to its prompt, when so many sessions are known.
func (h *home) geminiAtPrompt(sessions int) *terminal {
	h.t.Helper()
	a := h.terminal("-m", "gemini-2.5-pro", "--approval-mode", "yolo")
	h.until("the prompt is drawn", func() bool { return strings.Contains(a.printed(), "Type your message") })
	h.until("the session starts", func() bool {
		_, err := h.belay("status") // fails until the first hook has started the daemon
		return err == nil && len(h.sessions()) == sessions
	})

	return a
}

// TestGeminiKilledInToolThenTerminal: at the screen the brief is in the first request and stays the only one.
func TestGeminiKilledInToolThenTerminal(t *testing.T) {
	h := newGemini(t)
	a := h.geminiInTool()
	a.signal(syscall.SIGKILL)
	h.died(h.newest())
	h.killTools()
	term := h.geminiAtPrompt(2)
	for _, prompt := range []string{"please go on", "and on"} {
		h.model.Script(Turn{Text: "I look at what was done."})
		from := len(h.model.Main())
		term.say(prompt, func() bool { return len(h.model.Main()) > from })
		geminiToldInDoubt(t, h.model.Main()[from])
		h.until("the round ends", func() bool { return h.status(h.newest()).State == "idle" })
	}

	session := h.newest()
	if st := h.status(session); st.MessageCount != 2 {
		t.Errorf("got %d rounds, want 2: the brief is none", st.MessageCount)
	}

	term.quit()
}

// TestGeminiInTerminal: a person's day at the screen: a turn, a tool broken off by Esc, a new session by /clear, the
// end.
func TestGeminiInTerminal(t *testing.T) {
	h := newGemini(t)
	a := h.geminiAtPrompt(1)
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{geminiShell(quick)}},
		Turn{Text: "The first round is done."},
	)

	a.say("please start the work", func() bool { return h.status(h.newest()).MessageCount == 1 })
	session := h.newest()
	h.model.Script(
		Turn{Text: "Now a long command.", Calls: []Call{geminiShell(slow)}},
		Turn{Text: "The long command is over."},
	)

	a.say("and a long one", func() bool { return exists(h.proj + "/started.flag") })
	a.press("\x1b")
	h.until("the broken off turn is over", func() bool {
		st := h.status(session)
		return st.MessageCount == 2 && len(st.OpenCalls) == 0
	})

	h.oneOfEach(session, map[string]checkpoint.CallState{"echo": checkpoint.CallDone, "touch": checkpoint.CallFailed})
	a.say("/clear", func() bool { return h.status(session).State == "ended" && len(h.sessions()) == 2 })
	a.press("") // the screen is drawn anew
	h.model.Script(Turn{Text: "Another subject it is."})
	a.say("another subject", func() bool { return h.newest() != session && h.status(h.newest()).MessageCount == 1 })
	list := h.model.Main()
	if r := list[len(list)-1]; r.Count(record) != 0 || r.Count("please start the work") != 0 {
		t.Errorf("after /clear: got %d records, want nothing of before\n%s", r.Count(record), said(r))
	}

	a.quit()
	h.until("the end is seen", func() bool { return h.status(h.newest()).State == "ended" })
}
