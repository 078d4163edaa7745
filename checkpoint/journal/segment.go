package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"belay/internal/vfs"
)

// found is what one segment holds.
type found struct {
	head     header
	headOK   bool
	records  int
	last     uint64 // the highest number of a good record, 0 without one
	end      int64  // where the last good record (or the header) ends
	torn     int64  // bytes after end that are no record and not zero
	damaged  int    // places of damage before the last good record
	damage   int64  // their bytes
	highest  uint64 // no number above it can have been in the part that cannot be read
	unusable error  // the rest could not be read: the disk's error, or errVersion
}

// list gives the first numbers of the segments in dir, in order. A folder that is not there holds none.
func list(fsys vfs.FS, dir string) ([]uint64, error) {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	var out []uint64
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), ".log")
		n, err := strconv.ParseUint(digits, 10, 64)
		if ok && err == nil && len(digits) == 20 && n > 0 && n <= maxNumber {
			out = append(out, n)
		}
	}

	slices.Sort(out)
	return out, nil
}

// unknownSize stands in for the size of a segment that cannot even be opened.
const unknownSize = 1 << 30

// examine reads a segment for its numbers only.
func examine(fsys vfs.FS, dir string, first uint64) found {
	f, err := fsys.OpenFile(segmentName(dir, first), os.O_RDONLY, 0)
	if err != nil {
		return found{unusable: err, highest: first + unknownSize/recordHead}
	}
	defer f.Close()                                   // read only: nothing can be lost
	out, _ := readSegment(f, first, newWindow(), nil) // the error would be emit's
	return out
}

// newWindow is wide enough for usual records; for larger ones peek takes a wider one.
func newWindow() *bufio.Reader { return bufio.NewReaderSize(nil, 128<<10) }

// reader walks over one segment.
type reader struct {
	f   vfs.File
	r   *bufio.Reader
	off int64
	err error // of the disk; nothing is read after it
}

// readSegment reads a segment whose first record is number first, and hands its records to emit (if not nil), whose
// error it returns as it is. It can read a file that is being written. The payloads are valid during the call only.
func readSegment(f vfs.File, first uint64, window *bufio.Reader, emit func(so found, r record) error) (found, error) {
	rd := &reader{f: f, r: window}
	rd.r.Reset(f)
	out := found{}
	err := rd.header(&out)
	next := first
	for rd.err == nil && !errors.Is(err, errVersion) {
		rec, n, ok := rd.record(next)
		if !ok {
			if !rd.pass(&out, &next) {
				break
			}
			continue
		}

		if emit != nil {
			if err := emit(out, rec); err != nil {
				return out, err
			}
		}

		rd.skip(n)
		out.records, out.last, out.end = out.records+1, rec.seq, rd.off
		next = rec.seq + 1
	}

	out.highest = next - 1 + uint64(out.torn+recordHead-1)/recordHead
	if errors.Is(err, errVersion) {
		out.unusable = err
	}
	if rd.err != nil {
		out.unusable = rd.err
	}

	if out.unusable != nil {
		size := int64(unknownSize)
		if info, err := f.Stat(); err == nil {
			size = info.Size()
		}
		out.highest = next + uint64(max(size-rd.off, 0))/recordHead
	}

	return out, nil
}

// header decodes the segment's header, at its beginning.
func (rd *reader) header(out *found) error {
	head, err := decodeHeader(rd.peek(headerSize))
	if err == nil {
		out.head, out.headOK, out.end = head, true, headerSize
		rd.skip(headerSize)
	}
	return err
}

// record decodes the record at the reader's place, if it is there whole and has the number want.
func (rd *reader) record(want uint64) (record, int, bool) {
	rec, n, err := decodeRecord(rd.peek(recordHead))
	if errors.Is(err, errShort) && n > recordHead {
		rec, n, err = decodeRecord(rd.peek(n))
	}
	return rec, n, err == nil && rec.seq == want
}

// pass goes over a place that is no record to the next one, whose number it puts into next. Without one it returns
// false, after it has measured the torn tail.
func (rd *reader) pass(out *found, next *uint64) bool {
	start := rd.off
	seq, end, ok := rd.search(*next)
	if !ok {
		out.torn = max(end-start, 0)
		return false
	}

	at := rd.off

	// The place may have been written since we read it, if the segment is live. The writer goes forward: now that we
	// have seen what lies behind the place, the place itself is whole, or it is damaged for good.
	rd.seek(start)
	if start == 0 && rd.header(out) == nil {
		return true
	}
	if _, _, ok := rd.record(*next); ok {
		return true
	}

	rd.seek(at)
	out.damaged, out.damage, *next = out.damaged+1, out.damage+at-start, seq
	return rd.err == nil
}

// search goes on to the next record: its number must be one that can stand there, and its sum right. If there is none,
// it says where the last byte ends that is not zero.
func (rd *reader) search(next uint64) (seq uint64, end int64, ok bool) {
	start := rd.off
	for {
		b := rd.peek(recordHead)
		if len(b) < recordHead {
			if n := lastNonZero(b); n > 0 {
				end = rd.off + n
			}
			return 0, end, false
		}

		b = rd.peek(rd.r.Buffered())
		i := 0
		for ; i+recordHead <= len(b); i++ {
			seq = binary.LittleEndian.Uint64(b[i+8:])
			if seq >= next && seq-next <= uint64(rd.off+int64(i)-start)/recordHead {
				break
			}
		}

		if n := lastNonZero(b[:i]); n > 0 {
			end = rd.off + n
		}

		candidate := i+recordHead <= len(b)
		if candidate && b[i] != 0 {
			end = rd.off + int64(i) + 1
		}

		rd.skip(i)
		if candidate {
			if _, _, ok := rd.record(seq); ok {
				return seq, end, true
			}
			rd.skip(1)
		}
	}
}

// lastNonZero is the place after the last byte that is not zero, 0 without one.
func lastNonZero(b []byte) int64 {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return int64(n)
}

// peek gives the next n bytes without going on, fewer at the end of the file.
func (rd *reader) peek(n int) []byte {
	if rd.err != nil {
		return nil
	}
	if n > rd.r.Size() {
		rd.r = bufio.NewReaderSize(nil, recordHead+MaxPayload)
		rd.seek(rd.off)
	}

	b, err := rd.r.Peek(n)
	if err != nil && err != io.EOF {
		rd.err = err
		return nil
	}

	return b
}

// skip goes over bytes that have been peeked at, which cannot fail.
func (rd *reader) skip(n int) {
	_, _ = rd.r.Discard(n)
	rd.off += int64(n)
}

func (rd *reader) seek(off int64) {
	if rd.err == nil {
		_, rd.err = rd.f.Seek(off, io.SeekStart)
		rd.r.Reset(rd.f)
		rd.off = off
	}
}
