package journal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

const recordSize = recordHead + 12 // of a record with a number of one digit

// withSegment is a disk whose journal has these bytes as its segments, in the order of their first numbers.
func withSegments(t *testing.T, segments map[uint64][]byte) *vfstest.Mem {
	t.Helper()
	m := newMem(t)
	if err := m.MkdirAll(dir, vfs.DirMode); err != nil {
		t.Fatal(err)
	}

	for first, data := range segments {
		if err := vfs.Replace(m, segmentName(dir, first), data); err != nil {
			t.Fatal(err)
		}
	}

	return m
}

// segmentOf1To5 is a whole segment without zeros ahead.
func segmentOf1To5(t *testing.T) []byte {
	m := newMem(t)
	fill(t, m, Options{Ahead: -1}, 5)
	data := readFile(t, m, segmentName(dir, 1))
	if len(data) != headerSize+5*recordSize {
		t.Fatalf("segment of %d bytes, want %d", len(data), headerSize+5*recordSize)
	}
	return data
}

// TestTornTailAtEveryByte cuts the last record at each byte, with nothing behind the cut and with zeros (written
// ahead).
func TestTornTailAtEveryByte(t *testing.T) {
	whole := segmentOf1To5(t)
	begin := headerSize + 4*recordSize
	for cut := begin; cut <= len(whole); cut++ {
		for _, zeros := range []int{0, 100} {
			data := append(bytes.Clone(whole[:cut]), make([]byte, zeros)...)
			torn := int64(len(bytes.TrimRight(whole[begin:cut], "\x00")))
			want := numbers(1, 4)
			if cut == len(whole) {
				want, torn = numbers(1, 5), 0
			}

			m := withSegments(t, map[uint64][]byte{1: data})
			if got, r := scan(t, m, 0); !slices.Equal(got, want) || r.Torn != torn || r.Lost != 0 || r.Damaged != 0 {
				t.Errorf("cut at %d, %d zeros: scan gives %v, %+v, want %v, %d torn", cut, zeros, got, r, want, torn)
			}
			if after := readFile(t, m, segmentName(dir, 1)); !bytes.Equal(after, data) {
				t.Errorf("cut at %d, %d zeros: Scan changed the segment", cut, zeros)
			}

			j := open(t, m, Options{Ahead: 64})
			if got, r := replay(t, j, 0); !slices.Equal(got, want) || r.Torn != torn || r.Lost != 0 || r.Damaged != 0 {
				t.Errorf("cut at %d, %d zeros: replay gives %v, %+v, want %v, %d torn", cut, zeros, got, r, want, torn)
			}
			if size := len(readFile(t, m, segmentName(dir, 1))); torn > 0 && size != begin {
				t.Errorf("cut at %d, %d zeros: segment has %d bytes, want the tail cut to %d", cut, zeros, size, begin)
			}

			stop := run(j)
			seq := put(t, j, 1)
			if err := stop(); err != nil {
				t.Fatal(err)
			}

			got, r := scan(t, m.CrashClone(uint64(cut)), 0)
			if !slices.Equal(got, append(want, seq)) || r.Lost != 0 || r.Torn != 0 {
				t.Errorf("cut at %d, %d zeros: later %v, %+v, want %v and %d", cut, zeros, got, r, want, seq)
			}
		}
	}
}

// TestFlippedByte flips each byte of a segment in turn. It costs the record that it lies in and no other; the number of
// a record that may have been acknowledged is never given out again.
func TestFlippedByte(t *testing.T) {
	whole := segmentOf1To5(t)
	for at := range whole {
		data := bytes.Clone(whole)
		data[at] ^= 0x40
		want := numbers(1, 5)
		if at >= headerSize {
			hit := (at - headerSize) / recordSize
			want = slices.Delete(want, hit, hit+1)
		}

		m := withSegments(t, map[uint64][]byte{1: data, 6: header{prev: 5, high: 5}.appendTo(nil)})
		j := open(t, m, Options{})
		got, r := replay(t, j, 0)
		lost := uint64(5 - len(want))
		switch {
		case at >= headerSize+4*recordSize:
			// nothing good behind it: a torn tail to a reader, and a loss by the next header
			if r.Damaged != 0 || r.Torn != recordSize {
				t.Errorf("flip at %d: %+v, want %d torn bytes", at, r, recordSize)
			}
		default:
			if r.Damaged != 1 || len(r.Aside) != 1 || r.Err != nil {
				t.Errorf("flip at %d: %+v, want one place of damage and its copy", at, r)
			} else if aside := readFile(t, m, r.Aside[0]); !bytes.Equal(aside, data) {
				t.Errorf("flip at %d: the copy aside is not the segment", at)
			}
		}

		if !slices.Equal(got, want) || r.Lost != lost {
			t.Errorf("flip at %d: got %v, lost %d, want %v, lost %d", at, got, r.Lost, want, lost)
		}
		if seq := add(t, j); seq <= 5 {
			t.Errorf("flip at %d: number %d was given out again", at, seq)
		}
	}
}

// TestFlippedByteInTheNewestSegment: without a later segment to tell, numbers are kept safe by size.
func TestFlippedByteInTheNewestSegment(t *testing.T) {
	whole := segmentOf1To5(t)
	for at := range whole {
		data := bytes.Clone(whole)
		data[at] ^= 0x40
		m := withSegments(t, map[uint64][]byte{1: data})
		if seq := add(t, open(t, m, Options{})); seq <= 5 {
			t.Errorf("flip at %d: number %d was given out again", at, seq)
		}
	}
}

// TestGarbage: whatever lies in the folder, it opens, and what can be read is read.
func TestGarbage(t *testing.T) {
	good := segmentOf1To5(t)
	tests := []struct {
		name   string
		first  []byte // of segment 1; segment 6 is good
		want   []uint64
		unread int
	}{
		{"empty", nil, []uint64{6}, 0},
		{"zeros", make([]byte, 5000), []uint64{6}, 0},
		{"text", []byte(strings.Repeat("no journal at all ", 100)), []uint64{6}, 0},
		{"half a header", good[:headerSize/2], []uint64{6}, 0},
		{
			"another segment's records",
			append(bytes.Clone(good[:headerSize]), good[headerSize+2*recordSize:]...),
			[]uint64{6},
			0,
		},
		{
			"hole of zeros",
			slices.Concat(good[:headerSize+recordSize], make([]byte, 2*recordSize), good[headerSize+3*recordSize:]),
			[]uint64{1, 4, 5, 6},
			0,
		},
		{
			"bytes put in",
			slices.Concat(good[:headerSize+recordSize], []byte("!?"), good[headerSize+recordSize:]),
			[]uint64{1, 2, 3, 4, 5, 6},
			0,
		},
		{
			"a record with a number that cannot be",
			slices.Concat(good, record{99, []byte("x")}.appendTo(nil)),
			[]uint64{1, 2, 3, 4, 5, 6},
			0,
		},
		{"newer version", append([]byte(magic+"\x02\x09"), good[9:]...), []uint64{6}, 1},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			six := record{6, []byte(payload(6))}.appendTo(header{prev: 5, high: 5}.appendTo(nil))
			m := withSegments(t, map[uint64][]byte{1: tt.first, 6: six})
			for _, other := range []string{
				"notes.txt", "7.log", "0000000000000000000x.log", "00000000000000000000.log",
			} {
				if err := vfs.Replace(m, filepath.Join(dir, other), []byte("x")); err != nil {
					t.Fatal(err)
				}
			}

			j := open(t, m, Options{})
			got, r := replay(t, j, 0)
			if !slices.Equal(got, tt.want) || r.Unreadable != tt.unread {
				t.Errorf("got %v, %+v, want %v, %d unreadable", got, r, tt.want, tt.unread)
			}
			if seq := add(t, j); seq != 7 {
				t.Errorf("next number %d, want 7", seq)
			}

			// The same as the newest segment: it opens, and its numbers are not given out again.
			m = withSegments(t, map[uint64][]byte{1: tt.first})
			if seq := add(t, open(t, m, Options{})); len(tt.want) > 1 && seq <= 5 {
				t.Errorf("as the newest: number %d was given out again", seq)
			}
		})
	}
}

// TestUnreadableSegment: an input error costs that segment only, is told, and keeps its numbers safe.
func TestUnreadableSegment(t *testing.T) {
	for k := range 12 {
		m := newMem(t)
		fill(t, m, Options{SegmentBytes: headerSize + 3*recordSize, Ahead: -1}, 9)
		f := vfstest.NewFault(m, k, syscall.EIO)
		j, err := Open(f, dir, Options{})
		if err != nil {
			if f.Op() != "readdir journal" {
				t.Errorf("operation %d (%s): open fails: %v", k, f.Op(), err)
			}
			continue
		}

		got, r := replay(t, j, 0)
		op := f.Op()
		inReplay := r.Unreadable > 0
		if inReplay != (r.Err != nil) || !inReplay && len(got) != 9 {
			t.Errorf("operation %d (%s): got %v, %+v", k, op, got, r)
		}
		if seq := add(t, j); seq <= 9 {
			t.Errorf("operation %d (%s): number %d was given out again", k, op, seq)
		}
	}
}

// TestDamagedCopiesAreBounded: five damaged segments leave four copies, the newest, and a second start makes none.
func TestDamagedCopiesAreBounded(t *testing.T) {
	m := newMem(t)
	fill(t, m, Options{SegmentBytes: headerSize + 3*(recordHead+14), Ahead: -1}, 15)
	for first := uint64(1); first <= 13; first += 3 {
		data := readFile(t, m, segmentName(dir, first))
		data[headerSize+recordHead] ^= 1
		if err := vfs.Replace(m, segmentName(dir, first), data); err != nil {
			t.Fatal(err)
		}
	}

	got, r := replay(t, open(t, m, Options{}), 0)
	if len(got) != 10 || r.Lost != 5 || r.Damaged != 5 || len(r.Aside) != 4 || r.Err != nil {
		t.Errorf("got %v, %+v, want 10 records, 5 lost, 4 copies", got, r)
	}

	names, err := list(m, filepath.Join(dir, asideDir))
	if err != nil || !slices.Equal(names, []uint64{4, 7, 10, 13}) {
		t.Errorf("copies of %v, %v, want 4 7 10 13", names, err)
	}
	if _, r := replay(t, open(t, m, Options{}), 0); len(r.Aside) != 0 {
		t.Errorf("a second start copied %v again", r.Aside)
	}
}

// TestNoRoomForACopy: copying aside fails at each step in turn; the records come all the same, and the fault is told.
func TestNoRoomForACopy(t *testing.T) {
	data := segmentOf1To5(t)
	data[headerSize+recordSize] ^= 1
	clean := vfstest.NewFault(withSegments(t, map[uint64][]byte{1: data}), -1, nil)
	replay(t, open(t, clean, Options{}), 0)
	for k := slices.Index(clean.Ops(), "readdir damaged"); ; k++ {
		f := vfstest.NewFault(withSegments(t, map[uint64][]byte{1: data}), k, syscall.ENOSPC)
		j := open(t, f, Options{})
		got, r := replay(t, j, 0)
		if !slices.Equal(got, []uint64{1, 3, 4, 5}) || r.Damaged != 1 || r.Lost != 1 {
			t.Errorf("fault at %s: got %v, %+v, want all but 2", f.Op(), got, r)
		}

		harmless := f.Op() == "close 00000000000000000001.log" // it was only read
		if (f.Fired() && !harmless) != (r.Err != nil) {
			t.Errorf("fault at %s: report says %v", f.Op(), r.Err)
		}

		if !f.Fired() {
			if len(r.Aside) != 1 {
				t.Errorf("without a fault: copies %v, want one", r.Aside)
			}
			return
		}
	}
}

// growing is a live segment: its first read gives what was there before, later ones what has been written since.
type growing struct {
	vfs.File
	before, now []byte
	off         int
	read        bool
}

func (g *growing) Read(p []byte) (int, error) {
	from := g.now
	if !g.read {
		from, g.read = g.before, true
	}
	if g.off >= len(from) {
		return 0, io.EOF
	}

	n := copy(p, from[g.off:])
	g.off += n
	return n, nil
}

func (g *growing) Seek(off int64, _ int) (int64, error) {
	g.off = int(off)
	return off, nil
}

// TestWrittenWhileRead: bytes that were not there yet when they were first read are no damage, wherever the reader was.
func TestWrittenWhileRead(t *testing.T) {
	now := segmentOf1To5(t)
	for cut := range now {
		for _, size := range []int{cut, len(now) - recordSize, len(now)} {
			if size < cut {
				continue
			}

			before := append(bytes.Clone(now[:cut]), make([]byte, size-cut)...)
			out, err := readSegment(&growing{before: before, now: now}, 1, newWindow(), nil)
			if err != nil || out.damaged != 0 || !out.headOK && out.records > 0 {
				t.Errorf("%d of %d bytes written at first: %+v, %v, want no damage", cut, size, out, err)
			}
		}
	}
}

// TestFailedGroupThatIsOnDiskAllTheSame: records 4 and 5 were written, their sync failed, and the machine died when the
// next segment had no more than its header. Their numbers are taken.
func TestFailedGroupThatIsOnDiskAllTheSame(t *testing.T) {
	m := withSegments(t, map[uint64][]byte{1: segmentOf1To5(t), 4: header{prev: 3, high: 5}.appendTo(nil)})
	j := open(t, m, Options{})
	if got, r := replay(t, j, 0); !slices.Equal(got, numbers(1, 5)) || r.Lost != 0 {
		t.Errorf("got %v, lost %d, want 1..5 and no loss", got, r.Lost)
	}
	if seq := add(t, j); seq != 6 {
		t.Errorf("next number %d, want 6", seq)
	}
}

// TestScanOfALiveJournal reads while records are appended and segments are released: what it gives is in order and
// whole, and it neither changes anything nor calls the live tail damage.
func TestScanOfALiveJournal(t *testing.T) {
	root := filepath.Join(t.TempDir(), "journal")
	j, err := Open(vfs.OS{}, root, Options{SegmentBytes: 8 << 10, Ahead: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}

	stop := run(j)
	done := make(chan struct{})
	var released atomic.Uint64
	go func() {
		defer close(done)
		for n := uint64(1); n <= 400; n++ {
			seq, err := j.Append(t.Context(), []byte(strings.Repeat(payload(n), 20)))
			if err == nil && n%10 == 0 {
				err = j.Wait(t.Context(), seq)
			}
			if err == nil && n%100 == 0 {
				released.Store(n - 50)
				err = j.Release(n - 50)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}()

	for scans, live := 0, true; live; scans++ {
		select {
		case <-done:
			live = false
		default:
		}

		stored, last := j.Health().Stored, uint64(0)
		r, err := Scan(vfs.OS{}, root, 0, func(seq uint64, p []byte) error {
			if string(p) != strings.Repeat(payload(seq), 20) || last > 0 && seq <= last {
				return fmt.Errorf("record %d after %d holds %.20q", seq, last, p)
			}
			last = seq
			return nil
		})

		if err != nil || r.Damaged != 0 || r.Lost != 0 || r.Unreadable != 0 {
			t.Errorf("scan %d: %+v, %v", scans, r, err)
		}
		if r.Oldest == 0 {
			continue // all that was listed has gone meanwhile
		}
		if last < stored && last >= released.Load() {
			t.Errorf("scan %d: %d was on disk before, got up to %d", scans, stored, last)
		}
	}

	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, asideDir)); err == nil {
		t.Error("Scan copied a segment aside")
	}
}
