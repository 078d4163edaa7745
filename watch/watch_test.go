package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// never is a poll interval that no test lives to see: what is noticed, fsnotify noticed.
const never = 24 * time.Hour

const patience = 20 * time.Second

// start runs a Watcher until the test ends.
func start(t *testing.T, opt Options) *Watcher {
	t.Helper()
	w := New(opt)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run: %v, want nil", err)
		}
	})

	t.Cleanup(func() { cancel(); wg.Wait() })
	return w
}

// startReal runs one that has only fsnotify.
func startReal(t *testing.T) *Watcher {
	t.Helper()
	if n, err := newFsnotify(); err != nil {
		t.Skipf("this machine has no fsnotify: %v", err)
	} else if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	return start(t, Options{Poll: never, PollMax: never})
}

func add(t *testing.T, w *Watcher, paths ...string) {
	t.Helper()
	for _, p := range paths {
		w.Add(p)
	}
	want(t, w, paths...) // the mark that says: the watch is in place
}

// want waits until each path has had a mark.
func want(t *testing.T, w *Watcher, paths ...string) {
	t.Helper()
	left := make(map[string]bool)
	for _, p := range paths {
		left[p] = true
	}

	late := time.After(patience)
	for len(left) > 0 {
		select {
		case p := <-w.Changes():
			delete(left, p)
		case <-late:
			t.Fatalf("no mark for %d of %d paths, one is %s", len(left), len(paths), first(left))
		}
	}
}

func first(m map[string]bool) string {
	for p := range m {
		return p
	}
	return ""
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, err)
	must(t, f.Close())
}

// tempDir is a real path: on some systems the temporary folder lies behind a link.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	return dir
}

func TestAppendIsMarked(t *testing.T) {
	dir := tempDir(t)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "1")
	write(t, b, "1")
	w := startReal(t)
	add(t, w, a, b)
	for range 3 {
		appendTo(t, b, "x")
		want(t, w, b)
		appendTo(t, a, "x")
		want(t, w, a)
	}

	if s := w.Status(); s.Paths != 2 || s.Folders != 1 || !s.Notify || len(s.Polled) != 0 {
		t.Errorf("status %+v, want 2 paths in 1 watched folder", s)
	}
}

// An atomic save replaces the file; a watch on the file itself would die with the first.
func TestV05ReplacedByRename(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, dir string) (watched, target string)
	}{
		{"plain", func(t *testing.T, dir string) (string, string) {
			return filepath.Join(dir, "f"), filepath.Join(dir, "f")
		}},
		{"link to the file", func(t *testing.T, dir string) (string, string) {
			must(t, os.MkdirAll(filepath.Join(dir, "far", "away"), 0o700))
			must(t, os.Symlink("far/away/f", filepath.Join(dir, "l")))
			return filepath.Join(dir, "l"), filepath.Join(dir, "far", "away", "f")
		}},
		{"link on the way", func(t *testing.T, dir string) (string, string) {
			must(t, os.MkdirAll(filepath.Join(dir, "v1", "sub"), 0o700))
			must(t, os.Symlink(filepath.Join(dir, "v1"), filepath.Join(dir, "now")))
			return filepath.Join(dir, "now", "sub", "f"), filepath.Join(dir, "v1", "sub", "f")
		}},
		{"link up and down", func(t *testing.T, dir string) (string, string) {
			must(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
			must(t, os.Symlink("../../c", filepath.Join(dir, "a", "b", "l")))
			must(t, os.Mkdir(filepath.Join(dir, "c"), 0o700))
			return filepath.Join(dir, "a", "b", "l", "f"), filepath.Join(dir, "c", "f")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tempDir(t)
			watched, target := c.make(t, dir)
			write(t, target, "old")
			w := startReal(t)
			add(t, w, watched)
			for i := range 3 {
				tmp := target + ".tmp"
				write(t, tmp, fmt.Sprint("new ", i))
				must(t, os.Rename(tmp, target))
				want(t, w, watched)
				appendTo(t, target, "more")
				want(t, w, watched)
			}
		})
	}
}

func TestLinkTurnsElsewhere(t *testing.T) {
	dir := tempDir(t)
	for _, v := range []string{"v1", "v2"} {
		must(t, os.Mkdir(filepath.Join(dir, v), 0o700))
		write(t, filepath.Join(dir, v, "f"), v)
	}

	link := filepath.Join(dir, "now")
	must(t, os.Symlink("v1", link))
	path := filepath.Join(link, "f")
	w := startReal(t)
	add(t, w, path)
	must(t, os.Symlink("v2", link+".tmp"))
	must(t, os.Rename(link+".tmp", link))
	want(t, w, path)
	appendTo(t, filepath.Join(dir, "v2", "f"), "more")
	want(t, w, path)
}

// Folders that appear one in the other, with the file in them, faster than a watch can be added.
func TestV06NestedFoldersAtOnce(t *testing.T) {
	dir := tempDir(t)
	var paths []string
	for i := range 200 {
		paths = append(paths, filepath.Join(dir, fmt.Sprint("y", i), "m", "d", "rollout.jsonl"))
	}

	w := startReal(t)
	add(t, w, paths...)
	for _, p := range paths {
		must(t, os.MkdirAll(filepath.Dir(p), 0o700))
		write(t, p, "{}\n")
	}

	want(t, w, paths...)
	for _, p := range paths {
		appendTo(t, p, "{}\n")
	}

	want(t, w, paths...)
}

func TestFolderRemovedAndMadeAgain(t *testing.T) {
	dir := tempDir(t)
	sub := filepath.Join(dir, "p", "q")
	path := filepath.Join(sub, "f")
	other := filepath.Join(dir, "other") // keeps a watch on the parent's parent
	w := startReal(t)
	add(t, w, path, other)
	for range 3 {
		must(t, os.MkdirAll(sub, 0o700))
		write(t, path, "1")
		want(t, w, path)
		appendTo(t, path, "2")
		want(t, w, path)
		must(t, os.RemoveAll(filepath.Join(dir, "p")))
		want(t, w, path)
	}

	must(t, os.MkdirAll(sub, 0o700))
	write(t, path, "1")
	want(t, w, path)
	must(t, os.Rename(sub, sub+"-old"))
	want(t, w, path)
	must(t, os.Mkdir(sub, 0o700))
	write(t, path, "another")
	want(t, w, path)
}

// The caller is busy: nothing is lost, nothing piles up, and the watcher goes on.
func TestSlowCaller(t *testing.T) {
	dir := tempDir(t)
	paths := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")}
	w := startReal(t)
	add(t, w, paths...)
	before := w.Status().Wakeups
	for range 300 {
		for _, p := range paths {
			appendTo(t, p, "x")
		}
	}

	for deadline := time.Now().Add(patience); w.Status().Wakeups < before+100; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) { // it takes events without a reader
			t.Fatalf("%d turns while nobody read, want 100", w.Status().Wakeups-before)
		}
	}

	want(t, w, paths...)
	for _, p := range paths {
		appendTo(t, p, "last")
	}

	want(t, w, paths...)
}

func TestManyCallers(t *testing.T) {
	dir := tempDir(t)
	w := start(t, Options{Poll: time.Millisecond})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				p := filepath.Join(dir, fmt.Sprint(g, "-", i))
				w.Add(p)
				w.Active(p, true)
				_ = w.Status()
				if i != 49 {
					w.Active(p, false)
					w.Remove(p)
				}
			}
		})
	}

	wg.Wait()
	var last []string
	for g := range 8 {
		last = append(last, filepath.Join(dir, fmt.Sprint(g, "-49")))
	}

	want(t, w, last...)
	if s := w.Status(); s.Paths != 8 || s.Active != 8 {
		t.Errorf("%d paths, %d active; want 8, 8", s.Paths, s.Active)
	}
}

func TestRunEndsWithClosedChannel(t *testing.T) {
	w := New(Options{})
	w.Add("/nowhere/at/all")
	w.Active("/nowhere/at/all", true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); err != nil {
		t.Errorf("Run: %v, want nil", err)
	}

	for range w.Changes() { // ends, because it is closed
	}
}

// BenchmarkPoll is one look at 10,000 paths in 100 folders.
func BenchmarkPoll(b *testing.B) {
	dir := b.TempDir()
	w := New(Options{NotifyOff: true})
	l := newLoop(w)
	now := time.Now()
	for i := range 10_000 {
		sub := filepath.Join(dir, fmt.Sprint(i%100))
		path := filepath.Join(sub, fmt.Sprint(i))
		if err := errors.Join(os.MkdirAll(sub, 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
			b.Fatal(err)
		}
		l.obey([]command{{verbAdd, path}, {verbActive, path}}, now)
	}

	now = now.Add(time.Minute)
	for {
		if _, ok := l.head(now); !ok {
			break
		}
		l.sent()
	}

	for b.Loop() {
		now = now.Add(time.Minute)
		l.pollDue(now)
	}

	if len(l.marks.queue) != 0 {
		b.Errorf("%d marks, want none", len(l.marks.queue))
	}
}
