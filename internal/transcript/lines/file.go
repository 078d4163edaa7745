package lines

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"belay/checkpoint"
)

// File reads one path. It keeps the file open between reads, so that a file that was renamed or deleted is still read to
// its end. It is used by one goroutine.
type File struct {
	path string
	h    *os.File
	info fs.FileInfo
	// torn remembers an unfinished last line: no newline lies between off and upto. It keeps the many looks at a long line
	// that grows slowly from reading it whole each time.
	torn struct{ off, upto int64 }
	// hole is the end of the last run of NUL at the end of the file that was counted, so that it counts once.
	hole int64
}

// source is what acquire found out about the file to read from.
type source struct {
	changed bool   // the position does not hold in it
	orphan  []byte // the unfinished end of the file that was open before and is out of reach now
	next    bool   // the path leads to another file, which comes after this one
}

// Open prepares to read path, which need not be there.
func Open(path string) *File { return &File{path: path} }

// Close lets the open file go. The next Read opens the path again.
func (f *File) Close() error {
	if f.h == nil {
		return nil
	}
	err := f.h.Close()
	f.h, f.info, f.torn.upto, f.hole = nil, nil, 0, 0
	return err
}

// Size is how many bytes the file has now.
func (f *File) Size() (int64, error) {
	if err := f.ensure(); err != nil {
		return 0, err
	}
	info, err := f.h.Stat()
	if err != nil {
		return 0, wrap("stat", f.path, err)
	}
	return info.Size(), nil
}

// Holds says whether a position is one of the content that the file has now.
func (f *File) Holds(p Pos) (bool, error) {
	if err := f.ensure(); err != nil {
		return false, err
	}
	src, err := f.check(p)
	return !src.changed, err
}

// At makes a position at an offset, which must be 0 or follow a newline (Line.Off and Line.End do). Its line number is
// not known.
func (f *File) At(off int64) (Pos, error) {
	if err := f.ensure(); err != nil {
		return Pos{}, err
	}
	p, err := mark(f.h, Pos{Off: off})
	if err != nil {
		return Pos{}, wrap("read", f.path, err)
	}
	return p, nil
}

// Read gives each whole line after from to fn, in order, until fn returns false, Options.Max is reached, or the file
// ends. A path that is not there is fs.ErrNotExist.
//
// A file that was renamed or deleted while open is read to its end first; then the one that the path leads to now is
// read: from the same position when its content is the same up to there, else from 0 (Span.Changed). A position that
// does not hold any more is Changed too. On error the caller goes on using from.
func (f *File) Read(from Pos, opt Options, fn func(Line) bool) (Span, error) {
	src, err := f.acquire(from)
	if err != nil {
		return Span{Pos: from}, err
	}
	span := Span{Pos: from, Changed: src.changed}
	if src.orphan != nil {
		line := Line{Data: trim(src.orphan, from.Off), Off: from.Off, End: from.Off + int64(len(src.orphan)), Rest: true}
		if whole(line.Data) {
			fn(line)
		} else if len(line.Data) > 0 {
			CountBad(&span.Losses, line, "torn, and its file was replaced")
		}
	}
	if src.changed {
		span.Pos = Pos{}
		if opt.Changed != nil {
			opt.Changed()
		}
	}
	if err := f.scan(&span, opt, fn); err != nil {
		return Span{Pos: from}, wrap("read", f.path, err)
	}
	span.More = span.More || src.next
	return span, nil
}

// ensure opens the path when no file is open.
func (f *File) ensure() error {
	if f.h != nil {
		return nil
	}
	h, info, err := openRegular(f.path)
	if err != nil {
		return err
	}
	f.h, f.info, f.torn.upto, f.hole = h, info, 0, 0
	return nil
}

func openRegular(path string) (*os.File, fs.FileInfo, error) {
	// Looked at before it is opened, as opening a device can do things; and opened without blocking, as it may have become
	// a FIFO since.
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = wrap("open", path, ErrNotRegular)
	}
	if err != nil {
		return nil, nil, err
	}
	h, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err = h.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		_ = h.Close() // read only: nothing can be lost
		return nil, nil, wrap("open", path, err)
	}
	return h, info, nil
}

// acquire makes f.h the file to read from.
func (f *File) acquire(from Pos) (source, error) {
	if f.h == nil {
		if err := f.ensure(); err != nil {
			return source{}, err
		}
		return f.check(from)
	}
	// The path is looked at before the rest of the open file is: whatever was written to it before the new one appeared is
	// seen then.
	now, gone := os.Stat(f.path)
	if gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		return source{}, gone
	}
	if gone == nil && os.SameFile(now, f.info) {
		return f.check(from)
	}
	mine, err := f.check(from)
	if err != nil {
		return source{}, err
	}
	if !mine.changed {
		if left, err := f.lineLeft(from.Off); err != nil || left {
			return source{next: gone == nil}, err
		}
	}
	if gone != nil {
		return source{}, gone
	}
	return f.follow(from, !mine.changed)
}

// follow turns to the file that the path leads to now. Mine says that from holds in the one that was open, which has no
// whole line after it.
func (f *File) follow(from Pos, mine bool) (source, error) {
	h, info, err := openRegular(f.path)
	if err != nil {
		return source{}, err
	}
	if mine {
		// A last look: a write that was under way when the new file appeared.
		if left, err := f.lineLeft(from.Off); err != nil || left {
			_ = h.Close() // read only
			return source{next: true}, err
		}
	}
	old := f.h
	defer old.Close() // read only
	f.h, f.info, f.torn.upto, f.hole = h, info, 0, 0
	src, err := f.check(from)
	if err == nil && src.changed && mine {
		if src.orphan, err = io.ReadAll(io.NewSectionReader(old, from.Off, MaxLine)); err != nil {
			err = wrap("read", f.path, err)
		}
	}
	return src, err
}

// check says whether from holds in the open file.
func (f *File) check(from Pos) (source, error) {
	ok, err := holds(f.h, from)
	if err != nil {
		return source{}, wrap("read", f.path, err)
	}
	return source{changed: !ok}, nil
}

// lineLeft says whether a whole line lies after off.
func (f *File) lineLeft(off int64) (bool, error) {
	buf := make([]byte, pieceMin)
	for {
		n, err := f.h.ReadAt(buf, off)
		if bytes.IndexByte(buf[:n], '\n') >= 0 {
			return true, nil
		}
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, wrap("read", f.path, err)
		}
		off += int64(n)
	}
}

// scan reads on from span.Pos and keeps the account in span.
func (f *File) scan(span *Span, opt Options, fn func(Line) bool) error {
	info, err := f.h.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	start := span.Pos
	if wait, err := f.stillTorn(start.Off, size, opt.Final); err != nil || wait {
		span.Losses.Torn = size - start.Off
		return err
	}
	if opt.Max <= 0 {
		opt.Max = ReadMax
	}
	s := splitter{off: start.Off, num: start.Line, numKnown: start.Line > 0 || start.Off == 0, losses: &span.Losses, fn: fn}
	buf := make([]byte, min(max(size-start.Off, chunkMin), chunkMax))
	for at := start.Off; ; {
		n, err := f.h.ReadAt(buf, at)
		stop := s.feed(buf[:n], start.Off+opt.Max)
		at += int64(n)
		if stop {
			span.More = true
			break
		}
		if err == io.EOF {
			f.hole = s.rest(opt.Final, f.hole)
			f.torn.off, f.torn.upto = s.off, at
			break
		}
		if err != nil {
			return err
		}
	}
	if s.off == start.Off {
		return nil
	}
	pos := Pos{Off: s.off}
	if s.numKnown {
		pos.Line = s.num
	}
	if span.Pos, err = mark(f.h, pos); errors.Is(err, io.EOF) {
		// It shrank under our eyes. The lines were there; the next read says that the past changed.
		span.Pos, err = pos, nil
	}
	if start.Off >= printLen {
		span.Pos.Head = start.Head // what the file began with when it was first read, should it change at this moment
	}
	return err
}

// stillTorn says whether a long unfinished line at off has still no end.
func (f *File) stillTorn(off, size int64, final bool) (bool, error) {
	t := &f.torn
	if final || t.off != off || size < t.upto || t.upto-off < pieceMax {
		return false, nil
	}
	ends, err := f.lineLeft(t.upto)
	if err == nil && !ends {
		t.upto = size
	}
	return !ends, err
}

// whole says whether data is one JSON object.
func whole(data []byte) bool {
	return len(data) > 0 && data[0] == '{' && json.Valid(data)
}

// splitter cuts a stream of chunks into lines. Only a line that crosses a chunk's border is copied.
type splitter struct {
	off      int64 // where the current line begins
	num      int64 // lines before it
	numKnown bool
	losses   *checkpoint.Losses
	fn       func(Line) bool

	// The current line so far, when it began in an earlier chunk. Outer NULs are counted, not kept.
	buf    []byte
	length int64
	lead   int64
	trail  int64
	over   bool
}

// feed takes the next chunk and says whether to stop: fn had enough, or the line ends have passed limit.
func (s *splitter) feed(chunk []byte, limit int64) (stop bool) {
	for {
		i := bytes.IndexByte(chunk, '\n')
		if i < 0 {
			s.add(chunk)
			return false
		}
		var goOn bool
		if s.length == 0 {
			seg := chunk[:i]
			lead := leadingNULs(seg)
			goOn = s.give(seg[lead:], int64(i)+1, int64(lead), false)
		} else {
			s.add(chunk[:i])
			goOn = s.give(s.buf, s.length+1, s.lead, false)
		}
		chunk = chunk[i+1:]
		if !goOn || s.off >= limit {
			return true
		}
	}
}

// add keeps a part of a line whose end is not in the chunk.
func (s *splitter) add(part []byte) {
	s.length += int64(len(part))
	if len(s.buf) == 0 && s.trail == 0 {
		n := leadingNULs(part)
		s.lead += int64(n)
		part = part[n:]
	}
	body := part[:len(part)-trailingNULs(part)]
	if len(body) > 0 && !s.over {
		if int64(len(s.buf))+s.trail+int64(len(body)) > MaxLine {
			s.over, s.buf = true, nil
		} else {
			s.buf = append(append(s.buf, make([]byte, s.trail)...), body...)
		}
		s.trail = 0
	}
	s.trail += int64(len(part) - len(body))
}

// give ends the current line, which has size bytes in the file with its newline.
func (s *splitter) give(data []byte, size, lead int64, rest bool) (goOn bool) {
	line := Line{Data: trim(data, s.off+lead), Off: s.off, End: s.off + size, Rest: rest}
	if s.numKnown {
		line.Num = s.num + 1
	}
	if lead > 0 {
		s.losses.Holes++
		s.losses.HoleBytes += lead
	}
	if s.over {
		s.losses.Oversized++
	}
	goOn = true
	if len(line.Data) > 0 && !s.over {
		goOn = s.fn(line)
	}
	if !rest {
		s.off = line.End
		s.num++
	}
	s.buf, s.length, s.lead, s.trail, s.over = s.buf[:0], 0, 0, 0, false
	return goOn
}

// rest deals with what follows the last newline. Hole is the end of a hole there that was counted before, or 0; the new
// one is returned.
func (s *splitter) rest(final bool, hole int64) int64 {
	data := trim(s.buf, s.off+s.lead)
	switch end := s.off + s.length; {
	case s.length == 0:
	case final && !s.over && whole(data):
		s.give(s.buf, s.length, s.lead, true)
	case final && !s.over && len(data) == 0 && s.lead > 0:
		if end != hole {
			s.losses.Holes++
			s.losses.HoleBytes += s.lead
		}
		return end
	default:
		s.losses.Torn = s.length
	}
	return hole
}

// zeros is never written. Comparing whole blocks passes over a hole as fast as it can be read.
var zeros [4096]byte

func leadingNULs(b []byte) int {
	n := 0
	for len(b)-n >= len(zeros) && bytes.Equal(b[n:n+len(zeros)], zeros[:]) {
		n += len(zeros)
	}
	for n < len(b) && b[n] == 0 {
		n++
	}
	return n
}

func trailingNULs(b []byte) int {
	n := len(b)
	for n >= len(zeros) && bytes.Equal(b[n-len(zeros):n], zeros[:]) {
		n -= len(zeros)
	}
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return len(b) - n
}
