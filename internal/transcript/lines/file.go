package lines

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// File reads one path. It keeps the file open between reads, so that a file that was renamed or deleted is still read
// to its end. It is used by one goroutine.
type File struct {
	path string
	h    *os.File
	info fs.FileInfo
	// torn remembers an unfinished last line: no newline lies between off and upto. It keeps the many looks at a long
	// line that grows slowly from reading it whole each time.
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
		line := Line{Data: trim(src.orphan, from.Off), Off: from.Off, End: from.Off + int64(len(src.orphan)),
			Rest: true}
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

	h, info, err := OpenRegular(f.path)
	if err != nil {
		return err
	}

	f.h, f.info, f.torn.upto, f.hole = h, info, 0, 0
	return nil
}

// OpenRegular opens a file for reading, and refuses one that is not regular.
func OpenRegular(path string) (*os.File, fs.FileInfo, error) {
	// Checked before it is opened, as opening a device can do things; and opened without blocking, as it may have
	// become a FIFO since.
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

	// The path is looked at before the rest of the open file is: whatever was written to it before the new one appeared
	// is seen then.
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
	h, info, err := OpenRegular(f.path)
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

	s := splitter{off: start.Off, num: start.Line, numKnown: start.Line > 0 || start.Off == 0, losses: &span.Losses,
		fn: fn}
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
