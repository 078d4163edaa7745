package journal

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

func TestRoundTripOnTheRealDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	want := [][]byte{[]byte("a"), {}, bytes.Repeat([]byte{0}, 1000), bytes.Repeat([]byte("x"), MaxPayload)}
	for start := range 2 {
		j, err := Open(vfs.OS{}, dir, Options{})
		if err != nil {
			t.Fatal(err)
		}

		stop := run(j)
		for i, p := range want {
			seq, err := j.Append(t.Context(), p)
			if err != nil || seq != uint64(start*len(want)+i+1) {
				t.Fatalf("start %d, record %d: got number %d, %v", start, i, seq, err)
			}
		}

		if err := j.Wait(t.Context(), uint64((start+1)*len(want))); err != nil {
			t.Fatal(err)
		}
		if _, err := j.Append(t.Context(), make([]byte, MaxPayload+1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("record over the bound: got %v, want ErrTooLarge", err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}

	j, err := Open(vfs.OS{}, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}

	next := uint64(3)
	r, err := j.Replay(t.Context(), next, func(seq uint64, p []byte) error {
		if seq != next || !bytes.Equal(p, want[(seq-1)%4]) {
			t.Errorf("got record %d of %d bytes, want record %d of %d bytes", seq, len(p), next, len(want[(seq-1)%4]))
		}
		next++
		return nil
	})

	if err != nil || r.Records != 6 || r.Segments != 2 || r.Lost != 0 || r.Torn != 0 || r.Damaged != 0 || r.Err != nil {
		t.Errorf("got %+v, %v, want 6 records of 2 segments and no loss", r, err)
	}

	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2 {
		t.Fatalf("folder holds %v, %v", names, err)
	}

	for _, n := range names {
		if info, err := n.Info(); err != nil || info.Mode() != vfs.FileMode {
			t.Errorf("%s has mode %v, %v, want %v", n.Name(), info.Mode(), err, vfs.FileMode)
		}
	}

	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != vfs.DirMode {
		t.Errorf("folder has mode %v, %v, want %v", info.Mode(), err, vfs.DirMode)
	}
}

func TestEmpty(t *testing.T) {
	m := newMem(t)
	if got, r := scan(t, m, 0); len(got) != 0 || r.Segments != 0 || r.Oldest != 0 {
		t.Errorf("scan of no journal: %v, %+v", got, r)
	}

	j := open(t, m, Options{})
	if got, r := replay(t, j, 0); len(got) != 0 || r.Segments != 0 {
		t.Errorf("replay of no journal: %v, %+v", got, r)
	}
	if err := run(j)(); err != nil {
		t.Errorf("run and stop: %v", err)
	}
	if s := m.String(); s != "" {
		t.Errorf("files without a record: %s", s)
	}
}

// TestOrderOfOperations is the golden list of what touches the disk: a segment's bytes are synced before its name, and
// both before the record is acknowledged; nothing but one write, one sync and one look at the name comes for each
// later group.
func TestOrderOfOperations(t *testing.T) {
	f := vfstest.NewFault(newMem(t), -1, nil)
	j := open(t, f, Options{SegmentBytes: headerSize + 3*(recordHead+14), Ahead: -1})
	stop := run(j)
	put(t, j, 4)
	if err := j.Release(3); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	want := strings.Split(`readdir journal
mkdir journal
syncdir state
create 00000000000000000001.log
stat 00000000000000000001.log
write 00000000000000000001.log
sync 00000000000000000001.log
syncdir journal
lstat 00000000000000000001.log
write 00000000000000000001.log
sync 00000000000000000001.log
lstat 00000000000000000001.log
write 00000000000000000001.log
sync 00000000000000000001.log
lstat 00000000000000000001.log
close 00000000000000000001.log
create 00000000000000000004.log
stat 00000000000000000004.log
write 00000000000000000004.log
sync 00000000000000000004.log
syncdir journal
lstat 00000000000000000004.log
remove 00000000000000000001.log
syncdir journal
close 00000000000000000004.log`, "\n")

	if got := f.Ops(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestGroupCommit: what is queued while the disk is busy goes onto it in one write and one sync.
func TestGroupCommit(t *testing.T) {
	f := vfstest.NewFault(newMem(t), -1, nil)
	j := open(t, f, Options{})
	for range 50 {
		add(t, j)
	}

	stop := run(j)
	if err := j.Wait(t.Context(), 50); err != nil {
		t.Fatal(err)
	}

	syncs := 0
	for _, op := range f.Ops() {
		if strings.HasPrefix(op, "sync ") {
			syncs++
		}
	}

	if syncs != 1 {
		t.Errorf("%d syncs for 50 queued records, want 1", syncs)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentAppenders(t *testing.T) {
	m := newMem(t)
	j := open(t, m, Options{SegmentBytes: 4096, Memory: 1024, Ahead: 256})
	stop := run(j)
	var wg sync.WaitGroup
	var mu sync.Mutex
	given := map[uint64]string{}
	for worker := range 8 {
		wg.Go(func() {
			for i := range 50 {
				p := strings.Repeat(string(rune('a'+worker)), i+1)
				seq, err := j.Append(t.Context(), []byte(p))
				if err == nil {
					err = j.Wait(t.Context(), seq)
				}
				if err != nil {
					t.Error(err)
					return
				}

				mu.Lock()
				if _, twice := given[seq]; twice {
					t.Errorf("number %d was given twice", seq)
				}

				given[seq] = p
				mu.Unlock()
				if i == 25 {
					if err := j.Release(seq / 4); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}

	wg.Wait()
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	clone := m.CrashClone(1)
	r, err := Scan(clone, dir, 0, func(seq uint64, p []byte) error {
		if given[seq] != string(p) {
			t.Errorf("record %d holds %q, want %q", seq, p, given[seq])
		}
		delete(given, seq)
		return nil
	})

	if err != nil || r.Last != 400 || r.Lost != 0 || r.Damaged != 0 || r.Torn != 0 {
		t.Errorf("got %+v, %v", r, err)
	}

	for seq := range given {
		if seq >= r.Oldest {
			t.Errorf("record %d is missing", seq)
		}
	}
}

// TestStoppingWritesWhatIsQueued: Run's last round.
func TestStoppingWritesWhatIsQueued(t *testing.T) {
	m := newMem(t)
	j := open(t, m, Options{})
	for range 5 {
		add(t, j)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if err := j.Wait(t.Context(), 5); err != nil {
		t.Errorf("wait after the last round: %v", err)
	}
	if _, err := j.Append(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("append after the end: got %v, want ErrClosed", err)
	}
	if err := j.Run(t.Context()); err == nil {
		t.Error("a second Run was accepted")
	}
	if got, _ := scan(t, m.CrashClone(1), 0); !slices.Equal(got, numbers(1, 5)) {
		t.Errorf("got %v, want 1..5", got)
	}
}

func TestAppendWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := open(t, newMem(t), Options{Memory: 3 * (recordHead + 14)})
		for range 3 {
			add(t, j)
		}

		fourth := make(chan error, 1)
		go func() {
			_, err := j.Append(t.Context(), []byte(payload(4)))
			fourth <- err
		}()

		synctest.Wait()
		select {
		case err := <-fourth:
			t.Fatalf("the fourth record did not wait: %v", err)
		default:
		}

		stop := run(j)
		if err := <-fourth; err != nil {
			t.Error(err)
		}
		if err := j.Wait(t.Context(), 4); err != nil {
			t.Error(err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A disk that hangs keeps nobody for longer than they care to wait: what gave up has no number.
func TestAppendWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := open(t, newMem(t), Options{Memory: 3 * (recordHead + 14)}) // and nobody writes
		for range 3 {
			add(t, j)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if seq, err := j.Append(ctx, []byte(payload(4))); seq != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without room: number %d, %v; want none and the context's error", seq, err)
		}
		if got := j.Health(); got.Last != 3 || got.Held != 3 {
			t.Errorf("%d records up to %d, want 3 up to 3", got.Held, got.Last)
		}
	})
}

func TestWait(t *testing.T) {
	j := open(t, newMem(t), Options{})
	if err := j.Wait(t.Context(), 1); err == nil {
		t.Error("a number that was never given out was waited for")
	}

	seq := add(t, j)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Wait(ctx, seq); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// TestReleaseKeepsTheNumbers: when all is released and the machine restarts, numbers go on.
func TestReleaseKeepsTheNumbers(t *testing.T) {
	m := newMem(t)
	opt := Options{SegmentBytes: headerSize + 3*(recordHead+14), Ahead: -1}
	fill(t, m, opt, 10)
	j := open(t, m, opt)
	if got := j.Sealed(); len(got) != 4 || got[0] != (Segment{1, 3}) || got[3] != (Segment{10, 10}) {
		t.Errorf("sealed %v, want 1-3, 4-6, 7-9, 10-10", got)
	}
	if err := j.Release(5); err != nil {
		t.Fatal(err)
	}
	if got, r := scan(t, m, 0); !slices.Equal(got, numbers(4, 10)) || r.Oldest != 4 || r.Lost != 0 {
		t.Errorf("after Release(5): %v, %+v, want 4..10", got, r)
	}
	if err := j.Release(10); err != nil {
		t.Fatal(err)
	}

	for seed := range uint64(5) {
		if seq := add(t, open(t, m.CrashClone(seed), opt)); seq != 11 {
			t.Errorf("next number %d, want 11", seq)
		}
	}

	// The last one goes when there is a newer one, and Changed tells of sealed segments.
	stop := run(j)
	put(t, j, 1)
	if err := j.Release(10); err != nil {
		t.Fatal(err)
	}
	if got, r := scan(t, m, 0); !slices.Equal(got, []uint64{11}) || r.Oldest != 11 {
		t.Errorf("got %v, %+v, want only 11", got, r)
	}

	put(t, j, 3)
	<-j.Changed()
	if got := j.Sealed(); len(got) != 1 || got[0] != (Segment{11, 13}) {
		t.Errorf("sealed %v, want 11-13", got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestAfter(t *testing.T) {
	m := newMem(t)
	fill(t, m, Options{}, 3)
	j := open(t, m, Options{After: 7})
	stop := run(j)
	if seq := put(t, j, 1); seq != 8 {
		t.Errorf("got number %d, want 8", seq)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got, r := scan(t, m, 0); !slices.Equal(got, []uint64{1, 2, 3, 8}) || r.Lost != 0 {
		t.Errorf("got %v, lost %d, want 1 2 3 8 and no loss", got, r.Lost)
	}
	if seq := add(t, open(t, m, Options{After: 2})); seq != 9 {
		t.Errorf("got number %d, want 9", seq)
	}
}

func TestReplayStopsForItsCaller(t *testing.T) {
	m := newMem(t)
	fill(t, m, Options{}, 5)
	enough := errors.New("enough")
	n := 0
	r, err := open(t, m, Options{}).Replay(t.Context(), 2, func(uint64, []byte) error {
		if n++; n == 3 {
			return enough
		}
		return nil
	})

	if !errors.Is(err, enough) || r.Records != 2 {
		t.Errorf("got %d records, %v, want 2 and the caller's error", r.Records, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open(
		t,
		m,
		Options{},
	).Replay(
		ctx, 0, func(uint64, []byte) error { return nil },
	); !errors.Is(
		err, context.Canceled,
	) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func TestOptionsOutOfRange(t *testing.T) {
	for _, opt := range []Options{{SegmentBytes: 1}, {SegmentBytes: -1}, {Memory: -1}, {After: 1 << 63}} {
		if _, err := Open(newMem(t), dir, opt); err == nil {
			t.Errorf("options %+v were accepted", opt)
		}
	}
}

// A crash after a segment was made and before its first record: the next segment takes its name, and a Release of what
// was there before must leave it alone.
func TestReleaseLeavesTheSegmentThatTookAnEmptyOnesName(t *testing.T) {
	m := newMem(t)
	fill(t, m, Options{Ahead: -1}, 3)
	f, err := m.OpenFile(segmentName(dir, 4), os.O_WRONLY|os.O_CREATE, vfs.FileMode)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), m.SyncDir(dir)); err != nil {
		t.Fatal(err)
	}

	j := open(t, m, Options{Ahead: -1})
	stop := run(j)
	put(t, j, 2)
	if err := j.Release(3); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got, _ := scan(t, m, 0); !slices.Equal(got, numbers(4, 5)) {
		t.Errorf("after the release: records %v, want the two that were acknowledged, 4 and 5", got)
	}
}
