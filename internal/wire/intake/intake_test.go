package intake

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"belay/internal/state/spool"
	"belay/internal/vfs"
	"belay/internal/wire"
)

// fake is a daemon inside the test.
type fake struct {
	mu     sync.Mutex
	events []got
}

type got struct {
	req     wire.Request
	payload string
}

// serve answers on ln until the test ends: a fixed reply, or none when it is empty.
func serve(t *testing.T, ln net.Listener, reply string) *fake {
	t.Helper()
	f := &fake{}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}

			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			wg.Go(func() {
				defer conn.Close()
				f.talk(conn, reply)
			})
		}
	})

	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})

	return f
}

func (f *fake) talk(conn net.Conn, reply string) {
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}

		var g got
		if json.Unmarshal(line, &g.req) != nil {
			return
		}

		buf := make([]byte, g.req.Len)
		if _, err := io.ReadFull(r, buf); err != nil {
			return
		}

		g.payload = string(buf)
		f.mu.Lock()
		f.events = append(f.events, g)
		f.mu.Unlock()
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

func (f *fake) list() []got {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]got(nil), f.events...)
}

// stateDir is a short private folder: t.TempDir is too long for a socket with some test names.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func listen(t *testing.T, dir string) net.Listener {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(dir, "belay.sock"))
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func event(id, payload string) io.Reader {
	return strings.NewReader(fmt.Sprintf(
		`{"v":1,"op":"hook","agent":"claude-code","event":"Stop","id":%q,"pid":7,"workspace":"/w","len":%d}`+"\n%s",
		id, len(payload), payload))
}

func redact(_, _ string, p []byte) []byte {
	return bytes.ReplaceAll(p, []byte("secret"), []byte("[gone]"))
}

var errNoStart = errors.New("cannot start")

func options(dir string) Options {
	return Options{StateDir: dir, Redact: redact, StartDaemon: func() error { return errNoStart }}
}

// spooled gives what lies in the spool.
func spooled(t *testing.T, dir string) (list []got) {
	t.Helper()
	_, err := spool.Drain(context.Background(), vfs.OS{}, filepath.Join(dir, "spool"), func(h, p []byte) error {
		var g got
		g.payload = string(p)
		list = append(list, g)
		return json.Unmarshal(h, &list[len(list)-1].req)
	})

	if err != nil {
		t.Errorf("read spool: %v", err)
	}

	return list
}

func wantDropped(t *testing.T, dir string, want int) {
	t.Helper()
	if n, err := spool.Dropped(vfs.OS{}, filepath.Join(dir, "spool")); n != want || err != nil {
		t.Errorf("dropped: got %d, %v, want %d and no error", n, err, want)
	}
}

const okReply = `{"ok":true,"seq":1,"kept":"disk"}` + "\n"

func TestHandsOverWithTheSameID(t *testing.T) {
	dir := stateDir(t)
	f := serve(t, listen(t, dir), `{"ok":true,"seq":1,"len":5}`+"\nbrief")
	before := time.Now().UnixMilli()
	if err := Run(t.Context(), event("id-1", "a secret payload"), options(dir)); err != nil {
		t.Fatal(err)
	}

	events := f.list()
	if len(events) != 1 {
		t.Fatalf("got %d events, want 1", len(events))
	}

	g := events[0]
	if g.req.ID != "id-1" || g.req.Agent != "claude-code" || g.req.Event != "Stop" || g.req.PID != 7 ||
		g.req.Workspace != "/w" || g.req.Cut || g.payload != "a secret payload" {
		t.Errorf("got %+v with %q, want the request as it came", g.req, g.payload)
	}
	if g.req.Spooled < before {
		t.Errorf("spooled: got %d, want a time from %d on: nobody waits for a brief here", g.req.Spooled, before)
	}
	if left := spooled(t, dir); len(left) != 0 {
		t.Errorf("spool: got %d events, want none", len(left))
	}

	wantDropped(t, dir, 0)
}

func TestSpoolsRedactedWhenNoDaemonStarts(t *testing.T) {
	dir := stateDir(t)
	if err := Run(t.Context(), event("id-1", "a secret payload"), options(dir)); !errors.Is(err, errNoStart) {
		t.Errorf("got %v, want the reason of the start", err)
	}

	list := spooled(t, dir)
	if len(list) != 1 || list[0].payload != "a [gone] payload" || list[0].req.ID != "id-1" || list[0].req.Len != 16 {
		t.Errorf("got %+v, want the redacted event with its id and new length", list)
	}

	wantDropped(t, dir, 0)
}

func TestVerbBodyIsRedactedToo(t *testing.T) {
	dir := stateDir(t)
	in := `{"v":1,"op":"verb","event":"increment","id":"v1","body":{"text":"a secret"},"len":0}` + "\n"
	_ = Run(t.Context(), strings.NewReader(in), options(dir)) // the start's reason again
	list := spooled(t, dir)
	if len(list) != 1 || string(list[0].req.Body) != `{"text":"a [gone]"}` {
		t.Errorf("got %+v, want the body without the secret", list)
	}
}

func TestSpoolsWhenTheDaemonHangs(t *testing.T) {
	dir := stateDir(t)
	serve(t, listen(t, dir), "") // takes everything, answers nothing
	opt := options(dir)
	opt.Wait = 100 * time.Millisecond
	opt.StartDaemon = func() error { t.Error("a daemon that hangs was started again"); return nil }
	if err := Run(t.Context(), event("id-1", "p"), opt); err != nil {
		t.Errorf("got %v, want the event spooled", err)
	}
	if n := len(spooled(t, dir)); n != 1 {
		t.Errorf("spool: got %d events, want 1", n)
	}
}

func TestADaemonThatStopsIsNoDaemon(t *testing.T) {
	dir := stateDir(t)
	serve(t, listen(t, dir), `{"ok":false,"code":"stopping"}`+"\n")
	opt := options(dir)
	opt.Wait = 100 * time.Millisecond

	// the one that stops may be gone before the wait is over: then another is started
	opt.StartDaemon = func() error { return nil }
	if err := Run(t.Context(), event("id-1", "p"), opt); err != nil {
		t.Errorf("got %v, want the event spooled", err)
	}
	if n := len(spooled(t, dir)); n != 1 {
		t.Errorf("spool: got %d events, want 1", n)
	}
}

func TestARefusedEventIsNotTriedAgain(t *testing.T) {
	dir := stateDir(t)
	f := serve(t, listen(t, dir), `{"ok":false,"code":"unknown_agent","message":"no such agent"}`+"\n")
	if err := Run(t.Context(), event("id-1", "p"), options(dir)); !errors.Is(err, ErrRefused) {
		t.Errorf("got %v, want ErrRefused", err)
	}
	if n := len(f.list()); n != 1 {
		t.Errorf("tried %d times, want once", n)
	}
	if n := len(spooled(t, dir)); n != 0 {
		t.Errorf("spool: got %d events, want none", n)
	}

	wantDropped(t, dir, 1)
}

func TestEmptiesTheSpoolOfOthers(t *testing.T) {
	dir := stateDir(t)
	for i := range 3 {
		opt := options(dir)
		opt.Wait = 50 * time.Millisecond
		_ = Run(t.Context(), event(fmt.Sprint("old-", i), "p"), opt) // no daemon: spooled
	}

	f := serve(t, listen(t, dir), okReply)
	if err := Run(t.Context(), event("new", "p"), options(dir)); err != nil {
		t.Fatal(err)
	}

	var ids []string
	for _, g := range f.list() {
		ids = append(ids, g.req.ID)
	}

	if want := "new old-0 old-1 old-2"; strings.Join(ids, " ") != want {
		t.Errorf("got %v, want %s", ids, want)
	}
}

func TestWithoutASlotItSpoolsAtOnce(t *testing.T) {
	dir := stateDir(t)
	opt := options(dir)
	opt.Wait = time.Minute // it must not wait
	in := newIntake(opt)
	in.lock = in.lockPrefix()
	for range slots {
		l, ok := in.trySlot("intake")
		if !ok {
			t.Fatal("no slot where eight should be free")
		}
		defer l.Unlock()
	}

	if _, ok := in.trySlot("intake"); ok {
		t.Fatal("a ninth slot")
	}
	if err := Run(t.Context(), event("id-9", "p"), opt); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	if n := len(spooled(t, dir)); n != 1 {
		t.Errorf("spool: got %d events, want 1", n)
	}
	if err := Run(t.Context(), strings.NewReader(""), opt); err != nil {
		t.Errorf("empty stdin: got %v, want no error", err)
	}
}

func TestNothingUnredactedIsKept(t *testing.T) {
	dir := stateDir(t)
	opt := options(dir)
	opt.Redact = nil
	if err := Run(t.Context(), event("id-1", "a secret"), opt); !errors.Is(err, ErrDropped) {
		t.Errorf("got %v, want ErrDropped", err)
	}
	if n := len(spooled(t, dir)); n != 0 {
		t.Errorf("spool: got %d events, want none", n)
	}

	wantDropped(t, dir, 1)
}

// TestStateFolderThatCannotBe: the home is read-only, or a file stands where the folder should be. The intake must end,
// quickly and with a reason, and change nothing.
func TestStateFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(stateDir(t), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	opt := options(filepath.Join(file, "belay"))
	opt.Wait = time.Minute // it must not wait
	err := Run(t.Context(), event("id-1", "p"), opt)
	if !errors.Is(err, ErrDropped) || !errors.Is(err, errNoStart) {
		t.Errorf("got %v, want ErrDropped and the reason of the start", err)
	}
	if data, _ := os.ReadFile(file); string(data) != "x" {
		t.Errorf("the file in the way holds %q, want x", data)
	}

	for _, p := range wire.SocketPlaces(opt.StateDir) { // the locks went beside the short socket
		left, _ := filepath.Glob(strings.TrimSuffix(p, "sock") + "*")
		for _, name := range left {
			_ = os.Remove(name)
		}
	}
}

func TestBrokenRequests(t *testing.T) {
	tests := []struct {
		name, in string
		want     error
		spooled  int // with Cut set
	}{
		{"no line end", `{"v":1`, ErrNoRequest, 0},
		{"no JSON", "hello\n", ErrNoRequest, 0},
		{"negative length", `{"v":1,"len":-1}` + "\n", ErrNoRequest, 0},
		{"length over the bound", `{"v":1,"len":99999999999}` + "\n", ErrNoRequest, 0},
		{"line over the bound", strings.Repeat("x", wire.MaxLine+1), ErrLineSize, 0},
		{"payload cut off", `{"v":1,"id":"a","len":100}` + "\nhalf", errNoStart, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := stateDir(t)
			if err := Run(t.Context(), strings.NewReader(tt.in), options(dir)); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}

			list := spooled(t, dir)
			if len(list) != tt.spooled || tt.spooled == 1 && (!list[0].req.Cut || list[0].payload != "half") {
				t.Errorf("spool: got %+v, want %d", list, tt.spooled)
			}

			wantDropped(t, dir, 1-tt.spooled)
		})
	}
}

// TestD13StrangersSocket: no socket that another user could have made is talked to.
func TestD13StrangersSocket(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, dir string)
	}{
		{"folder open to others", func(t *testing.T, dir string) {
			serve(t, listen(t, dir), okReply)
			chmod(t, dir, 0o777)
		}},
		{"folder open to the group", func(t *testing.T, dir string) {
			serve(t, listen(t, dir), okReply)
			chmod(t, dir, 0o750)
		}},
		{"socket is a link", func(t *testing.T, dir string) {
			other := stateDir(t)
			serve(t, listen(t, other), okReply)
			symlink(t, filepath.Join(other, "belay.sock"), filepath.Join(dir, "belay.sock"))
		}},
		{"folder is a link", func(t *testing.T, dir string) {
			other := stateDir(t)
			serve(t, listen(t, other), okReply)
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			symlink(t, other, dir)
		}},
		{"folder of another user", func(t *testing.T, dir string) {
			if os.Getuid() != 0 {
				t.Skip("only root can give a folder away")
			}
			serve(t, listen(t, dir), okReply)
			if err := os.Chown(dir, 12345, -1); err != nil {
				t.Fatal(err)
			}
		}},
		{"a file", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "belay.sock"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := stateDir(t)
			tt.make(t, dir)
			conn, err := Dial(t.Context(), []string{filepath.Join(dir, "belay.sock")})
			if err == nil {
				_ = conn.Close()
			}
			if !errors.Is(err, wire.ErrUntrusted) {
				t.Errorf("got %v, want wire.ErrUntrusted", err)
			}
		})
	}
}

func chmod(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

func FuzzReadRequest(f *testing.F) {
	f.Add([]byte(`{"v":1,"op":"hook","id":"a","len":2}` + "\nab"))
	f.Add([]byte("\n"))
	f.Add([]byte(`{"v":1,"len":9}` + "\nab"))
	f.Fuzz(func(t *testing.T, data []byte) {
		req, payload, err := readRequest(bytes.NewReader(data))
		if err != nil {
			return
		}
		if req.Len != len(payload) || !bytes.Contains(data, payload) {
			t.Errorf("%q: got length %d and payload %q", data, req.Len, payload)
		}
		if _, err := encode(req.Request); err != nil {
			t.Errorf("%q: %v", data, err)
		}
	})
}
