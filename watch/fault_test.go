package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// fake is a notifier that tells only what a test puts in.
type fake struct {
	events chan fsnotify.Event
	errors chan error
	refuse error

	mu     sync.Mutex
	log    []string
	closed bool
}

func newFake() *fake { return &fake{events: make(chan fsnotify.Event), errors: make(chan error)} }

func (f *fake) Add(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, "+"+filepath.Base(dir))
	return f.refuse
}

func (f *fake) Remove(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, "-"+filepath.Base(dir))
	return nil
}

func (f *fake) calls() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := strings.Join(f.log, " ")
	f.log = nil
	return s
}

func (f *fake) Events() <-chan fsnotify.Event { return f.events }
func (f *fake) Errors() <-chan error          { return f.errors }

func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *fake) open() (Notifier, error) { return f, nil }

// bubble runs a test on fake time. The files are real; only fsnotify's blocking read has no place in it.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func quietly(t *testing.T, w *Watcher) {
	t.Helper()
	synctest.Wait()
	select {
	case p := <-w.Changes():
		t.Errorf("a mark for %s, want none", p)
	default:
	}
}

// No events at all (NFS, SMB, 9p, Docker binds): polling alone finds everything within its interval.
func TestV01PollingAlone(t *testing.T) {
	dir := tempDir(t)
	bubble(t, func(t *testing.T) {
		path := filepath.Join(dir, "later", "f")
		w := start(t, Options{NotifyOff: true, Poll: time.Second})
		add(t, w, path)
		w.Active(path, true)
		for i, change := range []func(){
			func() { must(t, os.Mkdir(filepath.Dir(path), 0o700)); write(t, path, "1") },
			func() { appendTo(t, path, "2") },
			func() { write(t, path+".tmp", "xy"); must(t, os.Rename(path+".tmp", path)) }, // the same size
			func() { write(t, path, "") },
			func() { must(t, os.Chtimes(path, time.Time{}, time.Unix(1, 0))) },
			func() { must(t, os.Remove(path)) },
			func() { write(t, path, "back") },
		} {
			begin := time.Now()
			change()
			want(t, w, path)
			if took := time.Since(begin); took > 1100*time.Millisecond {
				t.Errorf("change %d noticed after %v, want at most the poll interval", i, took)
			}
			quietly(t, w)
		}

		s := w.Status()
		if s.Notify || len(s.Polled) != 1 || s.Polled[0] != filepath.Dir(path) || s.Why == "" {
			t.Errorf("status %+v, want %s as polled, and why", s, filepath.Dir(path))
		}
	})
}

func TestPollIntervalGrowsAndShrinks(t *testing.T) {
	dir := tempDir(t)
	bubble(t, func(t *testing.T) {
		path := filepath.Join(dir, "f")
		write(t, path, "1")
		w := start(t, Options{NotifyOff: true})
		add(t, w, path)

		synctest.Wait()
		before := w.Status().Wakeups
		time.Sleep(10 * time.Hour)
		if got := w.Status().Wakeups - before; got != 0 {
			t.Errorf("%d wake-ups with nothing active, want 0", got)
		}

		appendTo(t, path, "while nobody looked")
		w.Active(path, true)
		want(t, w, path)

		before = w.Status().Wakeups
		time.Sleep(time.Hour)

		// 1, 2, 4, 8, 16 s, then every 30 s.
		if got := w.Status().Wakeups - before; got < 110 || got > 130 {
			t.Errorf("%d wake-ups in an hour of silence, want about 124", got)
		}

		appendTo(t, path, "x")
		begin := time.Now()
		want(t, w, path)
		if took := time.Since(begin); took > 31*time.Second {
			t.Errorf("noticed after %v, want at most 30 s", took)
		}

		appendTo(t, path, "x")
		begin = time.Now()
		want(t, w, path)
		if took := time.Since(begin); took > 1100*time.Millisecond {
			t.Errorf("the next one noticed after %v, want the short interval again", took)
		}

		w.Active(path, false)
		synctest.Wait()
		before = w.Status().Wakeups
		time.Sleep(time.Hour)
		if got := w.Status().Wakeups - before; got > 1 {
			t.Errorf("%d wake-ups after the last active path, want none", got)
		}
	})
}

func TestManyPathsShareWakeups(t *testing.T) {
	dir := tempDir(t)
	bubble(t, func(t *testing.T) {
		w := start(t, Options{NotifyOff: true})
		var paths []string
		for i := range 50 {
			time.Sleep(17 * time.Millisecond)
			paths = append(paths, filepath.Join(dir, fmt.Sprint(i)))
			add(t, w, paths[i])
			w.Active(paths[i], true)
		}

		synctest.Wait()
		before := w.Status().Wakeups
		time.Sleep(time.Minute)
		if got := w.Status().Wakeups - before; got > 60 {
			t.Errorf("%d wake-ups in a minute for 50 paths, want at most one a second", got)
		}
	})
}

// The kernel's limits read like a full disk. Polling goes on, and the one warning names the limit.
func TestV02Limits(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		open   bool // the error comes from NewWatcher
		wanted string
	}{
		{"Add ENOSPC", fmt.Errorf("add: %w", syscall.ENOSPC), false, "fs.inotify.max_user_watches"},
		{"Add EMFILE", syscall.EMFILE, false, "open files"},
		{"NewWatcher EMFILE", os.NewSyscallError("inotify_init1", syscall.EMFILE), true, "fs.inotify.max_user_instances"},
		{"NewWatcher ENOSPC", syscall.ENOSPC, true, "fs.inotify"},
		{"not there at all", errors.ErrUnsupported, true, "unsupported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tempDir(t)
			bubble(t, func(t *testing.T) {
				core, logs := observer.New(zap.WarnLevel)
				refused := newFake()
				refused.refuse = c.err
				w := start(t, Options{Log: zap.New(core), NewWatcher: func() (Notifier, error) {
					if c.open {
						return nil, c.err
					}
					return refused, nil
				}})

				a, b := filepath.Join(dir, "a"), filepath.Join(dir, "sub", "b")
				must(t, os.Mkdir(filepath.Dir(b), 0o700))
				add(t, w, a, b)
				w.Active(a, true)
				w.Active(b, true)
				time.Sleep(10 * time.Minute) // with retries
				write(t, a, "1")
				write(t, b, "1")
				want(t, w, a, b)
				if s := w.Status(); !strings.Contains(s.Why, c.wanted) || len(s.Polled) != 2 {
					t.Errorf("status says %q and polls %q, want 2 folders and %q", s.Why, s.Polled, c.wanted)
				}
				if logs.Len() != 1 || !strings.Contains(fmt.Sprint(logs.All()[0].ContextMap()), c.wanted) {
					t.Errorf("warnings %v, want one with %q", logs.All(), c.wanted)
				}
			})
		})
	}
}

func TestLimitGoesAway(t *testing.T) {
	dir := tempDir(t)
	bubble(t, func(t *testing.T) {
		f := newFake()
		var free atomic.Bool
		w := start(t, Options{NewWatcher: func() (Notifier, error) {
			if !free.Load() {
				return nil, syscall.EMFILE
			}
			return f, nil
		}})

		path := filepath.Join(dir, "f")
		add(t, w, path)
		w.Active(path, true)
		time.Sleep(time.Minute)
		free.Store(true)
		time.Sleep(2 * time.Minute)
		if s := w.Status(); !s.Notify || s.Folders != 1 || s.Why != "" || len(s.Polled) != 0 {
			t.Errorf("status %+v, want events again", s)
		}
	})
}

// After an overflow an unknown set of events is lost.
func TestV03OverflowMarksAll(t *testing.T) {
	dir := tempDir(t)
	bubble(t, func(t *testing.T) {
		f := newFake()
		w := start(t, Options{NewWatcher: f.open})
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		add(t, w, a, b)
		appendTo(t, a, "silent")
		quietly(t, w)
		f.errors <- fsnotify.ErrEventOverflow
		begin := time.Now()
		want(t, w, a, b)
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("marked after %v, want at once", took)
		}
		if s := w.Status(); s.Overflow != 1 || !s.Notify {
			t.Errorf("status %+v, want 1 overflow and the notifier in use", s)
		}
	})
}

// A notifier that breaks is given up, polling goes on, and a new one is tried later.
func TestBrokenNotifier(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(f *fake)
	}{
		{"errors without end", func(f *fake) {
			for range errorsInRow {
				f.errors <- errors.New("read: input/output error")
			}
		}},
		{"events closed", func(f *fake) { close(f.events) }},
		{"errors closed", func(f *fake) { close(f.errors) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tempDir(t)
			bubble(t, func(t *testing.T) {
				fakes := []*fake{newFake(), newFake()}
				opened := 0
				w := start(t, Options{NewWatcher: func() (Notifier, error) { opened++; return fakes[opened-1], nil }})
				path := filepath.Join(dir, "f")
				add(t, w, path)
				w.Active(path, true)
				synctest.Wait()
				c.fail(fakes[0])
				synctest.Wait()
				if s := w.Status(); s.Notify || s.Why == "" || !fakes[0].closed {
					t.Errorf("status %+v, closed %v; want polling, a reason, closed", s, fakes[0].closed)
				}

				for range 2 { // the mark of the error, then the change
					appendTo(t, path, "x")
					want(t, w, path)
				}

				time.Sleep(3 * time.Minute)
				if s := w.Status(); !s.Notify || s.Folders != 1 {
					t.Errorf("status %+v, want the second notifier in use", s)
				}
			})
		})
	}
}

func TestFoldersAreSharedAndReleased(t *testing.T) {
	dir := filepath.Join(tempDir(t), "top")
	must(t, os.Mkdir(dir, 0o700))
	bubble(t, func(t *testing.T) {
		f := newFake()
		w := start(t, Options{NewWatcher: f.open})
		a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "s", "c")
		add(t, w, a, b, c)
		if got := f.calls(); got != "+top" {
			t.Errorf("calls %q, want one watch for three paths", got)
		}

		must(t, os.Mkdir(filepath.Dir(c), 0o700))
		f.events <- fsnotify.Event{Name: filepath.Dir(c), Op: fsnotify.Create}
		synctest.Wait()
		if got := f.calls(); got != "+s" {
			t.Errorf("calls %q, want the new folder watched and the old one kept", got)
		}

		w.Remove(a)
		w.Remove(c)
		synctest.Wait()
		if got := f.calls(); got != "-s" {
			t.Errorf("calls %q, want only what nobody needs released", got)
		}

		w.Remove(b)
		w.Remove(b)
		synctest.Wait()
		if got := f.calls(); got != "-top" {
			t.Errorf("calls %q, want the last one released", got)
		}

		f.events <- fsnotify.Event{Name: a, Op: fsnotify.Write}
		time.Sleep(time.Second)
		quietly(t, w)
		if s := w.Status(); s.Paths != 0 || s.Folders != 0 {
			t.Errorf("status %+v, want nothing left", s)
		}
	})
}

// Nothing tells that a folder further up was renamed: the watch on the old folder would stay for ever.
func TestParentReplacedSilently(t *testing.T) {
	dir := tempDir(t)
	for _, pending := range []bool{false, true} {
		t.Run(fmt.Sprint("mark pending ", pending), func(t *testing.T) {
			top := filepath.Join(dir, fmt.Sprint(pending))
			path := filepath.Join(top, "q", "f")
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			write(t, path, "1")
			bubble(t, func(t *testing.T) {
				f := newFake()
				w := start(t, Options{NewWatcher: f.open})
				add(t, w, path)
				if got := f.calls(); got != "+q" {
					t.Fatalf("calls %q, want +q", got)
				}
				if pending {
					f.events <- fsnotify.Event{Name: path, Op: fsnotify.Write}
				}

				must(t, os.Rename(top, top+"-old"))
				must(t, os.MkdirAll(filepath.Dir(path), 0o700))
				write(t, path, "1")
				w.Active(path, true)
				want(t, w, path)
				if got := f.calls(); got != "-q +q" {
					t.Errorf("calls %q, want the watch moved to the new folder", got)
				}
			})
		})
	}
}

func TestRemoveTakesPendingMark(t *testing.T) {
	dir := tempDir(t)
	bubble(t, func(t *testing.T) {
		w := start(t, Options{NotifyOff: true})
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		w.Add(a)
		time.Sleep(time.Second) // a is offered, nobody takes it
		w.Add(b)
		w.Remove(a)
		w.Remove(b)
		time.Sleep(time.Second)
		quietly(t, w)
	})
}

// A file that always changes is read now and then, not only when it is quiet; a slow reader sees one mark.
func TestStreamOfWrites(t *testing.T) {
	dir := tempDir(t)
	bubble(t, func(t *testing.T) {
		f := newFake()
		w := start(t, Options{NewWatcher: f.open})
		path := filepath.Join(dir, "f")
		add(t, w, path)
		got := 0
		for range 100 { // a second
			f.events <- fsnotify.Event{Name: path, Op: fsnotify.Write}
			time.Sleep(10 * time.Millisecond)
			select {
			case <-w.Changes():
				got++
			default:
			}
		}

		if got < 3 || got > 5 {
			t.Errorf("%d marks in a second of writing, want about 4", got)
		}

		for range 100 {
			f.events <- fsnotify.Event{Name: path, Op: fsnotify.Write}
			time.Sleep(10 * time.Millisecond)
		}

		want(t, w, path)
		time.Sleep(time.Second)
		quietly(t, w)
	})
}

func TestResolve(t *testing.T) {
	dir := tempDir(t)
	must(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	write(t, filepath.Join(dir, "a", "f"), "")
	for link, target := range map[string]string{"loop": "loop", "gone": "nowhere/x", "up": "a/b/../f", "abs": filepath.Join(dir, "a")} {
		must(t, os.Symlink(target, filepath.Join(dir, link)))
	}

	for _, c := range []struct{ path, want string }{
		{"a/f", "a:f"},
		{"a/b", "a:b"},
		{"a/x/y/z", "a:x"},
		{"a/f/under/a/file", "a:f"},
		{"up", ".:up a:f"},
		{"abs/b/new", ".:abs a/b:new"},
		{"gone", ".:gone .:nowhere"},
	} {
		var got []string
		for _, d := range resolve(filepath.Join(dir, c.path)) {
			rel, err := filepath.Rel(dir, d.dir)
			must(t, err)
			got = append(got, rel+":"+d.name)
		}

		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("resolve %s: %s, want %s", c.path, s, c.want)
		}
	}

	if got := len(resolve(filepath.Join(dir, "loop"))); got != maxLinks+1 {
		t.Errorf("a link to itself gives %d names, want %d and an end", got, maxLinks+1)
	}
}
