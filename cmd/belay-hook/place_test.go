package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"belay/internal/config"
	"belay/internal/wire"
	"belay/internal/wire/intake"
	"belay/internal/wire/wiretest"
)

// TestSocketPlacesAreTheDaemons: the copy of the arithmetic is no other arithmetic.
func TestSocketPlacesAreTheDaemons(t *testing.T) {
	for n := 1; n < 200; n++ {
		for _, dir := range []string{"/" + strings.Repeat("a", n), "/" + strings.Repeat("家", n), "/"} {
			got, want := socketPlaces(dir, os.Getuid()), wire.SocketPlaces(dir)
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", dir, got, want)
			}
		}
	}
	if maxPayload != wire.MaxPayload || maxLine != wire.MaxLine || eventDeadline != int64(wire.EventDeadline) ||
		briefDeadline != int64(wire.BriefDeadline) {
		t.Error("a bound or deadline is not that of package wire")
	}
}

// TestD01LongHomes: HOME of 60 to 140 bytes, ASCII and CJK. The client finds the daemon, which takes the first place
// that can be.
func TestD01LongHomes(t *testing.T) {
	base := tempState(t)
	for n := 60; n <= 140; n += 8 {
		for _, letter := range []string{"h", "家"} {
			home := base + "/" + strings.Repeat(letter, (n-len(base)-1)/len(letter))
			home += strings.Repeat("x", n-len(home))
			state := filepath.Join(home, ".local/state/belay")
			if err := os.MkdirAll(state, 0o700); err != nil {
				t.Fatal(err)
			}

			place := wire.SocketPlaces(state)[0]
			if filepath.Dir(place) != state {
				if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
					t.Fatal(err)
				}
				defer os.Remove(filepath.Dir(place)) // goes only when nobody else uses it
			}

			d := serve(t, place, reply(okReply))
			hook(t, "", "p", []string{"HOME=" + home}, "claude-code", "Stop").quiet(t)
			if got := len(d.list()); got != 1 {
				t.Errorf("HOME of %d bytes of %s: got %d events at %s, want 1", len(home), letter, got, place)
			}
		}
	}
}

// TestStateDir holds the copy of the state folder's rule equal to that of the settings, over every kind of value that a
// variable may have.
func TestStateDir(t *testing.T) {
	values := []string{"", "rel", "~", "/", "/s//a/./b/../c/", "/..", "/a é"}
	for _, own := range values {
		for _, xdg := range values {
			for _, home := range values {
				env := []string{"BELAY_STATE_DIR=" + own, "XDG_STATE_HOME=" + xdg, "HOME=" + home}
				c, err := config.Load(config.Options{Env: env})
				if err != nil {
					t.Fatal(err)
				}

				want, err := config.StateDir(
					c.StateDir,
					func(name string) string { return map[string]string{"XDG_STATE_HOME": xdg, "HOME": home}[name] },
				)

				if err != nil {
					want = ""
				}
				if got := stateDir(own, xdg, home); got != want {
					t.Errorf("%q: got %q, want %q", env, got, want)
				}
			}
		}
	}

	if got := stateDir("", "/x", "/h"); got != "/x/belay" {
		t.Errorf("got %q, want XDG_STATE_HOME before HOME", got)
	}
}

func FuzzClean(f *testing.F) {
	for _, p := range []string{"/", "/a/../..", "//a//b/", "/a/./b", "/..a/.b"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if !isAbs(p) {
			return
		}
		if got, want := clean(p), filepath.Clean(p); got != want {
			t.Errorf("%q: got %q, want %q", p, got, want)
		}
	})
}

// TestD13StrangersSocket: a socket that another user could have made gets nothing.
func TestD13StrangersSocket(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	tests := []struct {
		name string
		make func(dir string) *daemon
		want int
	}{
		{"ours", func(dir string) *daemon { return serve(t, sock(dir), reply(okReply)) }, 1},
		{"folder open to others", func(dir string) *daemon {
			must(os.Chmod(dir, 0o777))
			return serve(t, sock(dir), reply(okReply))
		}, 0},
		{"folder open to the group", func(dir string) *daemon {
			must(os.Chmod(dir, 0o710))
			return serve(t, sock(dir), reply(okReply))
		}, 0},
		{"folder of another user", func(dir string) *daemon {
			if os.Getuid() != 0 {
				t.Skip("only root can give a folder away")
			}
			must(os.Chown(dir, 12345, -1))
			return serve(t, sock(dir), reply(okReply))
		}, 0},
		{"socket of another user", func(dir string) *daemon {
			if os.Getuid() != 0 {
				t.Skip("only root can give a socket away")
			}
			d := serve(t, sock(dir), reply(okReply))
			must(os.Chown(sock(dir), 12345, -1))
			return d
		}, 0},
		{"another user listens at a socket of ours", func(dir string) *daemon {
			var ln net.Listener
			must(os.Chmod(dir, 0o777))
			must(os.Chmod(filepath.Dir(dir), 0o711))
			wiretest.As(t, wiretest.Stranger, func() (err error) {
				ln, err = net.Listen("unix", sock(dir))
				return err
			})

			must(os.Chown(sock(dir), os.Getuid(), -1))
			must(os.Chmod(dir, 0o700))
			return serveOn(t, ln, reply(okReply))
		}, 0},
		{"socket is a link", func(dir string) *daemon {
			other := tempState(t)
			must(os.Symlink(sock(other), sock(dir)))
			return serve(t, sock(other), reply(okReply))
		}, 0},
		{"folder is a link", func(dir string) *daemon {
			other := tempState(t)
			must(os.Remove(dir))
			must(os.Symlink(other, dir))
			return serve(t, sock(other), reply(okReply))
		}, 0},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(tempState(t), "s")
			must(os.Mkdir(dir, 0o700))
			d := tt.make(dir)
			f, err := os.Open(os.DevNull)
			must(err)
			defer f.Close()
			hookFrom(t, dir, f, nil, "claude-code", "Stop").quiet(t)
			if got := len(d.list()); got != tt.want {
				t.Errorf("the socket got %d events, want %d", got, tt.want)
			}
		})
	}
}

func TestStaleSocket(t *testing.T) {
	state := tempState(t)
	ln, err := net.Listen("unix", sock(state))
	if err != nil {
		t.Fatal(err)
	}

	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = ln.Close() // as after kill -9: the name stays, nobody is behind it
	file := filepath.Join(state, "took")
	hook(t, state, "p", []string{takeVar + "=" + file}, "claude-code", "Stop").quiet(t)
	intakes(t, file, 1)
}

func TestNamedSocket(t *testing.T) {
	state, other := tempState(t), tempState(t)
	at := filepath.Join(other, "x.sock")
	d := serve(t, at, reply(okReply))
	for _, args := range [][]string{
		{"--socket", at, "claude-code", "Stop"}, {"claude-code", "--unknown", "Stop", "--socket=" + at},
		{"verb", "increment", "--socket", at},
	} {
		hook(t, state, "p", nil, args...).quiet(t)
	}

	if got := len(d.list()); got != 3 {
		t.Errorf("got %d events, want 3", got)
	}

	file := filepath.Join(state, "took")
	none := filepath.Join(other, "none.sock")
	hook(t, state, "p", []string{takeVar + "=" + file}, "--socket", none, "claude-code", "Stop").quiet(t)
	if got := intakes(t, file, 1)[0].Args; !slices.Equal(got, []string{"intake", "--socket", none}) {
		t.Errorf("intake's arguments %q, want the place handed on", got)
	}
}

// TestBelayOnPath: without one beside it, the hook takes the belay of PATH, but none of a relative folder.
func TestBelayOnPath(t *testing.T) {
	state, alone := tempState(t), tempState(t)
	data, err := os.ReadFile(filepath.Join(bin, "belay-hook"))
	if err != nil {
		t.Fatal(err)
	}

	exe := filepath.Join(alone, "belay-hook")
	if err := os.WriteFile(exe, data, 0o700); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]int{"/nowhere::" + bin: 1, ".:": 0} {
		file := filepath.Join(state, "took")
		cmd := exec.Command(exe, "claude-code", "Stop")
		cmd.Dir = bin
		cmd.Env = []string{"PATH=" + path, "BELAY_STATE_DIR=" + state, "BELAY_DEBUG=1", takeVar + "=" + file}
		var errs strings.Builder
		cmd.Stderr = &errs
		if err := cmd.Run(); err != nil {
			t.Errorf("PATH %q: %v", path, err)
		}
		if started := !strings.Contains(errs.String(), "start belay intake"); started != (want == 1) {
			t.Errorf("PATH %q: got started %v, want %v: %s", path, started, want == 1, errs.String())
		}
		if want == 1 {
			intakes(t, file, 1)
		}
	}
}

// TestS08OwnChildren: a hook inside belay's own child does nothing at all.
func TestS08OwnChildren(t *testing.T) {
	state := tempState(t)
	d := serve(t, sock(state), reply(okReply))
	hook(t, state, "p", []string{"BELAY_INTERNAL=1"}, "claude-code", "SessionStart").quiet(t)
	if got := len(d.list()); got != 0 {
		t.Errorf("got %d events, want none", got)
	}
}

// TestNothingToWorkWith: no arguments, no home, no belay, no folder: exit 0 and silence, and a reason when asked for.
func TestNothingToWorkWith(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}

	defer f.Close()
	alone := filepath.Join(tempState(t), "none")
	for _, args := range [][]string{nil, {"claude-code"}, {"--socket"}, {"verb"}, {"a", "b", "c"}, {"claude-code", "Stop"}} {
		hookFrom(t, "", f, nil, args...).quiet(t)
		hookFrom(t, alone, f, nil, args...).quiet(t)
	}

	r := hookFrom(t, "", f, []string{"BELAY_DEBUG=1"}, "claude-code", "Stop")
	if r.stdout != "" || !strings.HasPrefix(r.stderr, "belay-hook: ") {
		t.Errorf("debug: stdout %q, stderr %q, want the reason on stderr alone", r.stdout, r.stderr)
	}
	if r := hookFrom(t, "", f, nil, "--help"); !strings.Contains(r.stderr, "AGENT EVENT") || r.stdout != "" {
		t.Errorf("help: stdout %q, stderr %q, want it on stderr", r.stdout, r.stderr)
	}
}

// TestEnvironmentRule holds the copy of the rule equal to the intake's.
func TestEnvironmentRule(t *testing.T) {
	vars := []string{
		"HOME=/h",
		"PATH=/bin",
		"ANTHROPIC_API_KEY=k",
		"CODEX_HOME=/c",
		"CLAUDE_CONFIG_DIR=/d",
		"LC_ALL=C",
		"XDG_CONFIG_HOME=/x",
		"BELAY_SESSION=s",
		"BELAY_INTERNAL=0",
		"BELAY_STATE_DIR=/old",
		"BELAY_GATE=1",
		"=odd",
		"none",
		"LD_PRELOAD=/evil.so",
		"LANG=C",
		"OPENCLAW_CONFIG_PATH=/o",
		"DIR=/d",
		"TOKEN_DIRX=t",
	}
	for _, state := range []string{"", "/s"} {
		got, want := intakeEnv(vars, state), intake.Environ(vars, state)
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}

		for _, kv := range got {
			if strings.HasPrefix(kv, "ANTHROPIC") || strings.HasPrefix(kv, "LD_PRELOAD") ||
				kv == "BELAY_STATE_DIR=/old" {
				t.Errorf("%s is kept", kv)
			}
		}
	}
}

// TestPipeForIntake: where there is no file in memory the message goes through a pipe, also when it is larger than one.
func TestPipeForIntake(t *testing.T) {
	msg := []byte(strings.Repeat("0123456789", 30_000))
	r, feed, err := pipeOf()
	if err != nil {
		t.Fatal(err)
	}

	f := os.NewFile(uintptr(r), "pipe")
	done := make(chan int)
	go func() {
		total, buf := 0, make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			total += n
			if err != nil {
				done <- total
				return
			}
		}
	}()

	fill(feed, msg, after(20*briefDeadline))
	if got := <-done; got != len(msg) {
		t.Errorf("got %d bytes, want %d", got, len(msg))
	}

	_ = f.Close()

	r, feed, err = pipeOf()
	if err != nil {
		t.Fatal(err)
	}

	end := after(20 * millisecond)
	fill(feed, msg, end) // nobody reads
	if late := -int64(end) + nanotime(); late > 2*briefDeadline {
		t.Errorf("came back %d ms late, want at the deadline", late/millisecond)
	}

	_ = syscall.Close(r)
}
