package intake

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/internal/wire"
)

// slow is a request whose payload begins with first and goes on in a pipe.
func slow(t *testing.T, first string) (in io.Reader, r, w *os.File) {
	t.Helper()
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil {
		t.Fatal(err)
	}

	r, w = os.NewFile(uintptr(p[0]), "reader"), os.NewFile(uintptr(p[1]), "writer")
	t.Cleanup(func() {
		_ = r.Close()
		_ = w.Close()
	})

	return strings.NewReader(
		fmt.Sprintf(`{"v":1,"op":"hook","agent":"pi","event":"e","id":"a","rest":true,"len":%d}`+"\n%s",
			len(first), first),
	), r, w
}

func TestRest(t *testing.T) {
	tests := []struct {
		name, first, second string
		wait                time.Duration
		closed              bool
		length              int
		cut                 bool
	}{
		{"comes", "one ", "two", time.Minute, true, 7, false},
		{"is nothing", "one", "", time.Minute, true, 3, false},
		{"all of it", "", strings.Repeat("x", 300_000), time.Minute, true, 300_000, false},
		{"has no end", "one ", "two", 50 * time.Millisecond, false, 7, true},
		{"as much as is kept", "1", strings.Repeat("x", wire.MaxPayload-1), time.Minute, true, wire.MaxPayload, false},
		{"more than is kept", "12", strings.Repeat("x", wire.MaxPayload-1), time.Minute, true, wire.MaxPayload, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := stateDir(t)
			f := serve(t, listen(t, dir), okReply)
			in, r, w := slow(t, tt.first)
			written := make(chan error, 1)
			write := func() {
				_, err := io.WriteString(w, tt.second)
				if tt.closed {
					_ = w.Close()
				}
				written <- err
			}

			if tt.closed {
				go write()
			} else {
				write() // before the wait, which is short
			}

			opt := options(dir)
			opt.RestFD, opt.RestWait = int(r.Fd()), tt.wait
			if err := Run(t.Context(), in, opt); err != nil {
				t.Fatal(err)
			}
			if err := <-written; err != nil {
				t.Errorf("writer: %v, want no error because of us", err)
			}

			list := f.list()
			if len(list) != 1 {
				t.Fatalf("got %d events, want 1", len(list))
			}

			want := (tt.first + tt.second)[:tt.length]
			if g := list[0]; g.payload != want || g.req.Cut != tt.cut || g.req.ID != "a" {
				t.Errorf(
					"got %d bytes, cut %v, id %s, want %d, %v, a", len(g.payload), g.req.Cut, g.req.ID,
					tt.length, tt.cut,
				)
			}
		})
	}
}

// TestRestOfAnEndlessWriter: somebody who writes for ever is not listened to for the whole time.
func TestRestOfAnEndlessWriter(t *testing.T) {
	dir := stateDir(t)
	f := serve(t, listen(t, dir), okReply)
	in, r, w := slow(t, "")
	done := make(chan struct{})
	go func() {
		defer close(done)
		piece := make([]byte, 64<<10)
		for {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}()

	opt := options(dir)
	opt.RestFD, opt.RestWait = int(r.Fd()), time.Hour
	if err := Run(t.Context(), in, opt); err != nil {
		t.Fatal(err)
	}

	_ = r.Close() // as the intake's end does
	<-done
	if list := f.list(); len(list) != 1 || !list[0].req.Cut || len(list[0].payload) != wire.MaxPayload {
		t.Errorf("got %d events, want one of 16 MiB, marked cut", len(list))
	}
}

// TestRestFromNowhere: an intake that was started by hand has no pipe, or some other file under its number.
func TestRestFromNowhere(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}

	defer null.Close()
	for _, fd := range []int{int(null.Fd()), 1 << 20} {
		dir := stateDir(t)
		f := serve(t, listen(t, dir), okReply)
		in, _, _ := slow(t, "what came")
		opt := options(dir)
		opt.RestFD, opt.RestWait = fd, time.Hour // it must not wait
		if err := Run(t.Context(), in, opt); err != nil {
			t.Fatal(err)
		}
		if list := f.list(); len(list) != 1 || list[0].payload != "what came" || !list[0].req.Cut {
			t.Errorf("got %+v, want what came, marked cut", list)
		}
	}
}

// TestRestWhenManyWait: eight wait for slow writers already, so the ninth waits only a second.
func TestRestWhenManyWait(t *testing.T) {
	dir := stateDir(t)
	f := serve(t, listen(t, dir), okReply)
	in, r, _ := slow(t, "what came")
	opt := options(dir)
	opt.RestFD, opt.RestWait = int(r.Fd()), time.Hour
	i := newIntake(opt)
	i.lock = i.lockPrefix()
	for range slots {
		l, ok := i.trySlot("rest")
		if !ok {
			t.Fatal("no slot where eight should be free")
		}
		defer l.Unlock()
	}

	if err := Run(t.Context(), in, opt); err != nil {
		t.Fatal(err)
	}
	if list := f.list(); len(list) != 1 || !list[0].req.Cut {
		t.Errorf("got %+v, want what came, marked cut", list)
	}
}

// TestRestAfterAHole: the hook was killed while it filled the intake's stdin; what follows elsewhere does not belong
// there.
func TestRestAfterAHole(t *testing.T) {
	dir := stateDir(t)
	f := serve(t, listen(t, dir), okReply)
	opt := options(dir)
	opt.RestWait = time.Hour // it must not wait
	if err := Run(t.Context(), strings.NewReader(`{"v":1,"id":"a","rest":true,"len":100}`+"\nhalf"), opt); err != nil {
		t.Fatal(err)
	}
	if list := f.list(); len(list) != 1 || list[0].payload != "half" || !list[0].req.Cut {
		t.Errorf("got %+v, want what came, marked cut", list)
	}
}
