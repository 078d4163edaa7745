// Package lines reads files that another program appends JSON lines to. It is the leaf that the transcript readers share.
//
// What it promises:
//   - The file is opened read-only, never locked, and must be a regular file (a link to one is fine; a FIFO cannot hang us).
//   - Lines end at 0x0A alone. A position never lies inside a line; what follows the last newline waits.
//   - A file is what its content says: a position holds in a file when the bytes at its start and just before the position
//     are the same. Inode, size and times prove nothing; the inode only tells that a path leads to another file now.
//   - Work is linear and memory bounded whatever the file holds: lines over MaxLine are counted and skipped, runs of NUL of
//     any length are never buffered.
//
// It does not parse JSON (see Decode for the one place that must), and it does not wait or watch: the caller says when to
// look.
//
// Use: File.Read goes forward from a Pos, File.Backward finds where to begin in a large file, File.At makes a Pos there.
package lines

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"

	"belay/checkpoint"
)

// ErrNotRegular is returned for a path that is no regular file.
var ErrNotRegular = errors.New("not a regular file")

const (
	// MaxLine is the longest line that is given to a caller; longer ones are counted as Oversized.
	MaxLine = 64 << 20
	// ReadMax is how many bytes one Read takes at most when Options.Max is not set.
	ReadMax = 4 << 20

	printLen = 256       // bytes of each of the two fingerprints of a Pos
	chunkMax = 256 << 10 // one read() going forward
	chunkMin = 4 << 10
	pieceMin = 64 << 10 // one read() going backward, growing
	pieceMax = 1 << 20
)

// Pos is a place in a file: 0, or just after a newline. It is small and made to be kept as JSON. The zero Pos is the
// beginning.
type Pos struct {
	Off  int64  `json:"o"`           // bytes before it
	Line int64  `json:"l,omitempty"` // lines before it; 0 with Off > 0: not known
	Head uint64 `json:"h,omitempty"` // fingerprint of the file's first bytes
	Tail uint64 `json:"t,omitempty"` // fingerprint of the bytes just before Off
}

// Line is one line that may be a record.
type Line struct {
	// Data is the line without its end, byte-order mark, outer blanks and outer NULs; never empty. It is the caller's only
	// until its function returns.
	Data []byte
	Off  int64 // of the line's first byte in the file
	End  int64 // just after its newline, where the next line begins
	Num  int64 // physical line, from 1; 0 when not known
	// Rest is set for a whole object at the end of the file that has no newline yet (Options.Final), or that never got one
	// before its file was replaced: the position stays before it.
	Rest bool
}

// Options steer one Read.
type Options struct {
	// Final says that no writer lives: a whole JSON object after the last newline is a line too.
	Final bool
	// Max stops the read at the first line end after so many bytes. 0 means ReadMax.
	Max int64
	// Changed, when set, is called before the first line that is read from a new beginning (Span.Changed).
	Changed func()
}

// Span is what one Read did.
type Span struct {
	Pos Pos // where the next Read goes on
	// Changed is set when the position does not hold in the file any more (shrunk, rewritten, replaced): the lines of this
	// Read begin at the start of what is there now.
	Changed bool
	// More is set when there is more to read at once.
	More bool
	// Losses holds Torn, Holes, HoleBytes, Oversized, and BadLines for a torn end that no writer can finish any more.
	Losses checkpoint.Losses
}

// CountBad counts a line that is no record.
func CountBad(l *checkpoint.Losses, line Line, why string) {
	l.Add(checkpoint.Losses{
		BadLines: 1, Torn: l.Torn,
		Bad: []checkpoint.BadLine{{Line: line.Num, Offset: line.Off, Bytes: int64(len(line.Data)), Why: why}},
	})
}

// fingerprint hashes the n bytes at off.
func fingerprint(r io.ReaderAt, off, n int64) (sum uint64, last byte, err error) {
	var buf [printLen]byte
	b := buf[:n]
	if _, err := r.ReadAt(b, off); err != nil {
		return 0, 0, err
	}
	h := fnv.New64a()
	h.Write(b) // cannot fail
	return h.Sum64(), b[n-1], nil
}

// mark fills in the fingerprints of a position in a file. A head that was taken over its full length before stays: it is
// what the file began with when the first lines were read.
func mark(r io.ReaderAt, p Pos) (Pos, error) {
	n := min(p.Off, printLen)
	if n == 0 {
		return Pos{}, nil
	}
	var err error
	if p.Head, _, err = fingerprint(r, 0, n); err != nil {
		return p, err
	}
	p.Tail, _, err = fingerprint(r, p.Off-n, n)
	return p, err
}

// holds says whether a position is one of this file's content.
func holds(r io.ReaderAt, p Pos) (bool, error) {
	n := min(p.Off, printLen)
	if n <= 0 {
		return p.Off == 0, nil
	}
	head, _, err := fingerprint(r, 0, n)
	if errors.Is(err, io.EOF) || err == nil && head != p.Head {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	tail, last, err := fingerprint(r, p.Off-n, n)
	if errors.Is(err, io.EOF) || err == nil && (tail != p.Tail || last != '\n') {
		return false, nil
	}
	return err == nil, err
}

var bom = []byte("\xef\xbb\xbf")

// blank are the bytes that may lie around a record and mean nothing. NUL is what a crash leaves of a block that never
// reached the disk.
const blank = " \t\r\x00"

func trim(line []byte, off int64) []byte {
	if off == 0 {
		line = bytes.TrimPrefix(line, bom)
	}
	return bytes.Trim(line, blank)
}

func wrap(verb, path string, err error) error { return fmt.Errorf("%s %s: %w", verb, path, err) }
