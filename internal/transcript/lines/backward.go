package lines

import (
	"bytes"
	"io"
)

// Backward gives whole lines to fn, newest first, beginning with the last one that ends at or before end, until fn
// returns false, the file's start is reached, or about limit bytes were read. Use Size for end to begin with the file's
// last line. Line numbers are not known; lines over MaxLine and holes are passed over without being counted (reading
// forward counts them).
func (f *File) Backward(end, limit int64, fn func(Line) bool) error {
	if err := f.ensure(); err != nil {
		return err
	}

	b := back{fn: fn}
	for pos, piece := end, int64(pieceMin); pos > 0 && end-pos < limit; piece = min(2*piece, pieceMax) {
		n := min(piece, pos)
		buf := make([]byte, n)
		got, err := f.h.ReadAt(buf, pos-n)
		if err != nil && err != io.EOF {
			return wrap("read", f.path, err)
		}
		if int64(got) < n {
			return nil // it shrank: there is nothing to find at this offset any more
		}

		pos -= n
		if !b.piece(buf, pos) {
			return nil
		}
	}

	return nil
}

// back joins pieces that come from the end to the beginning into lines.
type back struct {
	fn func(Line) bool
	// ended is set once the newline that ends the current line was met, at offset nl.
	ended bool
	nl    int64
	parts [][]byte // of the current line, last part first
	size  int64
	zeros int64 // NULs before them that are kept only when something comes before those
	over  bool
}

// piece takes the bytes at pos, just before those of the last call.
func (b *back) piece(buf []byte, pos int64) (goOn bool) {
	// Looking for newlines forward is several times faster than looking for them backward.
	var cuts []int
	for at := 0; ; {
		i := bytes.IndexByte(buf[at:], '\n')
		if i < 0 {
			break
		}
		cuts = append(cuts, at+i)
		at += i + 1
	}

	hi := len(buf)
	for i := len(cuts) - 1; i >= 0; i-- {
		c := cuts[i]
		if b.ended && !b.give(buf[c+1:hi], pos+int64(c)+1) {
			return false
		}
		b.ended, b.nl, hi = true, pos+int64(c), c
	}

	if !b.ended {
		return true // an unfinished line at the end
	}
	if pos == 0 {
		return b.give(buf[:hi], 0)
	}

	b.keep(buf[:hi])
	return true
}

// keep takes a part of a line whose beginning is not there yet. Outer NULs are not kept.
func (b *back) keep(part []byte) {
	if len(b.parts) == 0 {
		part = part[:len(part)-trailingNULs(part)]
	}
	if b.over || len(part) == 0 {
		return
	}
	if leadingNULs(part) == len(part) {
		b.zeros += int64(len(part))
		return
	}
	if b.size += b.zeros + int64(len(part)); b.size > MaxLine {
		b.over, b.parts = true, nil
		return
	}
	if b.zeros > 0 {
		b.parts = append(b.parts, make([]byte, b.zeros))
	}

	b.zeros, b.parts = 0, append(b.parts, part)
}

// give ends the current line, whose first part is first, at off.
func (b *back) give(first []byte, off int64) (goOn bool) {
	if len(b.parts) > 0 && len(bytes.Trim(first, blank)) == 0 {
		first, b.zeros = nil, 0 // a hole before the record, of any length
	}

	size := b.size + b.zeros + int64(len(first))
	skip := b.over || size > MaxLine
	data := first
	if len(b.parts) > 0 && !skip {
		data = append(make([]byte, 0, size), first...)
		data = append(data, make([]byte, b.zeros)...)
		for i := len(b.parts) - 1; i >= 0; i-- {
			data = append(data, b.parts[i]...)
		}
	}

	b.parts, b.size, b.zeros, b.over = nil, 0, 0, false
	if data = trim(data, off); len(data) == 0 || skip {
		return true
	}

	return b.fn(Line{Data: data, Off: off, End: b.nl + 1})
}
