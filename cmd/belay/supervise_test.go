package main

import (
	"encoding/xml"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// told gives the next message to systemd.
func told(c *net.UnixConn, within time.Duration) (string, error) {
	buf := make([]byte, 256)
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	n, err := c.Read(buf)
	return string(buf[:n]), err
}

// TestTheDaemonTellsSystemd speaks systemd's part: a socket for the messages, and a watchdog of 300 ms.
func TestTheDaemonTellsSystemd(t *testing.T) {
	h := newHome(t)
	at := filepath.Join(string(h), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}

	defer c.Close() // the test is over
	cmd := exec.Command(filepath.Join(place.bin, "belay"), "daemon")
	cmd.Env = append(h.env(), "NOTIFY_SOCKET="+at, "WATCHDOG_USEC=300000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // ended by then
	want := func(what string) {
		t.Helper()
		if got, err := told(c, 20*time.Second); err != nil || got != what {
			t.Fatalf("got %q, %v, want %s", got, err, what)
		}
	}

	want("READY=1")
	if err := answers(t.Context(), h.state(), 20*time.Second); err != nil {
		t.Errorf("it says it is ready, and does not answer: %v", err)
	}

	want("WATCHDOG=1")
	want("WATCHDOG=1")

	sock := filepath.Join(h.state(), "belay.sock")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil { // and a reload is no end
		t.Fatal(err)
	}

	want("WATCHDOG=1")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	stopped := false
	for !stopped {
		got, err := told(c, 20*time.Second)
		if err != nil || got != "STOPPING=1" && got != "WATCHDOG=1" {
			t.Fatalf("got %q, %v, want STOPPING=1", got, err)
		}
		stopped = got == "STOPPING=1"
	}

	if err := <-ended; err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
	if got, err := told(c, time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after its end: %q, %v, want nothing", got, err)
	}
	if _, err := os.Lstat(sock); err == nil {
		t.Error("its socket is there after its end")
	}
}

// TestAnswersIsWhatClientsGet: the watchdog is fed only when a client is answered.
func TestAnswersIsWhatClientsGet(t *testing.T) {
	h := newHome(t)
	if err := answers(t.Context(), h.state(), time.Second); err == nil {
		t.Error("no daemon: want an error")
	}

	_, _ = h.daemon(t)
	if err := answers(t.Context(), h.state(), 10*time.Second); err != nil {
		t.Errorf("a daemon that works: %v", err)
	}

	stopDaemon(h.state())
	l, err := net.Listen("unix", filepath.Join(h.state(), "belay.sock"))
	if err != nil {
		t.Fatal(err)
	}

	defer l.Close() // nobody is answered
	if err := answers(t.Context(), h.state(), 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one that hangs: got %v, want %v", err, os.ErrDeadlineExceeded)
	}
}

// TestPrintUnit: systemd's own checker accepts the unit, for a state folder of any name.
func TestPrintUnit(t *testing.T) {
	h := newHome(t)
	for _, folder := range []string{h.state(), filepath.Join(string(h), `a b "c" $HOME %h \d`)} {
		unit := h.run(t, "belay", "", "daemon", "--print-unit", "--state-dir", folder)
		for _, part := range []string{"ExecStart=\"" + filepath.Join(place.bin, "belay") + "\" daemon\n", "Type=notify\n", "WatchdogSec=", "NoNewPrivileges=yes\n", "ProtectSystem=strict\n"} {
			if !strings.Contains(unit, part) {
				t.Errorf("no %q in the unit:\n%s", part, unit)
			}
		}

		if _, err := os.Lstat(folder); err == nil {
			t.Error("printing the unit made the state folder")
		}

		checker, err := exec.LookPath("systemd-analyze")
		if err != nil {
			t.Skip("no systemd-analyze here: the unit's form is not checked")
		}

		file := filepath.Join(t.TempDir(), "belay.service")
		if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
			t.Fatal(err)
		}

		cmd := exec.Command(checker, "verify", "--user", file)
		cmd.Env = append(h.env(), "XDG_RUNTIME_DIR="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "belay.service") {
			t.Errorf("systemd-analyze: %v: %s\n%s", err, out, unit)
		}
	}
}

// TestPrintAgent: the property list is XML of the form that launchd reads, for a state folder of any name.
func TestPrintAgent(t *testing.T) {
	h := newHome(t)
	for _, folder := range []string{h.state(), filepath.Join(string(h), "a b <c> & \"d\" 'e' ü")} {
		var list struct {
			Keys    []string `xml:"dict>key"`
			Program []string `xml:"dict>array>string"`
			Inner   []struct {
				Keys   []string `xml:"key"`
				Values []string `xml:"string"`
			} `xml:"dict>dict"`
		}

		text := h.run(t, "belay", "", "daemon", "--print-unit=launchd", "--state-dir", folder)
		if err := xml.Unmarshal([]byte(text), &list); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if want := []string{filepath.Join(place.bin, "belay"), "daemon"}; !slices.Equal(list.Program, want) {
			t.Errorf("it runs %q, want %q", list.Program, want)
		}
		if len(list.Inner) != 2 || !slices.Equal(list.Inner[0].Keys, []string{"BELAY_STATE_DIR"}) ||
			!slices.Equal(list.Inner[0].Values, []string{folder}) {
			t.Errorf("its environment is %+v, want BELAY_STATE_DIR=%s", list.Inner, folder)
		}

		for _, key := range []string{"Label", "RunAtLoad", "KeepAlive", "ThrottleInterval"} {
			if !slices.Contains(list.Keys, key) {
				t.Errorf("no %s in:\n%s", key, text)
			}
		}

		if _, err := os.Lstat(folder); err == nil {
			t.Error("printing it made the state folder")
		}
	}
}
