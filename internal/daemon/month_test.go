package daemon

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"belay/checkpoint"
	"belay/internal/state/check/checktest"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

const (
	sessionsADay = 50
	// of retention.total_bytes: more than the last FULL and the state, less than all that is kept
	budgetOfSession = 60 << 10
	monthSegment    = 1 << 20
)

// TestMonthStaysWithinItsBudget plays 50 sessions a day on a clock of its own, through the real journal, store,
// retention and mirror. After every single operation on the disk the bytes of all sessions are within the budget,
// half-made files included; no session loses its last good FULL, and no SPARSE outlives its FULL.
//
// BELAY_DAYS sets how many days (1; 30 is the long form).
func TestMonthStaysWithinItsBudget(t *testing.T) {
	days := 1
	if _, err := fmt.Sscan(os.Getenv("BELAY_DAYS"), &days); err != nil && os.Getenv("BELAY_DAYS") != "" {
		t.Fatal(err)
	}

	dir, files := tempDir(t), tempDir(t)
	budget := int64(days * sessionsADay * budgetOfSession)
	disk := newLedger(t, dir, budget)
	began := time.Now()
	var taken, most int64
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.WarnLevel)
		opt := testOptions(dir, zap.New(core))
		opt.FS, opt.TotalBytes, opt.SegmentBytes, opt.Notify, opt.WorkTree = disk, budget, monthSegment, false, false
		opt.Gates = checkpoint.Gates{
			SparseTime:   5 * time.Minute,
			SparseRounds: 5,
			FullTime:     5 * time.Minute,
			ForcedTime:   time.Second,
		}

		opt.Retention = checkpoint.Policy{Count: 50, Bytes: 1 << 20, Age: 12 * time.Hour}
		opt.Poll, opt.PollMax = time.Second, 30*time.Second
		d := New(opt)
		l := newLife(d.opt, d.settings, d.times) // sockets do not know the clock: nobody is served
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if _, err := l.open(ctx, ctx, must(l.dir.OpenStore())); err != nil {
			t.Fatal(err)
		}

		var sessions sync.WaitGroup
		for i := range days * sessionsADay {
			sessions.Go(func() {
				time.Sleep(time.Duration(i) * 24 * time.Hour / sessionsADay)
				playDay(t, l, i, files)
			})
		}

		sessions.Wait()
		time.Sleep(time.Hour) // everything is idle, and was put in order
		if n := len(l.sessions.Active()); n != 0 {
			t.Errorf("%d sessions are in memory an hour after the last, want none", n)
		}

		taken = l.counts.Taken.Load()
		served := make(chan struct{})
		close(served)
		if err := l.stop(ctx, func() {}, served); err != nil {
			t.Error(err)
		}

		cancel()
		l.wait.Wait()
		for _, e := range logs.All() {
			t.Errorf("log: %s %v", e.Message, e.ContextMap())
		}
	})

	most = disk.mostKept
	t.Logf(
		"%d sessions in %s: %d checkpoints, %d operations on the disk, at most %d of %d bytes kept, journal at most %d bytes, %d FULLs removed",
		days*sessionsADay, time.Since(began).Round(time.Millisecond), taken, disk.ops, most, budget,
		disk.mostJournal, disk.fullsGone,
	)

	if most < budget*3/4 || disk.fullsGone == 0 {
		t.Errorf(
			"at most %d of %d bytes were kept and %d FULLs went: the budget was never met", most, budget,
			disk.fullsGone,
		)
	}

	wantEverySession(t, dir, days*sessionsADay)
	checktest.Whole(t, dir)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// playDay is one session of a day: ten rounds of 150 s with a tool call in each, and a transcript that grows with them.
func playDay(t *testing.T, l *life, i int, files string) {
	id := fmt.Sprintf("%08d-aaaa-4aaa-8aaa-aaaaaaaaaaaa", i)
	key := checkpoint.NewKey("claude-code", "", id, "")
	path := filepath.Join(files, id+".jsonl")
	tell := func(e checkpoint.Event) {
		e.Key, e.Transcript, e.Workspace, e.ID = key, path, "/proj", fmt.Sprint(id, time.Now().UnixNano(), e.Kind)
		r := l.sessions.Apply(t.Context(), key, e)
		if r.Err == nil {
			_, r.Err = l.Kept(t.Context(), r.Seq)
		}
		if r.Err != nil {
			t.Errorf("%s of session %d: %v", e.Kind, i, r.Err)
		}
	}

	tell(checkpoint.Event{Kind: checkpoint.EventStart, Source: "startup"})
	for n := range 10 {
		prompt, answer := fmt.Sprintf(
			"wish %d of session %d", n, i,
		), fmt.Sprintf(
			"answer %d %s", n, strings.Repeat("and so on ", 200),
		)

		appendLines(t, path, record(id, "user", prompt, 2*n))
		tell(checkpoint.Event{Kind: checkpoint.EventPrompt, Text: prompt, Turn: fmt.Sprint(n)})
		tell(
			checkpoint.Event{
				Kind:  checkpoint.EventToolStart,
				Call:  fmt.Sprint("call", n),
				Name:  "Bash",
				Input: "make",
				Turn:  fmt.Sprint(n),
			},
		)

		time.Sleep(150 * time.Second)
		tell(
			checkpoint.Event{
				Kind:   checkpoint.EventToolEnd,
				Call:   fmt.Sprint("call", n),
				Name:   "Bash",
				Output: "made",
				Turn:   fmt.Sprint(n),
			},
		)

		appendLines(t, path, record(id, "assistant", answer, 2*n+1))
		tell(checkpoint.Event{Kind: checkpoint.EventStop, Text: answer, Turn: fmt.Sprint(n)})
	}

	if i%3 > 0 { // a third of them crash
		tell(checkpoint.Event{Kind: checkpoint.EventEnd, Reason: "exit"})
	}

	time.Sleep(time.Second)
	if err := os.Remove(path); err != nil { // the agent cleans up: what is kept is belay's
		t.Error(err)
	}
}

// wantEverySession wants a FULL that can be read of each.
func wantEverySession(t *testing.T, dir string, want int) {
	t.Helper()
	store := storeOf(t, dir)
	found := 0
	for i := range want {
		key := checkpoint.NewKey("claude-code", "", fmt.Sprintf("%08d-aaaa-4aaa-8aaa-aaaaaaaaaaaa", i), "")
		list, err := store.List(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}

		c, damaged, err := checkpoint.Newest(
			key.Dir(), list, func(n uint64) ([]byte, error) { return store.Get(t.Context(), key, n) },
		)

		if err != nil || damaged > 0 || c == nil {
			t.Errorf("session %d: %d checkpoints, %d damaged, %v", i, len(list), damaged, err)
			continue
		}

		found++
	}

	if found != want {
		t.Errorf("%d sessions have a checkpoint, want %d", found, want)
	}
}

// ledger is a disk that knows how much it holds, holds the rules after every operation, and dates files by the test's
// clock.
type ledger struct {
	vfstest.Quick
	t      *testing.T
	root   string
	budget int64

	mu                    sync.Mutex
	files                 map[string]*entry
	fulls                 map[string]map[string]bool // names of FULLs and SPARSEs by folder
	kept, journal         int64
	mostKept, mostJournal int64
	ops, fullsGone        int
}

// entry is what a ledger knows of a file.
type entry struct {
	name string
	size int64
	mod  time.Time
}

func newLedger(t *testing.T, root string, budget int64) *ledger {
	return &ledger{t: t, root: root, budget: budget, files: map[string]*entry{}, fulls: map[string]map[string]bool{}}
}

// change sets a file's size and looks whether the bounds hold. It is called under the lock.
func (l *ledger) change(e *entry, size int64) {
	by := size - e.size
	e.size, e.mod = size, time.Now()
	rel := strings.TrimPrefix(e.name, l.root+"/")
	switch {
	case strings.HasPrefix(rel, "sessions/"):
		l.kept += by
	case strings.HasPrefix(rel, "journal/"):
		l.journal += by
	}

	l.ops++
	if l.kept > l.budget && l.kept > l.mostKept {
		l.t.Errorf("after %d operations, at %s: %d bytes of sessions, the budget is %d", l.ops, rel, l.kept, l.budget)
	}
	if l.journal > 4*monthSegment && l.journal > l.mostJournal {
		l.t.Errorf("after %d operations: the journal has %d bytes, segments %d", l.ops, l.journal, monthSegment)
	}

	l.mostKept, l.mostJournal = max(l.mostKept, l.kept), max(l.mostJournal, l.journal)
}

func (l *ledger) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := l.Quick.OpenFile(name, flag, perm)
	if err != nil || flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return f, err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.files[name]
	if e == nil {
		e = &entry{name: name}
		l.files[name] = e
	}
	if flag&os.O_TRUNC != 0 {
		l.change(e, 0)
	}

	return &ledgerFile{f, l, e}, nil
}

type ledgerFile struct {
	vfs.File
	l *ledger
	e *entry
}

func (f *ledgerFile) Write(p []byte) (int, error) {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	n, err := f.File.Write(p)
	f.l.change(f.e, must(f.File.Stat()).Size())
	return n, err
}

func (f *ledgerFile) Truncate(size int64) error {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	err := f.File.Truncate(size)
	f.l.change(f.e, must(f.File.Stat()).Size())
	return err
}

func (l *ledger) Rename(from, to string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Quick.Rename(from, to); err != nil {
		return err
	}
	if old := l.files[to]; old != nil {
		l.change(old, 0)
	}

	if e := l.files[from]; e != nil {
		size := e.size
		l.change(e, 0)
		delete(l.files, from)
		e.name = to
		l.files[to] = e
		l.change(e, size)
	}

	if dir := filepath.Dir(to); filepath.Base(dir) == "checkpoints" {
		if l.fulls[dir] == nil {
			l.fulls[dir] = map[string]bool{}
		}
		l.fulls[dir][filepath.Base(to)] = true
	}

	return nil
}

func (l *ledger) Remove(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Quick.Remove(name); err != nil {
		return err
	}
	if e := l.files[name]; e != nil {
		l.change(e, 0)
		delete(l.files, name)
	}

	dir, base := filepath.Split(name)
	names := l.fulls[filepath.Clean(dir)]
	delete(names, base)
	if strings.HasSuffix(base, "-full.md") {
		l.fullsGone++
		l.chain(names, base)
	}

	return nil
}

// chain looks at what a FULL leaves behind: another FULL, and no SPARSE of its own.
func (l *ledger) chain(names map[string]bool, gone string) {
	next, left := "", false
	for name := range names {
		if strings.HasSuffix(name, "-full.md") {
			left = true
			if name > gone && (next == "" || name < next) {
				next = name
			}
		}
	}

	if !left {
		l.t.Errorf("%s was the last FULL of its session", gone)
	}

	for name := range names {
		if strings.HasSuffix(name, "-sparse.md") && name > gone && (next == "" || name < next) {
			l.t.Errorf("%s has outlived its FULL %s", name, gone)
		}
	}
}

// dated is a file's description in a list, with the ledger's time.
type dated struct {
	fs.FileInfo
	mod time.Time
}

func (d dated) ModTime() time.Time { return d.mod }

func (l *ledger) date(name string, info fs.FileInfo) fs.FileInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.files[name]; e != nil {
		return dated{info, e.mod}
	}
	return info
}

func (l *ledger) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := l.Quick.ReadDir(name)
	for i, e := range list {
		if info, ierr := e.Info(); ierr == nil {
			list[i] = fs.FileInfoToDirEntry(l.date(filepath.Join(name, e.Name()), info))
		}
	}
	return list, err
}
