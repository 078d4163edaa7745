package journal

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// session is a run of appends on a disk with faults, with rotation, Release and a restart in it. What was acknowledged
// is in acked.
type session struct {
	*vfstest.Point
	t     *testing.T
	opt   Options
	acked []uint64
	given uint64 // the highest number handed out
	freed uint64 // released up to here
}

func (s *session) append(j *Journal) {
	seq := add(s.t, j)
	if seq <= s.given {
		s.Errorf("number %d after %d", seq, s.given)
	}

	s.given = seq
	if s.Hear(j.Wait(context.Background(), seq)) == nil {
		s.acked = append(s.acked, seq)
	}

	_ = s.Hear(j.Health().Err) // Hear has looked at it
	s.check()
}

// check cuts the power now, in several ways, and compares.
func (s *session) check() {
	for seed, clone := range s.Crashes() {
		var got []uint64
		if r, err := Scan(
			clone, dir, 0, collect(s.t, &got),
		); err != nil || r.Lost > 0 || r.Damaged > 0 ||
			r.Unreadable > 0 {
			s.Errorf("seed %d: scan: %+v, %v, want nothing lost and no damage", seed, r, err)
		}

		j := open(s.t, clone, s.opt)
		if again, _ := replay(s.t, j, 0); !slices.Equal(again, got) {
			s.Errorf("seed %d: replay gives %v, scan %v", seed, again, got)
		}

		for _, seq := range s.acked {
			if seq > s.freed && !slices.Contains(got, seq) {
				s.Errorf("seed %d: record %d was acknowledged and is gone; recovered %v", seed, seq, got)
			}
		}

		// The next life's first record is not taken for one that was there, and does not come under an acknowledged
		// number.
		stop := run(j)
		next := put(s.t, j, 1)
		if err := stop(); err != nil {
			s.t.Fatal(err)
		}
		if n := len(s.acked); n > 0 && next <= s.acked[n-1] {
			s.Errorf("seed %d: number %d given again, %d was acknowledged", seed, next, s.acked[n-1])
		}

		if after, r := scan(s.t, clone.CrashClone(seed), 0); !slices.Equal(after, append(got, next)) || r.High < next {
			s.Errorf(
				"seed %d: recovered %v, then %d, then there was %v, numbers up to %d", seed, got, next, after,
				r.High,
			)
		}
	}
}

// life is one start of the daemon.
func (s *session) life(appends int) {
	j, err := Open(s.Fault, dir, s.opt)
	if s.Hear(err) != nil {
		return
	}

	_ = s.Hear(j.Health().Err)
	var got []uint64
	r, err := j.Replay(context.Background(), 0, collect(s.t, &got))
	_, _ = s.Hear(err), s.Hear(r.Err)
	stop := run(j)
	for i := range appends {
		s.append(j)
		if i%3 == 2 && len(s.acked) > 2 {
			s.freed = s.acked[len(s.acked)-3]
			_ = s.Hear(j.Release(s.freed))
			s.check()
		}
		time.Sleep(60 * time.Millisecond)
	}

	_ = s.Hear(stop())
	if err := j.Wait(context.Background(), s.given); err == nil && s.given > 0 && !slices.Contains(s.acked, s.given) {
		s.acked = append(s.acked, s.given)
	}

	s.check()
}

// TestEveryOperationFails: whatever fails, nothing acknowledged is missing after power loss at any time, no number
// comes twice, no fault is swallowed, and one fault costs a few records at the most.
func TestEveryOperationFails(t *testing.T) {
	for name, ahead := range map[string]int{"bare": -1, "zeros ahead": 70} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				vfstest.Sweep{Least: 40}.Run(t, func(p *vfstest.Point) {
					if err := errors.Join(p.Mem.MkdirAll("/state", vfs.DirMode), p.Mem.SyncDir("/")); err != nil {
						t.Fatal(err)
					}

					s := &session{Point: p, t: t, opt: Options{SegmentBytes: headerSize + 4*recordSize, Ahead: ahead}}
					s.life(7)
					s.life(4)
					switch {
					case p.Err == nil && len(s.acked) != 11:
						p.Errorf("%d acknowledged, want 11", len(s.acked))
					case p.Err != nil && !p.Dies && len(s.acked) < 8 && p.Op() != "readdir journal":
						p.Errorf("only %v acknowledged; one fault costs a few", s.acked)
					}
				})
			})
		})
	}
}

// TestG12FullDisk: everything fails from the k-th operation on, for two minutes. Records are kept in memory, the disk
// is left in peace, the state says so, and it goes on by itself.
func TestG12FullDisk(t *testing.T) {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO} {
		for k := range 12 {
			synctest.Test(t, func(t *testing.T) { fullDisk(t, full, k) })
		}
	}
}

func fullDisk(t *testing.T, full error, k int) {
	m := newMem(t)
	f := vfstest.NewFault(m, -1, nil)
	j := open(t, f, Options{})
	f.FailFrom(k+1, full)
	stop := run(j)
	var memory []uint64
	for range 5 {
		seq := add(t, j)
		switch err := j.Wait(t.Context(), seq); {
		case errors.Is(err, ErrMemory) && errors.Is(err, full):
			memory = append(memory, seq)
		case err != nil:
			t.Fatalf("wait: %v, want nil, or ErrMemory because of %v", err, full)
		}
	}

	if len(memory) == 0 {
		t.Fatalf("operation %d: the disk never failed", k)
	}

	time.Sleep(2 * time.Minute)
	h := j.Health()
	if !errors.Is(h.Err, full) || h.Held != len(memory) || h.Dropped != 0 || time.Since(h.Since) < 2*time.Minute {
		t.Errorf("operation %d: health %+v, want %v with %d held", k, h, full, len(memory))
	}
	if n := f.Count(); n > 100 {
		t.Errorf("operation %d: %d operations in two minutes of a full disk", k, n)
	}

	drain(j.Changed())
	f.Heal()
	<-j.Changed()
	if err := j.Wait(t.Context(), 5); err != nil {
		t.Errorf("operation %d: wait when the disk is back: %v", k, err)
	}
	if h := j.Health(); h.Err != nil || h.Held != 0 || h.Stored != 5 {
		t.Errorf("operation %d: health %+v, want all well", k, h)
	}
	if got, r := scan(t, m.CrashClone(uint64(k)), 0); !slices.Equal(got, numbers(1, 5)) || r.Lost != 0 {
		t.Errorf("operation %d: got %v, %+v, want 1..5", k, got, r)
	}
	if err := stop(); err != nil {
		t.Errorf("operation %d: %v", k, err)
	}
}

func drain(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// TestMemoryIsBounded: while the disk fails the oldest go, counted, named by Wait, and known to readers later.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMem(t)
		f := vfstest.NewFault(m, -1, nil)
		j := open(t, f, Options{Memory: 5 * (recordHead + 14), SegmentBytes: 1 << 10})
		stop := run(j)
		put(t, j, 9)
		f.FailVerb("write", syscall.ENOSPC)
		for n := uint64(10); n <= 30; n++ {
			seq := add(t, j)
			if err := j.Wait(t.Context(), seq); !errors.Is(err, ErrMemory) {
				t.Fatalf("record %d: %v, want ErrMemory", seq, err)
			}
			time.Sleep(30 * time.Millisecond)
		}

		if h := j.Health(); h.Held != 5 || h.Dropped != 16 || h.Bytes > 5*(recordHead+14) {
			t.Errorf("health %+v, want 5 held, 16 dropped", h)
		}
		if s := m.String(); strings.Count(s, ".log") != 1 {
			t.Errorf("files gather on a failing disk:\n%s", s)
		}

		f.Heal()
		time.Sleep(10 * time.Second)
		for seq, want := range map[uint64]error{9: nil, 10: ErrDropped, 25: ErrDropped, 26: nil, 30: nil} {
			if err := j.Wait(t.Context(), seq); !errors.Is(err, want) {
				t.Errorf("record %d: %v, want %v", seq, err, want)
			}
		}

		put(t, j, 2)
		if err := stop(); err != nil {
			t.Fatal(err)
		}

		want := append(numbers(1, 9), numbers(26, 32)...)
		if got, r := scan(t, m, 0); !slices.Equal(got, want) || r.Lost != 16 || r.Damaged != 0 {
			t.Errorf("got %v, %+v, want %v, 16 lost", got, r, want)
		}
		if got, r := scan(t, m, 26); !slices.Equal(got, numbers(26, 32)) || r.Lost != 0 {
			t.Errorf("from 26: got %v, lost %d, want 26..32 and none", got, r.Lost)
		}
	})
}

// TestDroppedWhileAGroupIsInHand: records that are dropped behind a group that is being retried leave a gap, and no
// damage.
func TestDroppedWhileAGroupIsInHand(t *testing.T) {
	m := newMem(t)
	j := open(t, m, Options{Memory: 2 * (recordHead + 14), Ahead: -1})
	if err := j.write([]record{{1, []byte(payload(1))}}); err != nil {
		t.Fatal(err)
	}

	j.mu.stored, j.mu.next = 1, 2
	j.mu.failing, j.mu.err = true, syscall.EIO
	add(t, j)
	group := j.take() // 2 is in hand
	for range 4 {
		add(t, j) // 3 and 4 go
	}

	j.settle(group, syscall.EIO) // 2 is held again, and dropped as the oldest
	if err := j.drain(); err != nil {
		t.Fatal(err)
	}

	for seq := uint64(2); seq <= 4; seq++ {
		if err := j.Wait(t.Context(), seq); !errors.Is(err, ErrDropped) {
			t.Errorf("record %d: %v, want ErrDropped", seq, err)
		}
	}

	add(t, j)
	group = j.take() // 7
	j.mu.failing, j.mu.err = true, syscall.EIO
	for range 4 {
		add(t, j) // 8 and 9 go
	}

	if err := j.write(group); err != nil { // this time it works
		t.Fatal(err)
	}

	j.settle(group, nil)
	if err := j.drain(); err != nil {
		t.Fatal(err)
	}
	if err := j.seal(); err != nil {
		t.Fatal(err)
	}

	want := []uint64{1, 5, 6, 7, 10, 11}
	if got, r := scan2(t, m); !slices.Equal(got, want) || r.Lost != 5 || r.Damaged != 0 {
		t.Errorf("got %v, %+v, want %v, 5 lost, no damage", got, r, want)
	}
}

// TestDroppedInTheMiddle: a big record goes while an older one is in hand; the gap is no part of a segment.
func TestDroppedInTheMiddle(t *testing.T) {
	m := newMem(t)
	j := open(t, m, Options{Memory: 200, Ahead: -1})
	j.mu.failing, j.mu.err = true, syscall.EIO
	add(t, j)
	group := j.take()
	if _, err := j.Append(t.Context(), make([]byte, 180)); err != nil {
		t.Fatal(err)
	}

	add(t, j)
	j.settle(group, syscall.EIO)
	if err := j.drain(); err != nil {
		t.Fatal(err)
	}
	if got, r := scan(t, m, 0); !slices.Equal(got, []uint64{1, 3}) || r.Lost != 1 || r.Damaged != 0 {
		t.Errorf("got %v, %+v, want 1 and 3, one lost, no damage", got, r)
	}
	if err := j.seal(); err != nil {
		t.Fatal(err)
	}
}

// scan2 does not look at payloads.
func scan2(t *testing.T, m *vfstest.Mem) (got []uint64, r Report) {
	t.Helper()
	r, err := Scan(m, dir, 0, func(seq uint64, _ []byte) error {
		got = append(got, seq)
		return nil
	})

	if err != nil {
		t.Fatal(err)
	}

	return got, r
}

// TestHeaderTellsOfAFailedGroup: the segment after a failed sync names the numbers that may be on disk before it.
func TestHeaderTellsOfAFailedGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMem(t)
		f := vfstest.NewFault(m, -1, nil)
		j := open(t, f, Options{Ahead: -1})
		stop := run(j)
		put(t, j, 3)
		f.FailVerb("sync", syscall.EIO)
		if err := j.Wait(t.Context(), add(t, j)); !errors.Is(err, ErrMemory) {
			t.Errorf("got %v, want ErrMemory", err)
		}

		f.Heal()
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if h, err := decodeHeader(readFile(t, m, segmentName(dir, 4))); err != nil || h != (header{prev: 3, high: 4}) {
			t.Errorf("got %+v, %v, want prev 3, high 4", h, err)
		}
		if got, r := scan(t, m, 0); !slices.Equal(got, numbers(1, 4)) || r.Lost != 0 {
			t.Errorf("got %v, %+v, want 1..4, once each", got, r)
		}
	})
}

// TestG10UnwritableFolder: where nothing can be made, the journal works in memory and names the folder.
func TestG10UnwritableFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := vfstest.NewFault(newMem(t), -1, nil)
		j := open(t, f, Options{})
		f.FailNow(syscall.EACCES)
		stop := run(j)
		seq := add(t, j)
		err := j.Wait(t.Context(), seq)
		if !errors.Is(err, ErrMemory) || !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), dir) {
			t.Errorf("got %v, want ErrMemory, EACCES and the folder's name", err)
		}
		if err := stop(); !errors.Is(err, syscall.EACCES) {
			t.Errorf("stopping with a record in memory: %v, want EACCES", err)
		}
		if err := j.Wait(t.Context(), seq); !errors.Is(err, ErrClosed) {
			t.Errorf("wait after the end: %v, want ErrClosed", err)
		}
	})
}

// TestPauses: the first tries are close together, later ones 5 s apart.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := vfstest.NewFault(newMem(t), -1, nil)
		j := open(t, f, Options{})
		f.FailNow(syscall.ENOSPC)
		start := time.Now()
		stop := run(j)
		add(t, j)
		var tries []time.Duration
		for seen := f.Count(); len(tries) < 9; time.Sleep(time.Millisecond) {
			add(t, j) // new records do not hurry it
			if n := f.Count(); n > seen {
				seen = n
				tries = append(tries, time.Since(start).Round(100*time.Millisecond))
			}
		}

		want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 113, 163}
		for i := range want {
			if tries[i] != want[i]*100*time.Millisecond {
				t.Errorf("try %d after %v, want %v", i, tries[i], want[i]*100*time.Millisecond)
			}
		}

		f.Heal()
		if err := stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}
